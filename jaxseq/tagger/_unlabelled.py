"""Features of labelled and unlabelled sentences, from one vocabulary."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal

from jaxseq.tagger._together import Together
from jaxseq.text import FeatureExtractor, SharedCorpus, TokenFeatures

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
        features, found = _split(both, len(labelled))
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
