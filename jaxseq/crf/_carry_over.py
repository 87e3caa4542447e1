"""The weights of one tagger in the places of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from jaxseq.crf._model import CRF
from jaxseq.text import FeatureExtractor

if TYPE_CHECKING:
    from jaxseq.crf._tagger import CRFTagger


def carry_over(old: CRFTagger, extractor: FeatureExtractor, classes: list[str]) -> CRF:
    """A model for new attributes and labels, with the old weights where names agree, else 0.

    Args:
        old: a trained tagger.
        extractor: of the new attributes.
        classes: the new labels.

    """
    check_is_fitted(old, "model_")
    old_classes = old.classes_.tolist()
    shared = [label for label in classes if label in old_classes]
    new_labels = np.array([classes.index(label) for label in shared], np.int64)
    old_labels = np.array([old_classes.index(label) for label in shared], np.int64)
    s, model = len(classes), old.model_
    dtype = np.asarray(model.transitions).dtype

    # Attributes and labels are matched by name: the numbers of two taggers have nothing in common.

    def carry(old_names: list[str], new_names: list[str], old_values: Any, labels: int) -> Any:
        """Rows by their names, the axes after the first by labels."""
        place = {name: index for index, name in enumerate(old_names)}
        pairs = [(new, place[name]) for new, name in enumerate(new_names) if name in place]
        values = np.zeros((len(new_names), *[s] * labels), dtype)
        if pairs:
            new_rows, old_rows = (np.array(rows) for rows in zip(*pairs))
            block = np.asarray(old_values)[old_rows]
            for axis in range(1, block.ndim):  # the label axes: one of weights, two of pairs
                block = np.take(block, old_labels, axis)
            values[np.ix_(new_rows, *[new_labels] * labels)] = block
        return values

    def among_labels(scores: Any) -> np.ndarray:
        values = np.zeros([s] * np.ndim(scores), dtype)
        block = np.asarray(scores)[np.ix_(*[old_labels] * np.ndim(scores))]
        # What was forbidden under the old scheme says nothing about the new one.
        values[np.ix_(*[new_labels] * np.ndim(scores))] = np.where(np.isneginf(block), 0, block)
        return values

    names = (old.extractor_.attribute_names(), extractor.attribute_names())
    weights, pairs = carry(*names, model.weights, 1), None
    if extractor.edge_attribute_count:
        # The older tagger may have had templates without attributes of pairs.
        has_pairs = model.edge_weights is not None
        old_names = old.extractor_.edge_attribute_names() if has_pairs else []
        pairs = carry(old_names, extractor.edge_attribute_names(), model.edge_weights, 2)
    transitions, start, stop = map(among_labels, (model.transitions, model.start, model.stop))
    return CRF(weights, transitions, start, stop, pairs)
