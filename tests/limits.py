"""A disk that is full, as far as this process can tell."""

import resource
from contextlib import contextmanager


@contextmanager
def no_room(most=4096):
    """Inside, a file that grows past so many bytes is an error of the operating system."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
