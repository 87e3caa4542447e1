"""Jiao et al. 2006: do unlabelled sentences help a tagger of gene mentions?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

import jaxseq
from experiments.jiao2006._gradients import compare_gradients
from experiments.jiao2006._scoring import compare, score_mentions
from experiments.jiao2006._sets import UNLABELLED, Sets, draw_sets
from experiments.jiao2006._settings import AS_PUBLISHED, SETTINGS, Setting
from jaxseq.text import Sentence

CORPORA = ("genetag", "bc2gm")


@dataclass(frozen=True)
class Config:
    """See ``config.toml``."""

    words: int
    multiples: tuple[int, ...]
    sets: tuple[str, ...]
    entropy_weights: tuple[float, ...]
    l2: float
    cutoff: int
    weights: Literal["mixed", "observed", "dense", "tied"]
    scheme: Literal["none", "IOB2"]
    max_iterations: int
    self_training_rounds: int
    folds: int
    cross_validated_sets: tuple[str, ...]
    second_words: tuple[int, ...]
    second_sets: tuple[str, ...]
    second_seeds: int
    gradient_sentences: int
    gradient_iterations: int
    settings: tuple[str, ...]
    settings_seeds: tuple[int, ...]
    settings_weights: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("words", "cutoff", "max_iterations", "self_training_rounds", "folds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected 1 or more, got {getattr(self, name)}")
        for name in ("entropy_weights", "settings_weights"):
            if not all(0 <= one < np.inf for one in getattr(self, name)):
                raise ValueError(
                    f"{name}: expected numbers of 0 or more, got {getattr(self, name)}"
                )
        if self.entropy_weights[:1] != (0,):
            raise ValueError(f"entropy_weights: expected 0 first, got {self.entropy_weights}")
        for name in ("sets", "cross_validated_sets", "second_sets"):
            if not set(getattr(self, name)) <= set(UNLABELLED):
                raise ValueError(f"{name}: expected some of B, C, D, got {getattr(self, name)}")
        if not set(self.settings) <= set(SETTINGS):
            known = ", ".join(SETTINGS)
            raise ValueError(f"settings: expected some of {known}, got {self.settings}")

    def tagger(self, **changes: Any) -> jaxseq.CRFTagger:
        """An untrained tagger with the settings of the experiment, but for some changes."""
        chosen = {
            "templates": jaxseq.text.GENE_MENTION,
            "l2": self.l2,
            "cutoff": self.cutoff,
            "weights": self.weights,
            "scheme": None if self.scheme == "none" else self.scheme,
            "max_iterations": self.max_iterations,
            "progress": False,
        }
        return jaxseq.CRFTagger(**{**chosen, **changes})


def cells(config: Config, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """A cell for each labelled and unlabelled set, and the smaller parts."""
    listed: list[dict[str, Any]] = []
    for seed in seeds:
        for name in config.sets:
            listed.append(_cell("entropy", "genetag", config.words, name, seed))
            listed.append(_cell("self-training", "genetag", config.words, name, seed))
        for name in config.cross_validated_sets:
            listed.append(_cell("cross-validation", "genetag", config.words, name, seed))
    for words in config.second_words:
        for seed in list(seeds)[: config.second_seeds]:
            listed += [_cell("entropy", "bc2gm", words, name, seed) for name in config.second_sets]
    if config.gradient_sentences:
        listed.append({"part": "gradients"})
    for name in config.settings:
        listed += [
            {"part": "settings", "setting": name, "seed": seed} for seed in config.settings_seeds
        ]
    return listed


def _cell(part: str, corpus: str, words: int, unlabelled: str, seed: int) -> dict[str, Any]:
    return {"part": part, "corpus": corpus, "words": words, "unlabelled": unlabelled, "seed": seed}


def run_cell(config: Config, cell: dict[str, Any], data: Any) -> dict[str, Any]:
    """The results of one cell."""
    part = cell["part"]
    if part == "gradients":
        sets = _sets(config, data, "genetag", config.words, 0)
        return compare_gradients(
            config.tagger(max_iterations=config.gradient_iterations, dtype="float64", cores=1),
            sets.labelled[: config.gradient_sentences],
            _hidden(sets.unlabelled["B"])[: config.gradient_sentences],
        )
    if part == "settings":
        return _setting(config, SETTINGS[cell["setting"]], cell["seed"], data)
    task = _Task(config, cell, data)
    parts = {
        "entropy": _entropy,
        "self-training": _self_training,
        "cross-validation": _cross_validation,
    }
    return parts[part](config, task)


@lru_cache(maxsize=1)
def _sets(config: Config, data: Any, corpus: str, words: int, seed: int) -> Sets:
    return draw_sets(data.corpus(corpus), seed, words, config.multiples)


def _hidden(sentences: Sequence[Sentence]) -> list[Sentence]:
    """The sentences without their labels, so that nothing can learn from these."""
    return [sentence.without("label") for sentence in sentences]


class _Task:
    """The sets of a cell, and how a tagger does on those that it has no labels of."""

    def __init__(self, config: Config, cell: Mapping[str, Any], data: Any):
        corpus = cell["corpus"]
        self.sets = _sets(config, data, corpus, cell["words"], cell["seed"])
        data.corpus(corpus, count=0)  # noted as used, also when the sets are known already
        self.alternatives = data.alternatives(corpus)
        self.name = cell["unlabelled"]
        self.labelled = self.sets.labelled
        self.labels = [sentence["label"] for sentence in self.labelled]
        self.gold = self.sets.unlabelled[self.name]
        self.unlabelled = _hidden(self.gold)
        self._first: list[list[str]] | None = None

    def sizes(self) -> dict[str, Any]:
        parts = {"A": self.labelled, self.name: self.gold, "E": self.sets.held_out}
        return {
            "sentences": {name: len(part) for name, part in parts.items()},
            "words": {name: self.sets.words(name) for name in parts},
        }

    def scores(self, tagger: Any) -> dict[str, Any]:
        """Mentions on the unlabelled set and on E; against the first tagger that was scored,
        McNemar's test on E."""
        held_out = tagger.predict(self.sets.held_out)
        scores = {
            "transductive": self._counts(self.gold, tagger.predict(self.gold)),
            "held_out": self._counts(self.sets.held_out, held_out),
        }
        if self._first is None:
            self._first = held_out
        else:
            scores["mcnemar"] = compare(self.sets.held_out, held_out, self._first)
        return scores

    def _counts(self, gold: list[Sentence], predicted: list[list[str]]) -> dict[str, Any]:
        exact = score_mentions(gold, predicted)
        also = score_mentions(gold, predicted, self.alternatives)
        counts = {"predicted": exact.predicted, "gold": exact.gold}
        return {**counts, "exact": exact.tp, "with_alternatives": also.tp}


# ------------------------------------------------------------------------------------ cells


def _entropy(config: Config, task: _Task) -> dict[str, Any]:
    """Taggers of all γ, each from the supervised one."""
    supervised = config.tagger().fit(task.labelled, task.labels)
    runs = []
    for weight in config.entropy_weights:
        tagger = supervised if weight == 0 else _regularised(config, task, weight, supervised)
        runs.append(
            {
                "entropy_weight": weight,
                **task.scores(tagger),
                "iterations": tagger.n_iter_,
                "outcome": tagger.outcome_,
                "seconds": round(tagger.seconds_["all"], 3),
            }
        )
    return {**task.sizes(), "leaning": _leaning(supervised, task.gold), "runs": runs}


def _regularised(
    config: Config, task: _Task, weight: float, supervised: jaxseq.CRFTagger
) -> jaxseq.CRFTagger:
    return config.tagger().fit(
        task.labelled,
        task.labels,
        unlabelled=task.unlabelled,
        entropy_weight=weight,
        warm_start_from=supervised,
        **AS_PUBLISHED,
    )


UNSURE = 0.9
"""A token is unsure if its most probable label has less than this."""


def _leaning(tagger: jaxseq.CRFTagger, sentences: Sequence[Sentence]) -> dict[str, int]:
    """Which way tokens lean before the entropy is made less: to a mention, or to none."""
    outside = tagger.classes_.tolist().index("O")
    marginals = np.concatenate(tagger.predict_proba(sentences))
    none = np.array([label == "O" for sentence in sentences for label in sentence["label"]])
    to_none, unsure = marginals.argmax(1) == outside, marginals.max(1) < UNSURE
    return {
        "in_mentions": int((~none).sum()),
        "in_mentions_lean_outside": int((~none & to_none).sum()),
        "unsure": int(unsure.sum()),
        "unsure_lean_outside": int((unsure & to_none).sum()),
        "unsure_lean_outside_rightly": int((unsure & to_none & none).sum()),
    }


def _self_training(config: Config, task: _Task) -> dict[str, Any]:
    """The supervised tagger, and that of the last round."""
    supervised = config.tagger().fit(task.labelled, task.labels)
    before = task.scores(supervised)
    trained = jaxseq.SelfTraining(
        config.tagger(), max_rounds=config.self_training_rounds, progress=False
    ).fit(task.labelled, task.labels, unlabelled=task.unlabelled)
    return {
        "supervised": before,
        "self_trained": task.scores(trained.tagger_),
        "rounds": trained.rounds_,
        "outcome": trained.outcome_,
    }


def _cross_validation(config: Config, task: _Task) -> dict[str, Any]:
    """γ chosen by the labelled sentences alone."""
    choice = jaxseq.choose_entropy_weight(
        config.tagger(),
        task.labelled,
        task.labels,
        unlabelled=task.unlabelled,
        weights=config.entropy_weights,
        folds=config.folds,
        **AS_PUBLISHED,
        scoring="span_f1",
    )
    scores = np.asarray(choice.scores).tolist()
    return {"weights": list(choice.values), "scores": scores, "best": float(choice.best)}


def _setting(config: Config, setting: Setting, seed: int, data: Any) -> dict[str, Any]:
    """One change of the settings: A and B of a seed that is not reported elsewhere, tested on E."""
    words = round(config.words * setting.words)
    cell = {"corpus": "genetag", "words": words, "unlabelled": "B", "seed": seed}
    task = _Task(config, cell, data)
    fixed: Any = {"sample_weight": setting.sentence_weights(task.labelled)}
    supervised = config.tagger(**setting.tagger).fit(task.labelled, task.labels, **fixed)
    runs = [{"entropy_weight": 0.0, **task.scores(supervised)}]
    for weight in config.settings_weights:
        regularised = config.tagger(**setting.tagger).fit(
            task.labelled,
            task.labels,
            unlabelled=task.unlabelled,
            entropy_weight=setting.schedule(weight),
            vocabulary=setting.vocabulary,
            warm_start_from=setting.start(supervised, task.labelled, task.labels),
            **AS_PUBLISHED,
            **fixed,
        )
        runs.append({"entropy_weight": weight, **task.scores(regularised)})
    return {**task.sizes(), "runs": runs}
