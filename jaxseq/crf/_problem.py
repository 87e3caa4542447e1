"""The data of a training: sentences and labels as numbers, from one vocabulary."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from jaxseq.expectations import EncodedExpectations
from jaxseq.parallel import Devices
from jaxseq.taggers import (
    EncodedLabels,
    Label,
    Legal,
    check_labels,
    check_paths_legal,
    check_sentence_weights,
    check_unlabelled,
    encode_labels,
    find_classes,
    legal_by_scheme,
)
from jaxseq.text import FeatureExtractor, SharedCorpus, TokenFeatures

Vocabulary = Literal["all", "labelled"]
"""The sentences that attributes are taken from."""


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
    expectations: EncodedExpectations | None = None

    def label_counts(self, devices: Devices) -> np.ndarray:
        """How often each label is known in all processes."""
        gold = self.labels.gold
        return devices.sum(np.bincount(gold[gold >= 0], minlength=len(self.classes)))

    def labelled_tokens(self, devices: Devices | None = None) -> float:
        """How many tokens something is known of, by the weights of their sentences.

        Args:
            devices: the processes, if there are several: those of all are counted.
        """
        known = np.ones(len(self.labels.gold), bool)
        if self.labels.allowed is not None:
            known = ~self.labels.allowed.all(1)
        if self.sentence_weights is not None:
            known = known * np.repeat(self.sentence_weights, self.features.lengths)
        return float((devices or Devices.alone()).sum(np.array([known.sum()], np.float64))[0])


def encode_problem(
    extractor: FeatureExtractor,
    features: TokenFeatures,
    unlabelled: TokenFeatures | None,
    y: Sequence[Sequence[Label]],
    *,
    scheme: str | None,
    transitions: bool,
    classes: Collection[str] | None = None,
    sample_weight: Sequence[float] | None = None,
    devices: Devices | None = None,
) -> Problem:
    """Labels as numbers, with the features that go with them; ValueError if they make no sense.

    Args:
        extractor: that the features are of.
        features: of the labelled sentences; with several processes, of this one's.
        unlabelled: features of the unlabelled ones, or None.
        y: labels of the first.
        scheme: of `CRFTagger`: which label sequences are legal.
        transitions: whether transitions are learnt.
        classes: all labels; None for those of y.
        sample_weight: how much each labelled sentence counts.
        devices: the processes, if there are several.
    """
    devices = devices or Devices.alone()
    lengths = features.lengths
    if not devices.total(len(lengths)):
        raise ValueError("X: expected at least one sentence, got none")
    flat = check_labels(y, lengths)
    # Of all processes: labels must have one number.
    names = find_classes(flat, lengths, devices, classes)
    labels = encode_labels(flat, names, lengths)
    legal = legal_by_scheme(names, scheme)
    check_paths_legal(labels, lengths, legal, names)  # else the loss would be infinite
    return Problem(
        features=features,
        labels=labels,
        classes=names,
        attributes=extractor.attribute_count,
        edge_attributes=extractor.edge_attribute_count,
        transitions=transitions,
        legal=legal,
        sentence_weights=check_sentence_weights(sample_weight, len(lengths)),
        unlabelled=unlabelled,
    )


def read_both(
    extractor: FeatureExtractor,
    X: Iterable[Any],
    unlabelled: Iterable[Any] | None,
    vocabulary: Vocabulary,
    devices: Devices | None = None,
) -> tuple[TokenFeatures, TokenFeatures | None]:
    """Features of the labelled sentences, and those of the unlabelled ones.

    The last is None where there is no unlabelled token at all. With several processes the sentences
    are those of this one, and the vocabulary that of all.

    Args:
        extractor: which is given its vocabulary here.
        X: labelled sentences.
        unlabelled: further sentences, or None.
        vocabulary: the sentences that attributes are taken from.
        devices: the processes, if there are several.
    """
    check_vocabulary(vocabulary)
    devices = devices or Devices.alone()
    labelled = list(X)
    more = [] if unlabelled is None else check_unlabelled(unlabelled)
    count = len(labelled)
    # Of all processes, since each of them has to call the same methods of its extractor.
    any_more = devices.total(len(more)) > 0
    if vocabulary == "labelled" or not any_more:
        features = extractor.fit_transform(labelled, share_corpus(devices, count))
        if not any_more:
            return features, None
        other_features = _blaming_unlabelled(extractor.transform, more, 0)
    else:
        # Together, so that attributes are counted, and numbered, over both kinds of sentences.
        shared = share_corpus(devices, count, len(more))
        both = _blaming_unlabelled(
            lambda sentences: extractor.fit_transform(sentences, shared), labelled + more, count
        )
        features, other_features = both.take(slice(count)), both.take(slice(count, None))
    # Sentences without a token have no entropy: None spares a stage that would change nothing.
    tokens = devices.total(int(other_features.lengths.sum()))
    return features, other_features if tokens else None


def share_corpus(devices: Devices, *counts: int) -> SharedCorpus | None:
    """How processes agree on one vocabulary, for so many sentences of this one; None for one alone.

    Args:
        devices: the processes.
        counts: labelled sentences, and perhaps the unlabelled ones that come after them.
    """
    if devices.is_alone:
        return None
    return SharedCorpus(devices.peers.gather, devices.sentence_places(*counts))


def check_vocabulary(vocabulary: Any) -> None:
    """ValueError unless it names a vocabulary."""
    if vocabulary not in ("all", "labelled"):
        raise ValueError(f"vocabulary: expected one of ['all', 'labelled'], got {vocabulary!r}")


def _blaming_unlabelled(
    extract: Callable[[list[Any]], TokenFeatures], sentences: list[Any], labelled: int
) -> TokenFeatures:
    """The features; complaints about sentences that come after the labelled ones name them by their
    place among the unlabelled."""
    try:
        return extract(sentences)
    except ValueError as error:
        place = re.match(r"sentence (\d+)", str(error))
        if place is None or int(place[1]) < labelled:
            raise  # it is about X, which the user can find by the number
        complaint = str(error)[place.end() :]
        number = int(place[1]) - labelled
        raise ValueError(f"unlabelled: sentence {number}{complaint}") from None
