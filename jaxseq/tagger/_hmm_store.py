"""Hidden Markov models on disk: what `jaxseq.tagger._store` writes of one, and makes of it."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxseq.learn._em_vocabulary import WordVocabulary
from jaxseq.models._hmm import EVENT_AXES, HMM, Multinomials
from jaxseq.tagger._hmm_plan import check_hmm_settings
from jaxseq.tagger._hmm_tagger import HMMTagger
from jaxseq.tagger._store import check_numbers, check_stored_labels, finite, settings_to_keep
from jaxseq.text._vocabulary import StringTable

KIND = "hmm"
WORDS = "words"
LARGEST_DEVIATION = 1e-3
"""Of the sum of probabilities from 1, in single precision and for any number of words."""


def describe_hmm(tagger: HMMTagger) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What to write: entries of the JSON file, and arrays."""
    arrays = StringTable(tagger.vocabulary_.words).to_arrays(WORDS)
    for name, family in tagger.model_.probabilities._asdict().items():
        arrays[name] = np.ascontiguousarray(family)
    settings = settings_to_keep(tagger)
    about: dict[str, Any] = {
        "kind": KIND,
        "labels": tagger.classes_.tolist(),
        "settings": {
            **settings,
            "frozen": list(settings["frozen"]),
            "classes": None if tagger.classes is None else [str(one) for one in tagger.classes],
        },
        "training": {
            "loss": finite(getattr(tagger, "loss_", None)),
            "log_likelihood": finite(getattr(tagger, "log_likelihood_", None)),
            "outcome": getattr(tagger, "outcome_", None),
            "iterations": getattr(tagger, "n_iter_", None),
        },
    }
    return about, arrays


def build_hmm(about: dict[str, Any], arrays: dict[str, np.ndarray]) -> HMMTagger:
    """The tagger; ValueError, or an error of a missing entry, where that is not one."""
    settings = dict(about["settings"])
    settings["frozen"] = tuple(settings["frozen"])
    if settings.get("classes") is not None:
        settings["classes"] = tuple(settings["classes"])
    tagger = HMMTagger(**settings)
    check_hmm_settings(tagger)
    labels = check_stored_labels(about["labels"])
    words = StringTable.from_arrays(arrays, WORDS).strings
    vocabulary = WordVocabulary([words], min_count=1)
    model = _model_of(arrays, len(labels), vocabulary)
    tagger._take(model, labels, vocabulary)
    training = about["training"]
    tagger.loss_, tagger.log_likelihood_ = training["loss"], training["log_likelihood"]
    tagger.outcome_, tagger.n_iter_ = training["outcome"], training["iterations"]
    return tagger


def _model_of(arrays: dict[str, np.ndarray], labels: int, vocabulary: WordVocabulary) -> HMM:
    shapes = Multinomials((labels,), (labels, labels), (len(vocabulary), labels))  # pyright: ignore
    found = {name: arrays[name] for name in Multinomials._fields}
    check_numbers(found)
    for (name, array), shape, axis in zip(found.items(), shapes, EVENT_AXES):
        if array.shape != shape:
            raise ValueError(f"{name}: expected shape {list(shape)}, got {list(array.shape)}")
        sums = array.sum(axis, dtype=np.float64)
        sound = (np.abs(sums - 1) < LARGEST_DEVIATION) | (sums == 0)
        if (array < 0).any() or not sound.all():
            raise ValueError(f"{name}: expected probabilities, whose sums are 1 or all of them 0")
    model = HMM(**found, unknown=vocabulary.unknown)
    # To the bit what was stored: normalising again changes last digits.
    exact = Multinomials(**{name: jnp.asarray(array) for name, array in found.items()})
    return eqx.tree_at(lambda hmm: hmm.probabilities, model, exact)
