"""Training with unlabelled sentences: what it costs. (What it gains is for the experiment
``jiao2006`` to say.)

All columns of the templates are summed, and all weights are learnt; `CRFTagger.fit` closes up the
columns of absent attributes first, which speeds up both sides of a ratio alike.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxseq
from experiments.bench._report import Report
from experiments.bench._timing import best_seconds
from experiments.data import Data, choose_sources
from jaxseq.crf import (
    EncodedLabels,
    EntropyGradient,
    Objective,
    Parameters,
    Spread,
    lay_out,
    lay_out_by_length,
    make_shards,
)
from jaxseq.text import CONLL2000, GENE_MENTION, Sentence, TemplateExtractor, Templates

UNLABELLED_TIMES = 5
"""Unlabelled sentences for every labelled one."""

ROUNDS = 7
JIAO_SENTENCES = 2000
"""Of the whole-epoch factor: Jiao's algorithm on all of them would take minutes a round."""

LENGTHS = (10, 20, 40, 80)
CHAINS = 32
"""Sentences of one length, done at once."""

TASKS: dict[str, tuple[str, Templates]] = {
    "genetag": ("GENETAG train", GENE_MENTION),
    "conll2000": ("CoNLL-2000 train", CONLL2000),
}


def run(report: Report, out: Path) -> None:
    """All figures of ``python -m experiments bench entropy``."""
    if not (Path(os.environ.get("JAXSEQ_DATA", "")) / "genetag").is_dir():
        report.figure("an epoch with entropy", None, at_most=1.5, needs="corpora, by JAXSEQ_DATA")
        return
    folder = Path(os.environ["JAXSEQ_DATA"])
    data = Data(choose_sources(TASKS, folder, may_stand_in=False))
    for name, (title, templates) in TASKS.items():
        corpus = _Corpus(data.corpus(name, "train"), templates)
        _epoch(report, corpus, title)
    small = _Corpus(data.corpus("genetag", "train", JIAO_SENTENCES), GENE_MENTION)
    _derivations(report, small)
    _by_length(report, data.corpus("genetag", "train"))


class _Corpus:
    """Sentences, encoded, and a point in the middle of a search."""

    def __init__(self, sentences: list[Sentence], templates: Templates):
        extractor = TemplateExtractor(templates)
        self.features = extractor.fit_transform(sentences)
        self.attributes = extractor.attribute_count
        flat = [label for sentence in sentences for label in sentence["label"]]
        classes = sorted(set(flat))
        number = {label: index for index, label in enumerate(classes)}
        self.gold = np.array([number[label] for label in flat], np.int32)
        self.spread = Spread(attributes=self.attributes, labels=len(classes))
        rng = np.random.default_rng(0)
        zeros = self.spread.zeros()
        self.point: Parameters = jax.tree.map(
            lambda leaf: jnp.asarray(rng.normal(size=leaf.shape) * 0.3, leaf.dtype), zeros
        )
        self.sentences, self.tokens = len(sentences), int(self.features.lengths.sum())

    def shards(self, chosen: np.ndarray, place: Callable = lay_out) -> list[Any]:
        """The chosen sentences, a shard a core."""
        tokens = np.repeat(chosen, self.features.lengths)
        features = self.features.take(chosen)
        layout = place(features.lengths, os.cpu_count() or 1)
        return make_shards(
            layout, features, self.attributes, EncodedLabels(self.gold[tokens], None)
        )

    def measured_on(self, title: str) -> dict[str, Any]:
        """For the report."""
        labels = self.spread.labels
        return {
            "corpus": title, "sentences": self.sentences, "tokens": self.tokens, "labels": labels,
        }  # fmt: skip


def _split(corpus: _Corpus) -> tuple[np.ndarray, np.ndarray]:
    """Which sentences are labelled, and which are not."""
    labelled = np.arange(corpus.sentences) % (UNLABELLED_TIMES + 1) == 0
    return labelled, ~labelled


def _epoch(report: Report, corpus: _Corpus, title: str) -> None:
    """One value and gradient of the whole objective, against all sentences being labelled."""
    labelled, rest = _split(corpus)
    everything = np.ones(corpus.sentences, bool)
    objectives = {
        "supervised": Objective(corpus.shards(everything), corpus.spread, 1.0),
        "entropy": Objective(
            corpus.shards(labelled),
            corpus.spread,
            1.0,
            unlabelled=corpus.shards(rest),
            entropy_weight=1.0,
        ),
    }
    runs = {name: partial(objective, corpus.point) for name, objective in objectives.items()}
    seconds = best_seconds(runs, rounds=ROUNDS)
    report.figure(
        "epoch on labelled + 5× unlabelled / supervised epoch on the same tokens",
        seconds["entropy"] / seconds["supervised"],
        at_most=1.5,
        **corpus.measured_on(title),
        seconds=seconds,
    )


def _derivations(report: Report, corpus: _Corpus) -> None:
    """The whole epoch by each derivation of the entropy's gradient."""
    labelled, rest = _split(corpus)
    places: dict[EntropyGradient, Callable] = {
        "mann": lay_out,
        "jiao": lay_out_by_length,
        "autodiff": lay_out,
    }
    runs = {}
    for name, place in places.items():
        objective = Objective(
            corpus.shards(labelled),
            corpus.spread,
            1.0,
            unlabelled=corpus.shards(rest, place),
            entropy_weight=1.0,
            entropy_gradient=name,
        )
        runs[name] = partial(objective, corpus.point)
    seconds = best_seconds(runs, rounds=3)
    for name in ("jiao", "autodiff"):
        report.figure(
            f"whole epoch, {name} / mann",
            seconds[name] / seconds["mann"],
            **corpus.measured_on("GENETAG train, first sentences"),
            seconds={"mann": seconds["mann"], name: seconds[name]},
        )


def _by_length(report: Report, sentences: list[Sentence]) -> None:
    """The gradients of real sentences of one length: only the lattices, many at once."""
    some = [sentence for sentence in sentences if len(sentence)][:1000]
    templates = ["word[0]", "word[-1]", "word[1]"]
    tagger = jaxseq.CRFTagger(templates, l2=1.0, max_iterations=20, progress=False)
    tagger.fit(some, [sentence["label"] for sentence in some])
    gradients = {
        "mann": jax.jit(jax.vmap(jaxseq.mann_entropy_gradient)),
        "jiao": jax.jit(jax.vmap(jaxseq.jiao_entropy_gradient)),
    }
    for length in LENGTHS:
        long_enough = [s for s in sentences if len(s) >= length][:CHAINS]
        ids = tagger.extractor_.transform(long_enough).ids
        ends = np.cumsum([len(s) for s in long_enough])
        rows = np.stack([ids[end - len(s) :][:length] for s, end in zip(long_enough, ends)])
        chains = jax.vmap(tagger.model_.chain)(rows)
        runs = {name: partial(run, chains) for name, run in gradients.items()}
        seconds = best_seconds(runs, rounds=ROUNDS)
        report.figure(
            f"entropy gradient, Jiao / Mann, first {length} words of sentences",
            seconds["jiao"] / seconds["mann"],
            corpus="GENETAG train",
            sentences=len(long_enough),
            labels=len(tagger.classes_),
            seconds=seconds,
        )
