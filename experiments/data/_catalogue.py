"""The corpora by name: what they are, their licence, and where a person gets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Corpus:
    """A corpus.

    Args:
        title: what it is.
        licence: what one may do with it.
        where: where a person gets it.
        splits: its parts → how many sentences stand in for them when no count is asked for.
        stand_in: name of the generator in `experiments.corpora` that stands in for it.
    """

    title: str
    licence: str
    where: str
    splits: Mapping[str, int]
    stand_in: str


CORPORA = {
    "conll2000": Corpus(
        title="CoNLL-2000 chunking, Wall Street Journal",
        licence="WSJ text: research only, do not redistribute",
        where="conll2000.zip of nltk_data, https://www.nltk.org/nltk_data/",
        splits={"train": 1000, "test": 250},
        stand_in="chunks",
    ),
    "conll2003": Corpus(
        title="CoNLL-2003 English named entities, Reuters",
        licence="Reuters text: research only, do not redistribute",
        where="the shared task's page, https://www.clips.uantwerpen.be/conll2003/ner/, with the "
        "Reuters text of https://trec.nist.gov/data/reuters/reuters.html",
        splits={"train": 1000, "dev": 250, "test": 250},
        stand_in="gene_mentions",
    ),
    "citations": Corpus(
        title="Cora references: 500 labelled, 5,000 unlabelled",
        licence="labelled: research only; unlabelled: open reference-parsing corpora",
        where="labelled: tagged_references.txt of cora-ie.tar.gz, "
        "https://people.cs.umass.edu/~mccallum/data.html; unlabelled: collected from the corpora "
        "of grobid, anystyle, ParsCit and umass-citation",
        splits={"labelled": 500, "unlabelled": 1000},
        stand_in="citations",
    ),
    "ads": Corpus(
        title="Craigslist apartment advertisements (Grenager et al. 2005)",
        licence="research only",
        where="unsupie.tgz of Grenager, Klein & Manning (2005), by the authors",
        splits={"train": 102, "dev": 100, "test": 100, "unlabelled": 1000},
        stand_in="ads",
    ),
    "genetag": Corpus(
        title="GENETAG gene mentions (BioCreative I, task 1A)",
        licence="public domain (NCBI)",
        where="GENETAG.tar.gz of NCBI, ftp://ftp.ncbi.nlm.nih.gov/pub/tanabe/",
        splits={"train": 1000, "test": 250},
        stand_in="gene_mentions",
    ),
    "bc2gm": Corpus(
        title="BioCreative II gene mentions",
        licence="public domain (NCBI)",
        where="the folder conll of https://github.com/spyysalo/bc2gm-corpus",
        splits={"train": 1000, "dev": 250, "test": 250},
        stand_in="gene_mentions",
    ),
}
"""Every corpus by the name of its folder."""


def corpus_named(name: str) -> Corpus:
    """The corpus of that name.

    Raises:
        ValueError: for a name that is not in `CORPORA`.

    Example:
        >>> corpus_named("bc2gm").licence
        'public domain (NCBI)'
    """
    if name not in CORPORA:
        raise ValueError(f"corpus: expected one of {', '.join(CORPORA)}, got {name!r}")
    return CORPORA[name]
