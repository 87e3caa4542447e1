"""Stored extractors of any kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxseq.text import _extractor_dicts, _extractor_templates
from jaxseq.text._extractor import FeatureExtractor
from jaxseq.text._extractor_dicts import DictExtractor
from jaxseq.text._extractor_templates import TemplateExtractor

_KINDS: dict[str, type[FeatureExtractor]] = {
    _extractor_templates.KIND: TemplateExtractor,
    _extractor_dicts.KIND: DictExtractor,
}


def extractor_from_state(meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> FeatureExtractor:
    """The extractor that a `FeatureExtractor.state` describes, of whatever class it was.

    Args:
        meta: the first half of the state; ``meta["kind"]`` says which class it is.
        arrays: the second half.

    Returns:
        An extractor with its vocabulary, equal in all its answers to the one stored.

    Raises:
        ValueError: on a state that is not sound: types, shapes, order or ranges.

    Example:
        >>> extractor = TemplateExtractor(["word[0]"])
        >>> _ = extractor.fit_transform([["the", "dog"]])
        >>> extractor_from_state(*extractor.state()).transform([["dog"]]).ids.tolist()
        [[1]]
    """
    kind = meta.get("kind") if isinstance(meta, Mapping) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"state, kind: expected one of {sorted(_KINDS)}, found {kind!r:.80}")
    return _KINDS[kind].from_state(meta, arrays)
