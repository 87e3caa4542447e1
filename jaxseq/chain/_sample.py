"""Exact samples of labellings."""

from __future__ import annotations

from functools import partial
from typing import SupportsIndex

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int, Key, UInt32

from jaxseq.chain._chain import Chain, as_count
from jaxseq.chain._decode import NO_LABEL, argmax
from jaxseq.chain._engines import Method, check_method
from jaxseq.chain._marginals import chain_marginals
from jaxseq.chain._propagate import conditionals


def sample(
    chain: Chain,
    *,
    key: Key[Array, ""] | UInt32[Array, "2"],
    num: SupportsIndex,
    method: Method = "auto",
) -> Int[Array, "num n"]:
    r"""Independent labellings drawn from :math:`p(y)`.

    The first label comes from its marginal, each further one from
    :math:`p(y_{t+1} \mid y_t)`. The randomness of position t in sample r depends on the key, t
    and r alone: padding a chain, or asking for more samples, changes none of the others.

    Args:
        chain: the scores.
        key: a JAX random key.
        num: how many samples, a Python integer.
        method: as in `log_partition`.

    Returns:
        labels [num, n]; −1 on padding, and throughout when no path is legal.

    Cost: O(n s²) once, O(n s) a sample.

    Example:
        >>> import jax, jax.numpy as jnp, jaxseq
        >>> chain = jaxseq.Chain(jnp.array([[0.0, -jnp.inf], [0.0, 0.0]]), jnp.zeros((2, 2)))
        >>> jaxseq.sample(chain, key=jax.random.key(0), num=100)[:, 0].max().item()
        0
    """
    check_method(method)
    return _sample(chain, key, as_count("num", num, 0), method)


@partial(jax.jit, static_argnums=(2, 3))
def _sample(chain: Chain, key: Array, num: int, method: Method) -> Array:
    node_marginals, edge_marginals = lax.stop_gradient(chain_marginals(chain, method))
    _, forward = conditionals(edge_marginals)
    log_first, log_next = jnp.log(node_marginals[0]), jnp.log(forward)
    positions = jnp.arange(chain.num_positions)

    def noise(position, sample_key):
        position_key = jax.random.fold_in(sample_key, position)
        return jax.random.gumbel(position_key, (chain.num_labels,), chain.nodes.dtype)

    def draw(index):
        gumbel = jax.vmap(noise, (0, None))(positions, jax.random.fold_in(key, index))
        first = argmax(log_first + gumbel[0])

        def step(label, inputs):
            log_row, perturbation = inputs
            label = argmax(log_row[label] + perturbation)
            return label, label

        _, rest = lax.scan(step, first, (log_next, gumbel[1:]))
        return jnp.concatenate([first[None], rest])

    paths = jax.vmap(draw)(jnp.arange(num))
    return jnp.where((node_marginals > 0).any(1), paths, NO_LABEL)
