"""Files and messages for the tests of the readers."""

import pytest


def write(folder, data, name="train.txt"):
    """A file with this text, or these bytes."""
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def message(call, *arguments, **options):
    """The message of the ValueError that a call raises."""
    with pytest.raises(ValueError, match=r".") as caught:
        call(*arguments, **options)
    return str(caught.value)
