"""Errors of a run of several processes: what to say of them, and whose they are."""

from __future__ import annotations

import os

import jax

OWN = ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "UNIMPLEMENTED", "OUT_OF_RANGE", "NOT_FOUND")
"""How messages of JAX begin that are about this process itself; all others of several processes
are of connections that broke."""


def in_words(error: BaseException) -> str:
    """What went wrong, in one line, for those who do not see where.

    Example:
        >>> in_words(ValueError("l2: expected 0 or more, got -1"))
        'l2: expected 0 or more, got -1'
        >>> in_words(OSError(28, "No space left on device", "state"))
        'state: cannot be read or written: No space left on device'
        >>> in_words(KeyError("word"))
        "unexpected KeyError: 'word'"
    """
    if isinstance(error, OSError) and error.filename is not None:
        place = os.fsdecode(error.filename)
        return f"{place}: cannot be read or written: {error.strerror or error}"
    if isinstance(error, MemoryError):
        return "expected enough memory for the data, there is too little"
    text = " ".join(str(error).split())
    if isinstance(error, jax.errors.JaxRuntimeError) and text.startswith("RESOURCE_EXHAUSTED"):
        return f"expected enough memory on the devices, there is too little ({text:.200})"
    if isinstance(error, ValueError | OSError):
        return text
    return f"unexpected {type(error).__name__}: {text}"


def is_lost(error: BaseException) -> bool:
    """Whether an error says that another process cannot be reached any more.

    Example:
        >>> import jax
        >>> is_lost(jax.errors.JaxRuntimeError("UNAVAILABLE: connection reset by peer"))
        True
        >>> is_lost(jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"))
        False
    """
    if isinstance(error, jax.errors.JaxRuntimeError):
        return not str(error).startswith(OWN)
    return isinstance(error, ValueError | OSError) and "Gloo" in str(error)
