"""More labels for active learning that is under way."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxseq.models._crf import CRF
from jaxseq.tagger._active_replay import Run
from jaxseq.tagger._labels import legal_by_scheme
from jaxseq.tagger._tagger import CRFTagger


def check_new_labels(names: Any, classes: list[str]) -> list[str]:
    """The names in order, each once; ValueError unless they are labels that are not there yet."""
    plain = isinstance(names, Iterable) and not isinstance(names, str | bytes)
    found = list(names) if plain else []
    if not found or not all(isinstance(name, str) and name for name in found):
        raise ValueError(f"names: expected labels, strings, at least one, got {names!r:.80}")
    there = [name for name in found if name in classes]
    if there:
        raise ValueError(f"names: expected labels that are not known yet, got {there[0]!r:.60}")
    return sorted({str(name) for name in found})


def add_to_run(run: Run, names: list[str], estimator: CRFTagger) -> None:
    """Give a run more labels: what is known of its tokens stays, and so does its model.

    Args:
        run: to change. names: of `check_new_labels`. estimator: whose scheme and weights it has.
    """
    classes = sorted([*run.pool.classes, *names])
    run.pool = replace(run.pool, classes=classes, legal=legal_by_scheme(classes, estimator.scheme))
    run.known = run.known.with_classes(classes, run.pool.legal)
    run.look = None  # its labels are numbers
    if run.tagger is not None:
        run.tagger = with_labels(run.tagger, classes)


def with_labels(tagger: CRFTagger, classes: list[str]) -> CRFTagger:
    """A tagger of more labels that says the same: the new ones are forbidden, and weigh nothing.

    A search that starts from it starts with all of them allowed.

    Args:
        tagger: trained. classes: all labels, sorted, with those of the tagger among them.
    """
    known = tagger.classes_.tolist()
    if classes == known:
        return tagger
    old = np.array([classes.index(name) for name in known])
    model, s = tagger.model_, len(classes)

    def spread(array: Any, axes: tuple[int, ...], rest: float) -> np.ndarray:
        array = np.asarray(array)
        shape = [s if axis in axes else size for axis, size in enumerate(array.shape)]
        wide = np.full(shape, rest, array.dtype)
        wide[np.ix_(*(old if a in axes else np.arange(n) for a, n in enumerate(array.shape)))] = (
            array
        )
        return wide

    weights = spread(model.weights, (1,), 0.0)
    if tagger.weights == "tied":
        for column, name in enumerate(classes):
            like = [k for k in known if _type(k) == _type(name)]
            if name not in known and like:  # the weights of the type that it shares
                weights[:, column] = weights[:, classes.index(like[0])]
    pairs = model.edge_weights
    wide = copy.copy(tagger)
    wide._take(
        CRF(
            weights,
            spread(model.transitions, (0, 1), -jnp.inf),
            spread(model.start, (0,), -jnp.inf),
            spread(model.stop, (0,), -jnp.inf),
            None if pairs is None else spread(pairs, (1, 2), 0.0),
        ),
        classes,
        tagger.extractor_,
    )
    return wide


def _type(label: str) -> str:
    return label.partition("-")[2] or label
