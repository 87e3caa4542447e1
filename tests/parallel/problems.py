"""Small corpora that are drawn from a seed, and how far two results are apart."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxseq.crf import EncodedLabels, Spread, lay_out, make_shards
from jaxseq.hmm import word_corpus
from jaxseq.parallel import off_mesh
from jaxseq.text import TokenFeatures

ATTRIBUTES, LABELS, PAIRS, WORDS = 30, 5, 4, 11
ROW = 10
"""Slots of a row: one or two sentences."""


def draw_features(rng, sentences, *, values=False, pairs=False, longest=9):
    """Attributes of random sentences, some without a token."""
    lengths = rng.integers(0, longest, sentences).astype(np.int64)
    tokens = int(lengths.sum())
    ids = rng.integers(-1, ATTRIBUTES, (tokens, 3)).astype(np.int32)
    amounts = rng.normal(size=ids.shape).astype(np.float32) if values else None
    edges = None
    if pairs:
        edges = rng.integers(-1, PAIRS, (tokens, 2)).astype(np.int32)
        edges[(np.cumsum(lengths) - lengths)[lengths > 0]] = -1
    return TokenFeatures(ids, amounts, lengths, edges)


def draw_labels(rng, features, partial=False):
    """A label for every token; with `partial`, for some of them sets."""
    tokens = len(features.ids)
    gold, allowed = rng.integers(0, LABELS, tokens).astype(np.int32), None
    if partial:
        unsure = rng.random(tokens) < 0.4
        allowed = gold[:, None] == np.arange(LABELS)
        allowed[unsure] |= rng.random((int(unsure.sum()), LABELS)) < 0.5
        gold = np.where(allowed.sum(1) > 1, -1, gold).astype(np.int32)
    return EncodedLabels(gold, allowed)


def cut(features, labels, sentences):
    """The features and labels of some of the sentences."""
    ends = np.cumsum(features.lengths)
    tokens = [np.arange(ends[q] - features.lengths[q], ends[q]) for q in sentences]
    chosen = np.concatenate([*tokens, np.zeros(0, np.int64)])
    take = lambda array: None if array is None else array[chosen]  # noqa: E731
    part = TokenFeatures(
        take(features.ids),
        take(features.values),
        features.lengths[list(sentences)],
        take(features.edge_ids),
    )
    return part, None if labels is None else EncodedLabels(take(labels.gold), take(labels.allowed))


def shards_of(features, labels=None, count=1):
    """Shards, dealt out to so many places, in rows so short that each place has some."""
    arguments = () if labels is None else (labels,)
    layout = lay_out(features.lengths, count, width=ROW)
    return make_shards(layout, features, ATTRIBUTES, *arguments)


def draw_spread(rng, kind):
    """Which weights are learnt: dense, or some of them, or tied ones."""
    if kind == "dense":
        return Spread(attributes=ATTRIBUTES, labels=LABELS)
    if kind == "tied":
        groups = jnp.asarray([0, 1, 1, 0, 2], jnp.int32)
        return Spread(attributes=ATTRIBUTES, labels=LABELS, groups=groups, num_groups=3)
    rows = np.sort(rng.choice(ATTRIBUTES * 8, 90, replace=False))
    return Spread(
        attributes=ATTRIBUTES,
        labels=LABELS,
        places=jnp.asarray(rows[rows % 8 < LABELS], jnp.int32),
    )


def draw_point(rng, spread, pairs, dtype):
    """Parameters whose unused entries are 0, as those of a search are."""
    zeros = spread.zeros(PAIRS if pairs else 0, dtype)
    point = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), dtype), zeros)
    weights = point.weights
    if weights.ndim == 2:
        weights = weights.at[-1].set(0)
        if spread.groups is None:
            weights = weights.at[:, LABELS:].set(0)
    return point._replace(weights=weights)


def draw_words(rng, sequences, labelled=False, cores=1):
    """A corpus of word numbers; with `labelled`, some labels are known."""
    words = [rng.integers(0, WORDS, rng.integers(0, 8)) for _ in range(sequences)]
    labels = [np.where(rng.random(len(w)) < 0.3, w % LABELS, -1) for w in words]
    known = {"labels": labels, "num_labels": LABELS} if labelled else {}
    return word_corpus(words, WORDS, cores=cores, width=ROW, **known)


def distance(one, other):
    """The largest difference of two pytrees, by the size of the largest entry of each leaf."""
    one, other = (jax.tree.map(np.asarray, tree) for tree in (one, other))
    assert jax.tree.structure(one) == jax.tree.structure(other)
    found = 0.0
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other)):
        assert a.shape == b.shape, (a.shape, b.shape)
        assert np.isfinite(a).all()
        assert np.isfinite(b).all()
        if a.size:
            scale = max(float(np.abs(a).max()), 1e-3)
            found = max(found, float(np.abs(a.astype(float) - b.astype(float)).max()) / scale)
    return found


def differentiate(objective, point):
    """Value and gradient as they are without a mesh."""
    value, gradient = objective(point)
    return np.asarray(value), off_mesh(gradient)
