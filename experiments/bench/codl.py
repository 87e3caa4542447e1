"""Constrained decoding of citations and advertisements, against a beam search in plain Python."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from experiments.bench._python_beam import Model, citation_rules, search
from experiments.bench._report import Report
from experiments.bench._timing import best_seconds
from experiments.chang2007._domains import Domain, read_rules, rules_about
from experiments.data import Data, choose_sources
from jaxseq.constraints import (
    Constraints,
    CorpusLabellings,
    bind_constraints,
    joint_states,
    search_corpus,
)
from jaxseq.hmm import WordVocabulary, estimate_hmm, word_corpus
from jaxseq.text import Sentence

LABELLED = {"citations": 300, "ads": 102}
"""Sentences that the models are of."""
UNLABELLED = 1000
"""Sentences that are decoded."""
BEST, WIDTH = 50, 50
"""Labellings of each sentence, and the beam."""
ROUNDS = 3
PLAIN_SECONDS = 25.0
"""Plain Python gets about so long; what it takes is scaled by the number of tokens."""
SECONDS_BAR, FACTOR_BAR, SAME_BAR = 5.0, 50.0, 1e-3
CLOSE = 1e-4
"""Scores that differ by this part are equal: those of float32."""


class Case(NamedTuple):
    """Sentences, and all that a search needs of them and of the model."""

    sentences: list[Sentence]
    labels: list[str]
    constraints: Constraints
    penalty: float
    nodes: np.ndarray
    edges: np.ndarray
    lengths: np.ndarray
    model: Model

    def decode(self, k: int = BEST, method: Literal["beam", "exact"] = "beam") -> CorpusLabellings:
        """From words to labellings: what the rules see of the words, and the search."""
        x = self.constraints.observe_all(self.sentences)
        return search_corpus(
            self.nodes, self.edges, self.lengths, self.constraints, x, k, WIDTH, method
        )

    def measured_on(self) -> dict[str, Any]:
        """For the report."""
        return {
            "sentences": len(self.sentences), "tokens": int(self.lengths.sum()),
            "labels": len(self.labels), "constraints": len(self.constraints), "width": WIDTH,
        }  # fmt: skip


def run(report: Report, out: Path) -> None:
    """All figures of ``python -m experiments bench codl``."""
    folder = Path(os.environ.get("JAXSEQ_DATA", ""))
    if not all((folder / name).is_dir() for name in LABELLED):
        needs = "corpora, by JAXSEQ_DATA"
        report.figure("seconds for 1,000 citations", None, at_most=SECONDS_BAR, needs=needs)
        return
    data = Data(choose_sources(list(LABELLED), folder, may_stand_in=False))
    citations = make_case(data, "citations", LABELLED["citations"], UNLABELLED)
    seconds = _decoding(report, citations, "citations", SECONDS_BAR)
    _against_plain(report, citations, seconds)
    ads = make_case(data, "ads", LABELLED["ads"], UNLABELLED)
    _decoding(report, ads, "ads", None)
    _against_exact(report, ads)


def make_case(data: Data, domain: Domain, labelled: int, unlabelled: int) -> Case:
    """The model of the first labelled sentences, and the first unlabelled ones to decode."""
    known = data.corpus(domain, "labelled" if domain == "citations" else "train", labelled)
    sentences = data.corpus(domain, "unlabelled", unlabelled)
    vocabulary = WordVocabulary([one["word"] for one in known], min_count=2)
    labels = sorted({label for sentence in known for label in sentence["label"]})
    number = {label: index for index, label in enumerate(labels)}
    corpus = word_corpus(
        vocabulary.encode([one["word"] for one in known]),
        len(vocabulary),
        labels=[[number[label] for label in one["label"]] for one in known],
        num_labels=len(labels),
    )
    scores = estimate_hmm(corpus, len(labels)).probabilities.log()
    initial, edges, emission = (np.asarray(family) for family in scores)
    words = vocabulary.encode([sentence["word"] for sentence in sentences])
    lengths = np.array([len(sentence) for sentence in sentences], np.int64)
    nodes = emission[np.concatenate(words)].copy()
    nodes[np.cumsum(lengths) - lengths] += initial
    rules = rules_about(read_rules(domain), labels)
    table = {
        word: emission[vocabulary.encode([[word]])[0][0]].tolist() for word in vocabulary.words
    }
    unknown = emission[vocabulary.unknown].tolist()
    model = Model(initial.tolist(), edges.tolist(), table, unknown)
    constraints = bind_constraints(rules, labels)
    return Case(
        sentences, labels, constraints, rules[0].penalty, nodes, edges, lengths, model
    )  # fmt: skip


def _decoding(report: Report, case: Case, name: str, bar: float | None) -> float:
    """Seconds after compilation, and of the compilation; the best of a few rounds."""
    began = time.perf_counter()
    case.decode()
    first = time.perf_counter() - began
    seconds = best_seconds({"decode": case.decode}, rounds=ROUNDS, warm_up=0)["decode"]
    count, told = f"{len(case.sentences):,} {name}", case.measured_on()
    report.figure(
        f"constrained beam, K = {BEST}: seconds for {count}", seconds, at_most=bar, **told
    )
    report.figure(f"constrained beam: seconds to compile, {name}", first - seconds, **told)
    return seconds


# ------------------------------------------------------------------------------ plain Python


def _against_plain(report: Report, case: Case, seconds: float) -> None:
    """Plain Python on citations from all of the list, and whether it finds the same."""
    found, spent, sample = {}, 0.0, _spread(len(case.sentences))
    rules = citation_rules(case.labels)
    for number in sample:
        words = case.sentences[number]["word"]
        began = time.perf_counter()
        found[number] = search(case.model, rules, case.penalty, words, WIDTH)
        spent += time.perf_counter() - began
        if spent > PLAIN_SECONDS:
            break
    tokens = int(sum(case.lengths[number] for number in found))
    scaled = spent * float(case.lengths.sum()) / tokens
    told = {**case.measured_on(), "sample": len(found), "sample tokens": tokens}
    report.figure(
        "constrained beam: plain Python / jaxseq", scaled / seconds, at_least=FACTOR_BAR,
        **told, seconds={"plain, sample": spent, "plain, scaled": scaled, "jaxseq": seconds},
    )  # fmt: skip
    gaps, best, lists = compare(case, case.decode(), found)
    report.figure("largest relative difference of the best scores", gaps, at_most=SAME_BAR, **told)
    report.figure("share of sentences with the same best labelling", best, **told)
    report.figure("share of sentences with the same list of labellings", lists, **told)


def _spread(count: int) -> list[int]:
    """All numbers below `count`, neighbours far apart, so that any first part is a fair sample."""
    return np.random.default_rng(2007).permutation(count).tolist()


def compare(
    case: Case, ours: CorpusLabellings, plain: dict[int, list[tuple[float, tuple[int, ...]]]]
) -> tuple[float, float, float]:
    """Largest relative difference of the best scores; shares of equal best labellings and lists."""
    starts = np.cumsum(case.lengths) - case.lengths
    gaps, best, lists = [0.0], [], []
    for number, theirs in plain.items():
        here = slice(starts[number], starts[number] + case.lengths[number])
        paths = ours.labels[here].T.tolist()
        gaps.append(abs(float(ours.scores[number, 0]) / theirs[0][0] - 1))
        best.append(paths[0] == list(theirs[0][1]))
        lists.append({tuple(path) for path in paths[: len(theirs)]} == {y for _, y in theirs})
    return max(gaps), float(np.mean(best)), float(np.mean(lists))


# -------------------------------------------------------------------------------------- exact


def _against_exact(report: Report, case: Case) -> None:
    """How often the beam finds the best labelling, where all can be searched."""
    told = {**case.measured_on(), "joint states": joint_states(case.constraints)}
    exact = case.decode(1, "exact").scores[:, 0]
    seconds = best_seconds({"exact": lambda: case.decode(1, "exact")}, rounds=1, warm_up=0)
    beam = case.decode(1).scores[:, 0]
    report.figure("share of ads of which the beam finds the best", share_found(beam, exact), **told)
    report.figure("exact search, K = 1: seconds for 1,000 ads", seconds["exact"], **told)


def share_found(beam: Sequence[float] | np.ndarray, exact: np.ndarray) -> float:
    """The share of scores that are as high as they can be.

    Example:
        >>> share_found(np.array([-1.0, -2.5]), np.array([-1.0, -2.0]))
        0.5
    """
    return float((np.asarray(beam) >= exact - CLOSE * np.abs(exact)).mean())
