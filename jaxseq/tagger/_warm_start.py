"""The weights of one tagger in the places of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jaxseq.models._crf import CRF
from jaxseq.text import FeatureExtractor

if TYPE_CHECKING:
    from jaxseq.tagger._tagger import CRFTagger


def carry_over(old: CRFTagger, extractor: FeatureExtractor, classes: list[str]) -> CRF:
    """A model for new attributes and labels, with the old weights where names agree, else 0."""
    old_classes = old.classes_.tolist()
    shared = [label for label in classes if label in old_classes]
    new_labels = np.array([classes.index(label) for label in shared], np.int64)
    old_labels = np.array([old_classes.index(label) for label in shared], np.int64)
    s, model = len(classes), old.model_
    dtype = np.asarray(model.transitions).dtype

    def carry(old_names, new_names, old_values, shape):
        place = {name: index for index, name in enumerate(old_names)}
        pairs = [(new, place[name]) for new, name in enumerate(new_names) if name in place]
        values = np.zeros((len(new_names), *shape), dtype)
        if pairs:
            new_rows, old_rows = (np.array(rows) for rows in zip(*pairs))
            block = np.asarray(old_values)[old_rows]
            for axis in range(1, block.ndim):
                block = np.take(block, old_labels, axis)
            values[np.ix_(new_rows, *[new_labels] * len(shape))] = block
        return values

    def among_labels(scores):
        found = np.zeros([s] * np.ndim(scores), dtype)
        block = np.asarray(scores)[np.ix_(*[old_labels] * np.ndim(scores))]
        found[np.ix_(*[new_labels] * np.ndim(scores))] = np.where(np.isneginf(block), 0, block)
        return found

    weights = carry(
        old.extractor_.attribute_names(), extractor.attribute_names(), model.weights, (s,)
    )
    pairs = None
    if extractor.edge_attribute_count:
        old_values = np.zeros((0, len(old_classes), len(old_classes)), dtype)
        old_values = old_values if model.edge_weights is None else model.edge_weights
        names = old.extractor_.edge_attribute_names() if model.edge_weights is not None else []
        pairs = carry(names, extractor.edge_attribute_names(), old_values, (s, s))
    transitions, start, stop = (
        among_labels(array) for array in (model.transitions, model.start, model.stop)
    )
    return CRF(weights, transitions, start, stop, pairs)
