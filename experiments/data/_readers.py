"""Sentences of the corpora, each with the columns "word" and, where they are known, others.

Everywhere the labels are in the column "label"; spans are in IOB2, unless a corpus is wanted raw.
Unlabelled parts have none.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from experiments.data._formats import (
    read_ads,
    read_citations,
    read_genetag,
    read_genetag_mentions,
)
from jaxseq.text import Sentence, read_conll, read_plain, tokenize

UNKNOWN = "_"

Spans = dict[str, list[tuple[int, int]]]
"""Name of a sentence → (start, stop) of spans in it; the last token is stop − 1."""


def read_real(corpus: str, split: str, folder: Path, *, raw: bool = False) -> list[Sentence]:
    """A part of a corpus from the data folder; raw: as its file has it (see `Data.corpus`)."""
    if raw and corpus == "conll2003":
        return _conll2003(folder / corpus, split, docstart="keep")
    return _READERS[corpus](folder / corpus, split)


def generate(stand_in: str, corpus: str, split: str, count: int, seed: int) -> list[Sentence]:
    """Sentences of the generator that stands in for a part of a corpus."""
    from experiments import corpora

    sentences = getattr(corpora, stand_in)(count, seed=seed)
    if split == "unlabelled":
        return [Sentence({"word": sentence["word"]}) for sentence in sentences]
    if corpus == "conll2003":
        return [_with_chunks(sentence) for sentence in sentences]
    return sentences


def read_alternatives(corpus: str, split: str, folder: Path) -> Spans:
    """Spans of a part of a corpus that are as right as the labelled ones which they overlap."""
    if corpus != "genetag":
        return {}
    return read_genetag_mentions(folder / corpus / split / "Correct.Data")


def _with_chunks(sentence: Sentence) -> Sentence:
    """The column that CoNLL-2003 has and gene mentions have not."""
    chunks = [UNKNOWN] * len(sentence)
    return Sentence(
        {
            "word": sentence["word"],
            "pos": sentence["pos"],
            "chunk": chunks,
            "label": sentence["label"],
        }
    )


def _conll2000(folder: Path, split: str) -> list[Sentence]:
    return read_conll(folder / f"{split}.txt", ["word", "pos", "label"])


def _conll2003(folder: Path, split: str, docstart: str = "skip") -> list[Sentence]:
    file = {"train": "eng.train", "dev": "eng.testa", "test": "eng.testb"}[split]
    scheme = "IOB2" if docstart == "skip" else None
    columns = ["word", "pos", "chunk", "label"]
    return read_conll(folder / file, columns, scheme_to=scheme, docstart=docstart)


def _citations(folder: Path, split: str) -> list[Sentence]:
    if split == "labelled":
        return read_citations(folder / "tagged_references.txt")
    return read_plain(folder / "unlabeled.txt", tokenize=tokenize)


def _ads(folder: Path, split: str) -> list[Sentence]:
    if split == "unlabelled":
        return [ad.without("label") for ad in read_ads(folder / "unlabeled.txt")]
    return read_ads(folder / f"{split}.txt")


def _genetag(folder: Path, split: str) -> list[Sentence]:
    part = folder / split
    return read_genetag(part / "TAGGED_GENE_CORPUS", gold=part / "Gold.format")


def _bc2gm(folder: Path, split: str) -> list[Sentence]:
    file = {"train": "train.tsv", "dev": "devel.tsv", "test": "test.tsv"}[split]
    return read_conll(folder / file, ["word", "label"], delimiter="\t")


_READERS: dict[str, Callable[[Path, str], list[Sentence]]] = {
    "conll2000": _conll2000,
    "conll2003": _conll2003,
    "citations": _citations,
    "ads": _ads,
    "genetag": _genetag,
    "bc2gm": _bc2gm,
}
