"""One training by several derivations of the gradient: equal results, other times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import jax
import numpy as np
from sklearn.base import clone

import jaxseq
from experiments.jiao2006._settings import AS_PUBLISHED
from jaxseq.text import Sentence

DERIVATIONS = ("mann", "jiao")


def compare_gradients(
    tagger: jaxseq.CRFTagger, labelled: Sequence[Sentence], unlabelled: Sequence[Sentence]
) -> dict[str, Any]:
    """Train from one supervised model by each derivation.

    Args:
        tagger: its settings: float64, so that the trainings stay together to the last digits, and
            one core, as the times are of one.
        labelled: sentences with labels.
        unlabelled: sentences without.

    Returns:
        Sizes; for each derivation the iterations, the largest difference of a weight from Mann's
        (rounded up to a power of ten, since the last digits are the machine's own), whether all
        labels of the unlabelled sentences are the same, and seconds of one evaluation.
    """
    labels = [sentence["label"] for sentence in labelled]
    with jax.enable_x64(True):
        supervised = _new(tagger).fit(labelled, labels)
        trained = {
            name: _new(tagger).fit(
                labelled,
                labels,
                unlabelled=unlabelled,
                entropy_weight=1.0,
                entropy_gradient=name,
                warm_start_from=supervised,
                **AS_PUBLISHED,
            )
            for name in DERIVATIONS
        }
        predicted = {name: one.predict(unlabelled) for name, one in trained.items()}
    reference = np.asarray(trained["mann"].model_.weights)
    runs = {}
    for name, one in trained.items():
        gap = float(np.abs(np.asarray(one.model_.weights) - reference).max())
        runs[name] = {
            "iterations": one.n_iter_,
            "weights_differ_below": 10.0 ** int(np.ceil(np.log10(max(gap, 1e-17)))),
            "same_labels": predicted[name] == predicted["mann"],
            "seconds": one.seconds_["evaluations"] / max(1, one.n_evaluations_ - 1),
        }
    return {
        "labelled_words": sum(map(len, labelled)),
        "unlabelled_words": sum(map(len, unlabelled)),
        "longest": max(map(len, unlabelled)),
        "runs": runs,
    }


def _new(tagger: jaxseq.CRFTagger) -> jaxseq.CRFTagger:
    return cast(jaxseq.CRFTagger, clone(tagger))
