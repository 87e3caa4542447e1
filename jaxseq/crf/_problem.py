"""What a tagger learns from, and which weights it learns."""

from __future__ import annotations

import numbers
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxseq._runtime import usable_cores
from jaxseq.crf._data import BY_ROW, EntropyGradient
from jaxseq.crf._lbfgs import Settings
from jaxseq.crf._model import padded_labels
from jaxseq.crf._parameters import Spread, WeightSet, observed_places
from jaxseq.parallel import check_mesh
from jaxseq.taggers import (
    EncodedLabels,
    Label,
    Legal,
    Together,
    check_labels,
    check_number,
    check_paths_legal,
    check_sentence_weights,
    check_sentences,
    check_unlabelled,
    encode_labels,
    find_classes,
    legal_by_scheme,
)
from jaxseq.text import FeatureExtractor, SharedCorpus, TokenFeatures

# -------------------------------------------------------------------------------------------------
# The estimator's parameters, checked, as the plan of a search.


if TYPE_CHECKING:
    from jaxseq.crf._tagger import CRFTagger


@dataclass(frozen=True)
class Plan:
    """How to search: the estimator's parameters, checked."""

    weights: WeightSet
    algorithm: str
    settings: Settings
    l2: float
    epochs: int
    batch_size: int
    learning_rate: float
    seed: int
    cores: int
    progress: bool | None
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: int
    dtype: str
    mesh: Mesh | None = None


LEARNING_RATES = {"adamw": 0.05, "sgd": 0.5}


def plan_of(tagger: CRFTagger, mesh: Mesh | None = None) -> Plan:
    """How to search, by the estimator's parameters; ValueError on one that makes no sense."""
    rate = tagger.learning_rate
    if rate is None:
        rate = LEARNING_RATES.get(tagger.algorithm, 0.0)
    for name in ("l1", "l2", "tolerance"):
        check_number(name, getattr(tagger, name), 0, numbers.Real)
    check_number("learning_rate", rate, 0, numbers.Real)
    counts = ("max_iterations", "epochs", "batch_size", "memory_size", "checkpoint_every")
    for name, low in {"seed": 0, **dict.fromkeys(counts, 1)}.items():
        check_number(name, getattr(tagger, name), low, numbers.Integral)
    if tagger.cores is not None:
        check_number("cores", tagger.cores, 1, numbers.Integral)
    if not isinstance(tagger.checkpoint, str | os.PathLike | None):
        raise ValueError(f"checkpoint: expected a path or None, got {tagger.checkpoint!r:.60}")
    choices = {
        "weights": ("mixed", "observed", "dense", "tied"),
        "algorithm": ("lbfgs", "adamw", "sgd"),
        "dtype": ("float32", "float64"),
    }
    for name, among in choices.items():
        if getattr(tagger, name) not in among:
            raise ValueError(
                f"{name}: expected one of {list(among)}, got {getattr(tagger, name)!r}"
            )
    if jax.dtypes.canonicalize_dtype(tagger.dtype) != tagger.dtype:
        raise ValueError(
            "dtype: expected JAX to have 64-bit numbers switched on (jax_enable_x64) for float64, "
            "got them switched off"
        )
    most = float(np.finfo(tagger.dtype).max)
    for name in ("l1", "l2"):
        if getattr(tagger, name) > most:
            raise ValueError(
                f"{name}: expected at most {most:.3g}, the largest number of {tagger.dtype}, got "
                f"{getattr(tagger, name)}"
            )
    if mesh is not None:
        mesh = check_mesh(mesh)
        if tagger.algorithm != "lbfgs":
            raise ValueError(f"algorithm: expected 'lbfgs' with a mesh, got {tagger.algorithm!r}")
    settings = Settings(
        max_iterations=int(tagger.max_iterations),
        tolerance=float(tagger.tolerance),
        memory_size=int(tagger.memory_size),
        l1=float(tagger.l1),
    )
    return Plan(
        weights=cast(WeightSet, tagger.weights),
        algorithm=tagger.algorithm,
        settings=settings,
        l2=float(tagger.l2),
        epochs=int(tagger.epochs),
        batch_size=int(tagger.batch_size),
        learning_rate=float(rate),
        seed=int(tagger.seed),
        cores=int(tagger.cores or usable_cores()),
        progress=tagger.progress if mesh is None or jax.process_index() == 0 else False,
        checkpoint=tagger.checkpoint,
        checkpoint_every=int(tagger.checkpoint_every),
        dtype=tagger.dtype,
        mesh=mesh,
    )


Schedule = Callable[[int], Any]
"""From the number of steps done to a weight, as in optax."""

ANNEAL_EVERY = 10
"""Iterations of L-BFGS between two looks at a schedule: curvature is learnt anew at each change."""


@dataclass(frozen=True)
class EntropyTerm:
    """How unlabelled sentences enter the objective: their weight γ, or its schedule, and the
    derivation of its gradient."""

    weight: float | Schedule
    gradient: EntropyGradient

    @classmethod
    def of(cls, weight: Any, gradient: Any) -> EntropyTerm:
        """ValueError on what makes no sense."""
        if not isinstance(gradient, str) or gradient not in BY_ROW:
            raise ValueError(f"entropy_gradient: expected one of {list(BY_ROW)}, got {gradient!r}")
        if callable(weight):
            return cls(weight, gradient)
        check_number("entropy_weight", weight, 0, numbers.Real)
        return cls(float(weight), gradient)

    @property
    def absent(self) -> bool:
        """Whether there is nothing to add."""
        return not callable(self.weight) and self.weight == 0

    def at(self, step: int) -> float:
        """γ after so many steps."""
        if not callable(self.weight):
            return self.weight
        found = np.asarray(self.weight(step))
        is_number = found.shape == () and found.dtype.kind in "iuf"
        if not is_number or not 0 <= float(found) < np.inf:
            raise ValueError(
                f"entropy_weight: expected a schedule of finite numbers, 0 or more, got {found} "
                f"at step {step}"
            )
        return float(found)

    def pieces(self, iterations: int) -> list[tuple[float, int]]:
        """The schedule as (γ, iterations) of a search of so many, equal neighbours as one."""
        found: list[tuple[float, int]] = []
        for start in range(0, iterations, ANNEAL_EVERY):
            weight, count = self.at(start), min(ANNEAL_EVERY, iterations - start)
            if found and found[-1][0] == weight:
                found[-1] = (weight, found[-1][1] + count)
            else:
                found.append((weight, count))
        return found


DENSE_FROM = 10
"""Tokens that an attribute must be on to have a weight for every label, among mixed weights."""


DENSE_WASTE = 1.5
"""Columns of a table for every label, above which the search is in the labels' columns alone: with
three labels it would otherwise carry five columns of zeros through every step."""


@dataclass(frozen=True)
class Problem:
    """What is to be learnt from: labelled sentences, and perhaps unlabelled ones."""

    features: TokenFeatures
    labels: EncodedLabels
    classes: list[str]
    attributes: int
    edge_attributes: int
    transitions: bool
    legal: Legal | None
    sentence_weights: np.ndarray | None
    unlabelled: TokenFeatures | None = None


def make_spread(
    problem: Problem,
    weights: WeightSet,
    together: Together | None = None,
    in_blocks: bool = False,
) -> Spread:
    """Which weights are learnt.

    Args:
        problem: the data; with several processes (`together`), the part of this one.
        weights: by which rule.
        in_blocks: whether the whole table is wanted, as it is to be cut.
    """
    s, gold = len(problem.classes), problem.labels.gold
    learnt = None if problem.transitions else np.zeros((s, s), bool)
    places = groups = None
    num_groups = 0
    if weights in ("observed", "mixed"):
        dense_from = DENSE_FROM if weights == "mixed" else None
        ids, allowed = problem.features.ids, problem.labels.allowed
        if together is None or together.is_alone:
            places = observed_places(ids, gold, allowed, problem.attributes, s, dense_from)
        else:
            places = observed_places(ids, gold, allowed, problem.attributes, s)
            frequent = _frequent_places(ids, problem.attributes, s, dense_from, together)
            places = together.places(np.union1d(places, frequent))
        if problem.transitions and weights == "observed":
            learnt = _observed_transitions(problem)
            learnt = learnt if together is None else together.peers.any(learnt)
    elif weights == "dense" and padded_labels(s) > DENSE_WASTE * s and not in_blocks:
        places = np.add.outer(np.arange(problem.attributes) * padded_labels(s), np.arange(s))
        places = places.ravel()
    elif weights == "tied":
        types = [label.split("-", 1)[-1] for label in problem.classes]
        names = sorted(set(types))
        groups, num_groups = np.array([names.index(t) for t in types], np.int32), len(names)
    return Spread(
        attributes=problem.attributes,
        labels=s,
        places=None if places is None else jnp.asarray(places, jnp.int32),
        groups=None if groups is None else jnp.asarray(groups),
        num_groups=num_groups,
        transitions=None if learnt is None else jnp.asarray(learnt),
    )


def _frequent_places(
    ids: np.ndarray, attributes: int, labels: int, dense_from: int | None, together: Together
) -> np.ndarray:
    """Places of all labels for the attributes that are on enough tokens of all processes."""
    if dense_from is None:
        return np.zeros(0, np.int64)
    counts = together.peers.sum(np.bincount(ids[ids >= 0], minlength=attributes))
    frequent = np.flatnonzero(counts >= dense_from) * padded_labels(labels)
    return np.add.outer(frequent, np.arange(labels)).ravel()


def _observed_transitions(problem: Problem) -> np.ndarray:
    """Transitions between labels that neighbours in the data have, or may have."""
    s, labels, lengths = len(problem.classes), problem.labels, problem.features.lengths
    starts = (np.cumsum(lengths) - lengths)[lengths > 0]
    linked = np.ones(len(labels.gold), bool)
    linked[starts] = False
    seen = np.zeros((s, s), bool)
    second = np.flatnonzero(linked)
    gold = labels.gold
    known = second[(gold[second] >= 0) & (gold[second - 1] >= 0)]
    seen[gold[known - 1], gold[known]] = True
    if labels.allowed is not None:
        allowed = labels.allowed.astype(np.float32)
        partial = second[(gold[second] < 0) | (gold[second - 1] < 0)]
        seen |= allowed[partial - 1].T @ allowed[partial] > 0
    return seen


# -------------------------------------------------------------------------------------------------
# Features of labelled and unlabelled sentences, from one vocabulary.


Vocabulary = Literal["all", "labelled"]


def read_both(
    new_extractor: Callable[[], FeatureExtractor],
    X: Iterable[Any],
    unlabelled: Iterable[Any] | None,
    vocabulary: Vocabulary,
    together: Together | None = None,
) -> tuple[FeatureExtractor, TokenFeatures, TokenFeatures | None]:
    """Extractor, features of the labelled sentences, and those of the others.

    The last is None where there is no unlabelled token at all. With several processes (`together`)
    the sentences are those of this one, and the vocabulary that of all.
    """
    check_vocabulary(vocabulary)
    extractor, together = new_extractor(), together or Together.alone()
    labelled = list(X)
    if unlabelled is None:
        return extractor, extractor.fit_transform(labelled, together.shared(len(labelled))), None
    others = check_unlabelled(unlabelled)
    any_others = together.total(len(others)) > 0
    if vocabulary == "labelled" or not any_others:
        shared = together.shared(len(labelled))
        features = extractor.fit_transform(labelled, shared)
        found = _blaming_unlabelled(extractor.transform, others, 0) if any_others else None
    else:
        shared = together.shared(len(labelled), len(others))
        both = _blaming_unlabelled(_fitting(extractor, shared), labelled + others, len(labelled))
        features, found = both.take(slice(len(labelled))), both.take(slice(len(labelled), None))
    tokens = 0 if found is None else together.total(int(found.lengths.sum()))
    return extractor, features, found if tokens else None


def _fitting(
    extractor: FeatureExtractor, shared: SharedCorpus | None
) -> Callable[[list[Any]], TokenFeatures]:
    return lambda sentences: extractor.fit_transform(sentences, shared)


def check_vocabulary(vocabulary: Any) -> None:
    """ValueError on what names no vocabulary."""
    if vocabulary not in ("all", "labelled"):
        raise ValueError(f"vocabulary: expected one of ['all', 'labelled'], got {vocabulary!r}")


def _blaming_unlabelled(
    extract: Callable[[list[Any]], TokenFeatures], sentences: list[Any], labelled: int
) -> TokenFeatures:
    """What `extract` gives; its complaints about sentences that come after the labelled ones name
    them by their place among the unlabelled."""
    try:
        return extract(sentences)
    except ValueError as error:
        place = re.match(r"sentence (\d+)", str(error))
        if place is None or int(place[1]) < labelled:
            raise
        rest = str(error)[place.end() :]
        raise ValueError(f"unlabelled: sentence {int(place[1]) - labelled}{rest}") from None


# -------------------------------------------------------------------------------------------------
# From sentences and labels to what a search takes.


class Data(NamedTuple):
    """What `fit` was given; with several processes, the part of this one."""

    X: Iterable[Any]
    y: Sequence[Sequence[Label]]
    unlabelled: list[Any] | None
    vocabulary: Vocabulary
    sample_weight: Sequence[float] | None


class EncodingSettings(NamedTuple):
    """What of the estimator's parameters the data are read by."""

    new_extractor: Callable[[], FeatureExtractor]
    scheme: str | None
    transitions: bool


class Prepared(NamedTuple):
    """What a search takes, the features' extractor, and the seconds that features took."""

    problem: Problem
    spread: Spread
    extractor: FeatureExtractor
    seconds: float


def prepare(data: Data, settings: EncodingSettings, plan: Plan, together: Together) -> Prepared:
    """Features, labels and the weights that are to be learnt; ValueError on what makes no sense.

    With several processes all of them call this together, inside their guard.
    """
    began = time.perf_counter()
    extractor, features, others = read_both(
        settings.new_extractor,
        check_sentences(data.X),
        data.unlabelled,
        data.vocabulary,
        together,
    )
    seconds = time.perf_counter() - began
    if not together.total(len(features.lengths)):
        raise ValueError("X: expected at least one sentence, got none")
    flat = check_labels(data.y, features.lengths)
    classes = find_classes(flat, features.lengths, together)
    labels = encode_labels(flat, classes, features.lengths)
    legal = legal_by_scheme(classes, settings.scheme)
    check_paths_legal(labels, features.lengths, legal, classes)
    problem = Problem(
        features=features,
        labels=labels,
        classes=classes,
        attributes=extractor.attribute_count,
        edge_attributes=extractor.edge_attribute_count,
        transitions=settings.transitions,
        legal=legal,
        sentence_weights=check_sentence_weights(data.sample_weight, len(features.lengths)),
        unlabelled=others,
    )
    in_blocks = plan.mesh is not None and plan.mesh.devices.shape[1] > 1
    spread = make_spread(problem, plan.weights, together, in_blocks)
    return Prepared(problem, spread, extractor, seconds)
