"""Opening text files: one place for encodings, byte order marks, line ends and compression."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn, TextIO


def iter_lines(path: str | os.PathLike[str], encoding: str = "utf-8") -> Iterator[str]:
    r"""The lines of a text file, without their ends.

    A line ends with ``\n``, ``\r\n`` or ``\r``; the last one need not. A byte order mark is
    dropped, and a file whose name ends with ``.gz`` is decompressed. One line is held at a time.

    Args:
        path: the file.
        encoding: a name that `codecs.lookup` knows.

    Raises:
        ValueError: for bytes that are not of the encoding, with the file and the line; for a
            damaged ``.gz`` file; for an unknown encoding.
        FileNotFoundError: when there is no such file.
    """
    encoding = _without_mark(encoding)
    try:
        with _open_bytes(path) as raw, io.TextIOWrapper(raw, encoding) as text:
            for line in text:
                yield line.removesuffix("\n")
    except UnicodeDecodeError:
        _raise_undecodable(path, encoding)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{os.fspath(path)}: damaged gzip file: {error}") from error


@contextmanager
def open_to_replace(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    r"""A file to write UTF-8 text to, with ``\n`` as line end; it appears only when complete.

    The text goes to a temporary name in the same folder, which is renamed at the end; on an error
    it is removed and a file that was there before is left as it was. A name that ends with
    ``.gz`` is compressed, always to the same bytes.
    """
    folder, name = os.path.split(os.fspath(path))
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(6)}.tmp")
    try:
        with open(temporary, "xb") as raw, _compressed(raw, name) as coded:
            text = io.TextIOWrapper(coded, "utf-8", newline="\n")
            yield text
            text.flush()
            text.detach()  # the two files below it are closed by their own statements
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise


@contextmanager
def _compressed(raw: io.BufferedWriter, name: str) -> Iterator[io.BufferedWriter | gzip.GzipFile]:
    if not name.endswith(".gz"):
        yield raw
        return
    with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
        yield packed


def _open_bytes(path: str | os.PathLike[str]) -> io.BufferedReader | gzip.GzipFile:
    if os.fspath(path).endswith(".gz"):
        return gzip.GzipFile(path, "rb")
    return open(path, "rb")


def _without_mark(encoding: str) -> str:
    """The encoding that drops a byte order mark, where there is such a variant."""
    try:
        name = codecs.lookup(encoding).name
    except LookupError:
        raise ValueError(f"encoding: expected a known encoding, got {encoding!r}") from None
    return "utf-8-sig" if name == "utf-8" else encoding


def _raise_undecodable(path: str | os.PathLike[str], encoding: str) -> NoReturn:
    """Read the file again, whole, to say where it cannot be decoded."""
    with _open_bytes(path) as raw:
        data = raw.read()
    try:
        data.decode(encoding)
    except UnicodeDecodeError as error:
        # Of error.object, since the decoder may have taken the byte order mark off.
        before = error.object[: error.start].decode(encoding, errors="replace")
        line = before.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
        found = error.object[error.start : error.end].hex(" ")
        name = encoding.removesuffix("-sig")
        raise ValueError(
            f"{os.fspath(path)}:{line}: expected text encoded as {name}, found byte {found}"
        ) from None
    raise ValueError(f"{os.fspath(path)}: changed while it was read")
