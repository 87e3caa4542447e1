import jax
import jax.numpy as jnp
import pytest

from experiments._programs import MAPS, forget_programs


def test_programs_are_forgotten_only_where_there_are_many():
    traced = []

    @jax.jit
    def double(x):
        traced.append(x)
        return 2 * x

    assert double(jnp.ones(3)).tolist() == [2, 2, 2]
    assert not forget_programs(most=10**9)
    double(jnp.ones(3))
    assert len(traced) == 1
    if not MAPS.exists():
        pytest.skip("mappings of memory can be counted on Linux alone")
    assert forget_programs(most=0)
    assert double(jnp.ones(3)).tolist() == [2, 2, 2]
    assert len(traced) == 2
