"""Exact samples of labellings."""

from __future__ import annotations

from functools import partial
from typing import SupportsIndex

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key, UInt32

from jaxseq.chain._chain import Chain, as_count
from jaxseq.chain._decode import NO_LABEL
from jaxseq.chain._engines import ChainMethod, check_chain_method
from jaxseq.chain._marginals import chain_marginals
from jaxseq.chain._numerics import argmax
from jaxseq.chain._parallel import follow
from jaxseq.chain._propagate import conditionals


def sample(
    chain: Chain,
    *,
    key: Key[Array, ""] | UInt32[Array, "2"],
    num: SupportsIndex,
    method: ChainMethod = "auto",
) -> Int[Array, "num n"]:
    r"""Independent labellings drawn from :math:`p(y)`.

    The first label comes from its marginal, each further one from
    :math:`p(y_{t+1} \mid y_t)`. The randomness of position t in sample r depends on the key, t
    and r alone: padding a chain, or asking for more samples, changes none of the others. All
    methods draw with the same randomness: a key gives the same labels by each, but for the rare
    draw that hangs on the last bits of a probability.

    Args:
        chain: the scores.
        key: a JAX random key.
        num: how many samples, a Python integer.
        method: as in `log_partition`.

    Returns:
        labels [num, n]; −1 on padding, and throughout when no path is legal.

    Cost: O(n s²) once, O(n s) a sample; ``"parallel"`` in O(log n) steps, O(n s³) once, O(n s²) a
    sample.

    Example:
        >>> import jax, jax.numpy as jnp, jaxseq
        >>> chain = jaxseq.Chain(jnp.array([[0.0, -jnp.inf], [0.0, 0.0]]), jnp.zeros((2, 2)))
        >>> jaxseq.sample(chain, key=jax.random.key(0), num=100)[:, 0].max().item()
        0
    """
    check_chain_method(method)
    return _sample(chain, key, as_count("num", num, 0), method)


@partial(jax.jit, static_argnums=(2, 3))
def _sample(chain: Chain, key: Array, num: int, method: ChainMethod) -> Array:
    node_marginals, edge_marginals = lax.stop_gradient(chain_marginals(chain, method))
    _, forward = conditionals(edge_marginals)
    log_first, log_next = jnp.log(node_marginals[0]), jnp.log(forward)
    walk = _walk_in_parallel if method == "parallel" else _walk
    positions = jnp.arange(chain.num_positions)

    def noise(position, sample_key):
        position_key = jax.random.fold_in(sample_key, position)
        return jax.random.gumbel(position_key, (chain.num_labels,), chain.nodes.dtype)

    def draw(index):
        gumbel = jax.vmap(noise, (0, None))(positions, jax.random.fold_in(key, index))
        return walk(argmax(log_first + gumbel[0]), log_next, gumbel[1:])

    paths = jax.vmap(draw)(jnp.arange(num))
    return jnp.where((node_marginals > 0).any(1), paths, NO_LABEL)


def _walk(
    first: Int[Array, ""], log_next: Float[Array, "m s s"], noise: Float[Array, "m s"]
) -> Int[Array, " m+1"]:
    """One label after the other, each given the one before it."""

    def step(label, inputs):
        log_row, perturbation = inputs
        label = argmax(log_row[label] + perturbation)
        return label, label

    _, rest = lax.scan(step, first, (log_next, noise))
    return jnp.concatenate([first[None], rest])


def _walk_in_parallel(
    first: Int[Array, ""], log_next: Float[Array, "m s s"], noise: Float[Array, "m s"]
) -> Int[Array, " m+1"]:
    """With the noise drawn, each step is a function of the label before it: these are composed."""
    return follow(first, argmax(log_next + noise[:, None, :]))
