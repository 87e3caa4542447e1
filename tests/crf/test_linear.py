"""Sums of weights and their transpose, against products with dense matrices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.crf import padded_labels
from jaxseq.crf._model import UNROLLED, empty_table
from jaxseq.crf._model import spread_gradient as spread_gradient_eagerly
from jaxseq.crf._model import sum_weights as sum_weights_eagerly

sum_weights = jax.jit(sum_weights_eagerly)
spread_gradient = jax.jit(spread_gradient_eagerly, static_argnums=3)

TOKENS, ATTRIBUTES, LABELS = 6, 7, 3
SEEDS = st.integers(0, 2**32 - 1)
WIDTHS = [0, 1, 5, UNROLLED, UNROLLED + 3]


def draw(seed: int, k: int, with_values: bool):
    """A table, ids with absent ones, values or None; and the [tokens, attributes] matrix."""
    rng = np.random.default_rng(seed)
    table = np.zeros((ATTRIBUTES + 1, padded_labels(LABELS)))
    table[:-1, :LABELS] = rng.normal(size=(ATTRIBUTES, LABELS))
    ids = rng.integers(-1, ATTRIBUTES, (TOKENS, k))
    values = rng.normal(size=ids.shape) if with_values else None
    matrix = np.zeros((TOKENS, ATTRIBUTES))
    for token in range(TOKENS):
        for place in range(k):
            if ids[token, place] >= 0:
                matrix[token, ids[token, place]] += 1 if values is None else values[token, place]
    pointed = jnp.asarray(np.where(ids < 0, ATTRIBUTES, ids))  # the row of zeros
    return table, pointed, None if values is None else jnp.asarray(values), matrix


@pytest.mark.parametrize("with_values", [False, True])
@pytest.mark.parametrize("k", WIDTHS)
@given(seed=SEEDS)
def test_scores_are_a_product_with_the_table(k, with_values, seed):
    table, ids, values, matrix = draw(seed, k, with_values)
    scores = sum_weights(jnp.asarray(table), ids, values)
    np.testing.assert_allclose(scores, matrix @ table[:-1], atol=1e-12)


@pytest.mark.parametrize("with_values", [False, True])
@pytest.mark.parametrize("k", WIDTHS)
@given(seed=SEEDS)
def test_gradient_is_a_product_with_the_transpose(k, with_values, seed):
    table, ids, values, matrix = draw(seed, k, with_values)
    by_token = np.random.default_rng([seed, 1]).normal(size=(TOKENS, table.shape[1]))
    found = spread_gradient(jnp.asarray(by_token), ids, values, ATTRIBUTES)
    np.testing.assert_allclose(found[:-1], matrix.T @ by_token, atol=1e-12)
    np.testing.assert_array_equal(found[-1], 0)
    # ⟨A W, G⟩ = ⟨W, Aᵀ G⟩
    forth = jnp.vdot(sum_weights(jnp.asarray(table), ids, values), by_token)
    np.testing.assert_allclose(forth, jnp.vdot(table, found), atol=1e-10)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_dtype_is_that_of_the_table(dtype):
    _, ids, values, _ = draw(0, UNROLLED + 1, True)
    values = values.astype(dtype)
    scores = sum_weights(empty_table(ATTRIBUTES, LABELS, dtype), ids, values)
    assert scores.dtype == dtype
    assert spread_gradient(scores, ids, values, ATTRIBUTES).dtype == dtype


@pytest.mark.parametrize(("labels", "width"), [(1, 8), (8, 8), (9, 16), (22, 24)])
def test_tables_are_padded_to_eights_and_have_a_row_more(labels, width):
    assert empty_table(4, labels).shape == (5, width)
