"""From sentences and labels to what a search takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from jaxseq.learn._parameters import Spread
from jaxseq.tagger._checks import check_sentence_weights, check_sentences
from jaxseq.tagger._labels import (
    Label,
    check_labels,
    check_paths_legal,
    encode_labels,
    find_classes,
    legal_by_scheme,
)
from jaxseq.tagger._plan import Plan
from jaxseq.tagger._problem import Problem, make_spread
from jaxseq.tagger._together import Together
from jaxseq.tagger._unlabelled import Vocabulary, read_both
from jaxseq.text import FeatureExtractor


class Data(NamedTuple):
    """What `fit` was given; with several processes, the part of this one."""

    X: Iterable[Any]
    y: Sequence[Sequence[Label]]
    unlabelled: list[Any] | None
    vocabulary: Vocabulary
    sample_weight: Sequence[float] | None


class Settings(NamedTuple):
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


def prepare(data: Data, settings: Settings, plan: Plan, together: Together) -> Prepared:
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
