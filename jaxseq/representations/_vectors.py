"""Word vectors from files that people have, and clusters of them as a `Representation`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from jaxseq.representations._contexts import cluster_directions, unit_rows
from jaxseq.representations._learn import SIZES
from jaxseq.representations._lexicon import Lexicon, Normalisation, class_keys
from jaxseq.representations._representation import Representation
from jaxseq.text import StringTable

LONGEST_HEADER = 64
LARGEST_DIMENSION = 100_000
CLASS_WORDS = 5
"""Rare words that a class of spelling has at least, for its vector to be their mean."""


def read_vectors(
    path: str | os.PathLike[str],
    words: str | os.PathLike[str] | None = None,
    *,
    max_words: int | None = None,
) -> tuple[list[str], np.ndarray]:
    """Read word vectors; which format a file has shows in the file.

    - word2vec, text or binary: a line with the numbers of words and of dimensions comes first;
    - GloVe, and fastText without its first line: lines of a word and numbers;
    - NumPy: ``.npy`` with a row per word, and a file with a word per line.

    Args:
        path: the file.
        words: the file of words that goes with ``.npy``.
        max_words: read the first so many only, which are the most frequent in most files.

    Returns:
        The words, and float32 [words, dimensions]. Of a word that comes twice, the first vector.

    Raises:
        ValueError: naming the line (or in binary files the word's number), where it is none of
            these, or a number is not finite.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "vectors.txt").write_text("the 0.5 1\\ndog 1 0\\n")
        ...     names, vectors = read_vectors(f"{folder}/vectors.txt")
        >>> names, vectors.tolist()
        (['the', 'dog'], [[0.5, 1.0], [1.0, 0.0]])
    """
    path = Path(path)
    if (path.suffix == ".npy") != (words is not None):
        got = "none" if words is None else f"{os.fspath(words)}"
        raise ValueError(f"words: expected a file of words along with .npy alone, got {got}")
    limit = np.inf if max_words is None else float(max_words)
    if not limit >= 1:
        raise ValueError(f"max_words: expected 1 or more, got {max_words}")
    if words is not None:
        names, vectors = _read_npy(path, words, limit)
    else:
        with open(path, "rb") as file:
            header = _header(file)
            if header is not None and _is_binary(file, header[1]):
                names, vectors = _read_binary(file, path, header, limit)
            else:
                names, vectors = _read_text(file, path, header, limit)
    if not np.isfinite(vectors).all():
        row = int(np.flatnonzero(~np.isfinite(vectors).all(1))[0])
        raise ValueError(f"{path}: expected finite numbers, got others for {names[row]!r:.60}")
    if not len(names) or not vectors.shape[1]:
        raise ValueError(f"{path}: expected at least one word with a vector, found none")
    first = {name: row for row, name in reversed(list(enumerate(names)))}
    rows = sorted(first.values())
    return [names[row] for row in rows], vectors[rows]


def representation_from_vectors(
    words: Sequence[str],
    vectors: np.ndarray,
    *,
    sizes: Sequence[int] = SIZES,
    column: str = "word",
    seed: int = 0,
) -> Representation:
    """Clusters of word vectors, such as those of `read_vectors`.

    A word is looked up in small letters where no word of the file has a capital. An unknown word
    has the mean vector of the less frequent half of the words that are spelled like it, where the
    file is sorted by frequency, as most are.

    Args:
        words: different ones.
        vectors: numbers [words, dimensions].
        sizes: numbers of clusters.
        column: of the sentences, that has the words.
        seed: of the first centres.

    Raises:
        ValueError: for vectors that do not go with the words.

    Example:
        >>> near = representation_from_vectors(
        ...     ["dog", "cat", "the"], np.array([[1, 0], [1, 0.1], [0, 1]]), sizes=(2,)
        ... )
        >>> near.cluster("Dog", 2) == near.cluster("cat", 2) != near.cluster("the", 2)
        True
    """
    names = list(words)
    array = np.asarray(vectors)
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.number) or len(array) != len(names):
        raise ValueError(
            f"vectors: expected numbers of shape [{len(names)}, dimensions], one row per word, "
            f"got {array.dtype} of shape {list(array.shape)}"
        )
    array = array.astype(np.float32)
    if not np.isfinite(array).all():
        raise ValueError("vectors: expected finite numbers that float32 holds, got others")
    table = StringTable(names)
    if not names or len(table) < len(names):
        raise ValueError(f"words: expected different ones, got {len(names)} with {len(table)}")
    lower = not any(name != name.lower() for name in names)
    keys, means = _class_means(names[len(names) // 2 :], unit_rows(array)[len(names) // 2 :])
    lexicon = Lexicon(table, StringTable(keys), Normalisation(lower=lower, digits=False))
    rows = np.concatenate([unit_rows(array), unit_rows(means)])
    ranks = np.arange(len(names)) + 1.0
    # By Zipf's law, the weight log n of a word with n occurrences.
    weights = np.concatenate([np.log1p(len(names) / ranks), np.ones(len(keys))])
    clusters = {
        int(size): cluster_directions(rows, int(size), seed=seed, weights=weights)[0]
        for size in sizes
    }
    about = {"kinds": ["vectors"], "words": len(names), "dimensions": array.shape[1], "seed": seed}
    return Representation(lexicon, clusters, column=column, about=about)


def _class_means(words: list[str], vectors: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Classes of enough words by their spelling, and the mean vector of each."""
    members: dict[str, list[int]] = {}
    for row, word in enumerate(words):
        for key in class_keys(word):
            members.setdefault(key, []).append(row)
    kept = {key: rows for key, rows in members.items() if len(rows) >= CLASS_WORDS}
    means = [vectors[rows].mean(0) for rows in kept.values()]
    return list(kept), np.array(means, np.float32).reshape(len(kept), vectors.shape[1])


# --------------------------------------------------------------------------------------- formats


def _header(file: BinaryIO) -> tuple[int, int] | None:
    """Words and dimensions, of the first line of word2vec; None, back at the start, for others."""
    fields = file.readline(LONGEST_HEADER).split()
    if len(fields) == 2 and all(field.isdigit() for field in fields):
        words, dimensions = map(int, fields)
        if dimensions <= LARGEST_DIMENSION:
            return words, dimensions
    file.seek(0)
    return None


def _is_binary(file: BinaryIO, dimensions: int) -> bool:
    """Whether what follows is no line of a word and so many numbers."""
    place = file.tell()
    line = file.readline(64 * (dimensions + 2))
    file.seek(place)
    try:
        np.array(line.decode().split()[-dimensions:], np.float32)
    except ValueError:
        return True
    return False


def _read_binary(
    file: BinaryIO, path: Path, header: tuple[int, int], limit: float
) -> tuple[list[str], np.ndarray]:
    count, dimensions = int(min(header[0], limit)), header[1]
    size = 4 * dimensions
    left = os.fstat(file.fileno()).st_size - file.tell()
    # Before memory is taken for what a damaged header says. A word has a letter and a blank.
    if header[0] * (size + 2) > left:
        raise ValueError(
            f"{path}: expected {header[0]} words of {dimensions} dimensions, as its first line "
            f"says, found {left} bytes"
        )
    names, vectors = [], np.empty((count, dimensions), np.float32)
    for row in range(count):
        letters = bytearray()
        while (letter := file.read(1)) not in (b" ", b""):
            letters += letter
        data = file.read(size)
        if len(data) < size:
            raise ValueError(f"{path}: expected {count} words, found {row}")
        names.append(_decoded(bytes(letters).lstrip(b"\n"), f"{path}, word {row + 1}"))
        vectors[row] = np.frombuffer(data, "<f4")
    return names, vectors


def _read_text(
    file: BinaryIO, path: Path, header: tuple[int, int] | None, limit: float
) -> tuple[list[str], np.ndarray]:
    names: list[str] = []
    first = 1 if header is None else 2
    dimensions = None if header is None else header[1]

    def numbers() -> Iterator[str]:
        nonlocal dimensions
        for number, line in enumerate(file, start=first):
            if len(names) >= limit:
                return
            where = f"{path}:{number}"
            text = _decoded(line, where).rstrip()
            if not text:
                continue
            if dimensions is None:
                dimensions = len(text.split(" ")) - 1
            fields = text.rsplit(" ", dimensions)  # a word may have blanks in it
            if len(fields) != dimensions + 1 or not dimensions:
                raise ValueError(
                    f"{where}: expected a word and {dimensions or 'some'} numbers, "
                    f"got {len(text.split(' '))} fields"
                )
            names.append(fields[0])
            yield " ".join(fields[1:])

    rows = numbers()
    try:
        some = next(rows, None)
        if some is None:  # of which loadtxt would warn
            return [], np.zeros((0, 0), np.float32)
        vectors = np.loadtxt(chain([some], rows), np.float32, comments=None, ndmin=2)
    except ValueError as error:
        if str(error).startswith(f"{path}:"):
            raise
        where = f"{path}:{first + len(names) - 1}"
        raise ValueError(f"{where} or before: expected numbers, got {error}") from None
    if header is not None and len(names) != min(header[0], limit):
        raise ValueError(
            f"{path}: expected {header[0]} words, as its first line says, found {len(names)}"
        )
    return names, vectors


def _read_npy(
    path: Path, words: str | os.PathLike[str], limit: float
) -> tuple[list[str], np.ndarray]:
    try:
        array: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: expected an array of NumPy, got {error}") from None
    where = os.fspath(words)
    with open(words, "rb") as file:
        names = [_decoded(line, where).rstrip("\r\n") for line in file]
    if not isinstance(array, np.ndarray) or array.ndim != 2 or len(array) != len(names):
        shape = list(getattr(array, "shape", ()))
        raise ValueError(
            f"{path}: expected one row for each of the {len(names)} words of {where}, got an "
            f"array of shape {shape}"
        )
    if not np.issubdtype(array.dtype, np.floating):
        raise ValueError(f"{path}: expected floats, got {array.dtype}")
    count = int(min(len(names), limit))
    return names[:count], np.array(array[:count], np.float32)


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: expected UTF-8, got {error}") from None
