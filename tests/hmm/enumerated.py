"""An HMM on a small corpus by brute force: every labelling of every sequence, its events counted.
Shares no code with the package beyond the containers of its input."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from jaxseq.hmm import Multinomials, word_corpus

LABELS, WORDS, WIDTH = 3, 4, 5
LENGTHS = (3, 0, 1, 5, 2, 1, 0, 4)
SEEDS = st.integers(0, 2**32 - 1)


def draw_weights(seed: int, *, labels=LABELS, words=WORDS, zeros=0.0, dtype=np.float64):
    """Parameters that are not normalised, a share of them 0."""
    rng = np.random.default_rng([seed, 1])
    shapes = [(labels,), (labels, labels), (words, labels)]
    weights = [rng.gamma(1.0, size=shape) + 1e-3 for shape in shapes]
    weights = [array * (rng.random(array.shape) >= zeros) for array in weights]
    return Multinomials(*(jnp.asarray(array, dtype) for array in weights))


def draw_sequences(seed: int, lengths=LENGTHS, words=WORDS) -> list[np.ndarray]:
    """Words of sequences that have the same lengths for every seed: nothing is compiled twice."""
    rng = np.random.default_rng([seed, 2])
    return [rng.integers(words, size=n) for n in lengths]


def draw_labels(seed: int, *, partial=False):
    """Which labels each token may have, [n, s]; and the same as `word_corpus` wants it."""
    rng = np.random.default_rng([seed, 3])
    possible, given_labels = [], []
    for n in LENGTHS:
        gold = rng.integers(LABELS, size=n)
        kinds = rng.integers(3, size=n) if partial else np.zeros(n, int)
        is_gold = gold[:, None] == np.arange(LABELS)
        # One label, any but one, or any.
        mask = np.where((kinds == 0)[:, None], is_gold, ~is_gold | (kinds == 2)[:, None])
        possible.append(mask)
        given_labels.append(mask if partial else gold)
    return possible, given_labels


def make_corpus(seed: int, *, labelled: str = "", cores=1, width=WIDTH):
    """The sequences of `draw_sequences` with the labels of `draw_labels`, all, some or none."""
    labels = draw_labels(seed, partial=labelled == "partial")[1] if labelled else None
    return word_corpus(
        draw_sequences(seed), WORDS, labels=labels, num_labels=LABELS, cores=cores, width=width
    )


def normalised(weights) -> list[np.ndarray]:
    """Multinomials divided by their sums, those of zeros left alone."""
    arrays = [np.asarray(array, float) for array in weights]
    sums = [array.sum(axis, keepdims=True) for array, axis in zip(arrays, (0, 1, 0))]
    return [array / np.where(total > 0, total, 1) for array, total in zip(arrays, sums)]


def all_labellings(weights, words, possible=None) -> tuple[np.ndarray, np.ndarray]:
    """Of one sequence: P(x, y) of every labelling y [q], and its counts, flat, [q, s + s² + v s].

    `possible` excludes labellings; those have probability 0.
    """
    initial, transition, emission = normalised(weights)
    s, n = len(initial), len(words)
    paths = np.indices((s,) * n).reshape(n, -1).T
    probability = initial[paths[:, 0]] * emission[words, paths].prod(1)
    probability = probability * transition[paths[:, :-1], paths[:, 1:]].prod(1)
    if possible is not None:
        probability = probability * np.asarray(possible)[np.arange(n), paths].all(1)
    events = np.zeros((len(paths), s + s * s + emission.size))
    row = np.arange(len(paths))
    events[row, paths[:, 0]] += 1
    for t, word in enumerate(words):
        events[row, s + s * s + word * s + paths[:, t]] += 1
        if t:
            events[row, s + paths[:, t - 1] * s + paths[:, t]] += 1
    return probability, events


def flat(tree) -> np.ndarray:
    """The families one after another, row by row."""
    return np.concatenate([np.asarray(leaf).ravel() for leaf in tree])


def unflatten(values: np.ndarray, like) -> list[np.ndarray]:
    """The families of a flat vector."""
    ends = np.cumsum([np.size(family) for family in like])[:-1]
    return [part.reshape(np.shape(f)) for part, f in zip(np.split(values, ends), like)]


def brute_force(weights, sequences, possible=None, *, best=False):
    """Sums of counts, expected or of the best labelling, and of log-likelihoods."""
    total, log_likelihood = np.zeros(sum(np.size(family) for family in weights)), 0.0
    for q, words in enumerate(sequences):
        if len(words) == 0:
            continue
        mass, events = all_labellings(weights, words, None if possible is None else possible[q])
        if best:
            mass = np.where(np.arange(len(mass)) == mass.argmax(), mass, 0)
        with np.errstate(divide="ignore"):
            log_likelihood += np.log(mass.sum())
        if mass.sum() > 0:
            total += mass / mass.sum() @ events
    return unflatten(total, weights), log_likelihood


def assert_counts(found, expected, tolerance):
    """The same families, within a tolerance."""
    for name, here, there in zip(Multinomials._fields, found, expected):
        assert np.shape(here) == np.shape(there), name
        np.testing.assert_allclose(here, there, rtol=tolerance, atol=tolerance, err_msg=name)
