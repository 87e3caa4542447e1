"""Samples come as often as they are probable."""

import jax
import numpy as np
import pytest

from jaxseq.lattice import sample
from tests.lattice.cases import SHARED, enumerate_chain, random_case

COUNT = 4000


def chi_square(observed: np.ndarray, expected: np.ndarray) -> tuple[float, float]:
    """The statistic over cells of expectation 5 and more (the rest is one cell), and its bound."""
    large = expected >= 5
    observed = np.append(observed[large], observed[~large].sum())
    expected = np.append(expected[large], expected[~large].sum())
    keep = expected > 0
    statistic = ((observed[keep] - expected[keep]) ** 2 / expected[keep]).sum()
    freedom = keep.sum() - 1
    # Mean, and five standard deviations, of the χ² distribution.
    return float(statistic), float(freedom + 5 * np.sqrt(2 * max(freedom, 1)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("seed", "length", "forbid"), [(0, 5, 0.0), (1, 3, 0.0), (5, 4, 0.25)])
def test_whole_paths_come_as_often_as_they_are_probable(seed, length, forbid, dtype):
    chain = random_case(SHARED, seed, length=length, forbid=forbid, dtype=dtype).chain
    table = enumerate_chain(chain)
    assert table.legal
    drawn = np.asarray(sample(chain, key=jax.random.key(seed), num=COUNT))
    assert drawn.shape == (COUNT, 5)
    observed = np.array([(drawn == path).all(1).sum() for path in table.paths])
    assert observed.sum() == COUNT, "something was drawn that is no labelling"
    assert not observed[table.probabilities == 0].any(), "something illegal was drawn"
    statistic, bound = chi_square(observed, COUNT * table.probabilities)
    assert statistic < bound

    frequencies = (drawn[:, :, None] == np.arange(3)).mean(0)
    error = 5 * np.sqrt(table.node_marginals() * (1 - table.node_marginals()) / COUNT) + 1e-12
    assert (np.abs(frequencies - table.node_marginals()) <= error).all()


def test_the_bound_would_notice():
    chain = random_case(SHARED, 0).chain
    table, other = enumerate_chain(chain), enumerate_chain(random_case(SHARED, 1).chain)
    drawn = np.asarray(sample(chain, key=jax.random.key(0), num=COUNT))
    observed = np.array([(drawn == path).all(1).sum() for path in table.paths])
    statistic, bound = chi_square(observed, COUNT * other.probabilities)
    assert statistic > 10 * bound


def test_more_samples_change_none_of_the_first():
    chain = random_case(SHARED, 3).chain
    few, many = (sample(chain, key=jax.random.key(1), num=num) for num in (6, 40))
    np.testing.assert_array_equal(many[:6], few)


def test_keys_decide():
    chain = random_case(SHARED, 3).chain
    first, again, other = (sample(chain, key=jax.random.key(k), num=40) for k in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (np.asarray(first) != np.asarray(other)).any()
    raw = sample(chain, key=jax.random.PRNGKey(0), num=40)
    np.testing.assert_array_equal(raw, first)


def test_no_samples():
    chain = random_case(SHARED, 3).chain
    assert sample(chain, key=jax.random.key(0), num=0).shape == (0, 5)


def test_vmap_over_keys_equals_a_loop():
    chain = random_case(SHARED, 3, length=4).chain
    keys = jax.random.split(jax.random.key(2), 3)
    together = jax.vmap(lambda key: sample(chain, key=key, num=6))(keys)
    for key, drawn in zip(keys, together):
        np.testing.assert_array_equal(drawn, sample(chain, key=key, num=6))
