"""log P(Y_L | x) at its limits: all labels known, none, and sets in between.

That it equals enumeration, gradient included, is in `test_objective`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.crf import EncodedLabels, Objective, lay_out, make_shards
from tests.crf import enumerated
from tests.crf.enumerated import ATTRIBUTES, LABELS, draw_corpus
from tests.crf.test_objective import draw_point, expected_gradient, make_spread

SEEDS = st.integers(0, 2**32 - 1)
ANYTHING = set(range(LABELS))


def evaluate(corpus, labels: EncodedLabels, seed: int):
    point, _ = draw_point("dense", corpus, seed)
    layout = lay_out(corpus.features.lengths, 2, width=5)
    shards = make_shards(layout, corpus.features, ATTRIBUTES, labels, corpus.weights)
    return Objective(shards, make_spread("dense", corpus), 0.0)(point)


@given(SEEDS)
def test_full_labels_as_sets_give_the_supervised_likelihood(seed):
    corpus = draw_corpus(seed)
    plain = corpus.labels()
    assert plain.allowed is None
    sets = EncodedLabels(plain.gold, plain.gold[:, None] == np.arange(LABELS))
    wanted, found = evaluate(corpus, plain, seed), evaluate(corpus, sets, seed)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), wanted, found)


@given(SEEDS)
def test_no_labels_give_nothing_and_no_gradient(seed):
    corpus = draw_corpus(seed)
    nothing = np.ones((len(corpus.known), LABELS), bool)
    value, gradient = evaluate(
        corpus, EncodedLabels(np.full(len(nothing), -1, np.int32), nothing), seed
    )
    assert float(value) == 0
    assert all(not jnp.any(leaf) for leaf in jax.tree.leaves(gradient))


@given(SEEDS)
def test_only_what_is_known_counts_and_unlabelled_sentences_add_nothing(seed):
    """A few known tokens and sets in some sentences; the others might as well not be there."""
    rng = np.random.default_rng([seed, 2])
    corpus = draw_corpus(seed)
    chosen = [0, 3]  # sentences with a label
    for number, sentence in enumerate(corpus.sentences()):
        for token in range(sentence.start, sentence.stop):
            label = int(rng.integers(LABELS))
            kinds = [ANYTHING, {label}, ANYTHING - {label}]
            corpus.known[token] = kinds[rng.integers(3)] if number in chosen else ANYTHING
    corpus.known[corpus.sentences()[0].start] = {1}
    point, theta = draw_point("dense", corpus, seed)
    value, gradient = evaluate(corpus, corpus.labels(), seed)
    by_hand, by_theta = enumerated.loss_and_gradient(corpus, theta)
    np.testing.assert_allclose(float(value), by_hand, rtol=1e-9, atol=1e-9)
    wanted = expected_gradient("dense", corpus, point, by_theta, 0.0)
    for got, want in zip(gradient, wanted):
        if want is not None:
            np.testing.assert_allclose(got, want, atol=1e-9)
    only = np.where(np.isin(np.arange(len(corpus.weights)), chosen), corpus.weights, 0)
    without = evaluate(
        enumerated.Corpus(corpus.features, corpus.known, only), corpus.labels(), seed
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), (value, gradient), without
    )
