"""Sentences of active learning, copied into its folder: the folder is all that it needs.

``pool.jsonl`` and ``dev.jsonl`` hold a sentence a line, ``{"columns": {name: cells}}``, those of
the second with ``"labels"``. ``corpora.json`` says where they are from, and their SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxseq.text import Sentence
from jaxseq.text._sentence import sentence_of

FORMAT = "jaxseq active corpora 1"
ABOUT, POOL, DEV = "corpora.json", "pool.jsonl", "dev.jsonl"
WORD = "word"


@dataclass(frozen=True)
class Corpora:
    """What active learning works on.

    Args:
        pool: sentences to ask about, those with labels from the start first.
        dev: others, to score the model on; empty for none. dev_labels: their labels.
        sources: the files that they were read from, by the name of the option; None for none.

    Example:
        >>> corpora = Corpora([Sentence({"word": ["a"]})], [], [], {"train": None, "pool": "p"})
        >>> corpora.words(0)
        ('a',)
    """

    pool: list[Sentence]
    dev: list[Sentence]
    dev_labels: list[list[str]]
    sources: dict[str, str | None]

    def words(self, sentence: int) -> tuple[str, ...]:
        """What people see of a sentence: its column ``word``, or its first."""
        columns = self.pool[sentence]
        return columns[WORD if WORD in columns else columns.columns[0]]


def write_corpora(folder: Path, corpora: Corpora) -> None:
    """Write them into a folder that nobody reads yet."""
    texts = {POOL: _lines(corpora.pool, None)}
    if corpora.dev:
        texts[DEV] = _lines(corpora.dev, corpora.dev_labels)
    about = {
        "format": FORMAT,
        "sources": corpora.sources,
        "sha256": {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()},
    }
    texts[ABOUT] = f"{json.dumps(about, indent=1)}\n".encode()
    for name, text in texts.items():
        (folder / name).write_bytes(text)


def _lines(sentences: Sequence[Sentence], labels: Sequence[list[str]] | None) -> bytes:
    rows: list[dict[str, Any]] = [{"columns": {n: s[n] for n in s.columns}} for s in sentences]
    for row, given in zip(rows, labels or []):
        row["labels"] = given
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()


def read_corpora(folder: Path) -> Corpora:
    """What `write_corpora` wrote; ValueError where that is not there, or not what it was."""
    where = folder / ABOUT
    if not where.is_file():
        raise ValueError(f"{folder}: expected a folder of jaxseq active start, found no {ABOUT}")
    try:
        about = json.loads(where.read_bytes())
        sound = about["format"] == FORMAT and set(about["sha256"]) <= {POOL, DEV}
        sources = dict(about["sources"])
    except (ValueError, KeyError, TypeError, RecursionError):
        sound, about, sources = False, {}, {}
    if not sound:
        raise ValueError(f"{where}: expected JSON of the format {FORMAT!r}, got something else")
    rows: dict[str, list[dict[str, Any]]] = {POOL: [], DEV: []}
    for name, digest in about["sha256"].items():
        rows[name] = _read(folder / name, digest)
    dev_labels = [row["labels"] for row in rows[DEV]]
    return Corpora(_sentences(rows[POOL]), _sentences(rows[DEV]), dev_labels, sources)


def _read(path: Path, digest: str) -> list[dict[str, Any]]:
    data = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(data).hexdigest() != digest:
        raise ValueError(f"{path}: expected the file that jaxseq active start wrote, found another")
    return [json.loads(line) for line in data.decode().split("\n")[:-1]]


def _sentences(rows: list[dict[str, Any]]) -> list[Sentence]:
    # One string for all its occurrences: there may be millions of tokens.
    return [
        sentence_of({n: tuple(map(sys.intern, cells)) for n, cells in row["columns"].items()})
        for row in rows
    ]
