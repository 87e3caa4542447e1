"""Features of labelled and unlabelled sentences, from one vocabulary."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal

from jaxseq.text import FeatureExtractor, TokenFeatures

Vocabulary = Literal["all", "labelled"]


def read_both(
    new_extractor: Callable[[], FeatureExtractor],
    X: Iterable[Any],
    unlabelled: Iterable[Any] | None,
    vocabulary: Vocabulary,
) -> tuple[FeatureExtractor, TokenFeatures, TokenFeatures | None]:
    """Extractor, features of the labelled sentences, and those of the others.

    The last is None where there is no unlabelled token at all.
    """
    check_vocabulary(vocabulary)
    extractor = new_extractor()
    if unlabelled is None:
        return extractor, extractor.fit_transform(X), None
    labelled, others = list(X), check_unlabelled(unlabelled)
    if vocabulary == "labelled" or not others:
        features = extractor.fit_transform(labelled)
        found = _blaming_unlabelled(extractor.transform, others, 0) if others else None
    else:
        both = _blaming_unlabelled(extractor.fit_transform, labelled + others, len(labelled))
        features, found = _split(both, len(labelled))
    return extractor, features, found if found is not None and found.lengths.sum() else None


def check_vocabulary(vocabulary: Any) -> None:
    """ValueError on what names no vocabulary."""
    if vocabulary not in ("all", "labelled"):
        raise ValueError(f"vocabulary: expected one of ['all', 'labelled'], got {vocabulary!r}")


def check_unlabelled(unlabelled: Any) -> list[Any]:
    """The sentences as a list; ValueError on what is none."""
    if isinstance(unlabelled, str | bytes) or not isinstance(unlabelled, Iterable):
        raise ValueError(f"unlabelled: expected sentences, got {unlabelled!r:.60}")
    return list(unlabelled)


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


def _split(features: TokenFeatures, count: int) -> tuple[TokenFeatures, TokenFeatures]:
    """The first `count` sentences, and the others."""
    tokens = int(features.lengths[:count].sum())

    def part(sentences: slice, chosen: slice) -> TokenFeatures:
        arrays = {
            name: None if getattr(features, name) is None else getattr(features, name)[chosen]
            for name in ("ids", "values", "edge_ids")
        }
        return replace(features, lengths=features.lengths[sentences], **arrays)

    return part(slice(count), slice(tokens)), part(slice(count, None), slice(tokens, None))
