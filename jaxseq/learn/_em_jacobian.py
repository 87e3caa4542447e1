"""The Jacobian of the E-step at a point, as a product with a vector."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxseq.batch import map_on_cores
from jaxseq.chain._engines import Method, check_method
from jaxseq.learn._counts import FAMILIES, add_up, check_families, check_fits, number_of
from jaxseq.learn._em_corpus import WordCorpus, WordShard
from jaxseq.learn._em_lattice import certified_tally, shard_tally
from jaxseq.models._hmm import Multinomials


def linearise_mean_counts(
    parameters: Multinomials,
    corpus: WordCorpus,
    *,
    frozen: tuple[str, ...] = (),
    method: Method = "auto",
) -> tuple[Multinomials, Callable[[Multinomials], Multinomials]]:
    r"""`mean_counts` at a point, and its Jacobian there as a product, on all cores.

    As ``jax.linearize``, which see; but a shard a core, and compiled once for all points.

    Args:
        parameters, corpus, method: as in `expected_counts`; must not be traced.
        frozen: families that do not move; their tangents are not looked at, their counts' changes
            come out as 0 and cost nothing.

    Returns:
        The mean expected counts, and the function :math:`v \mapsto \nabla_{\tilde\Theta}
        \mathrm{EM}_1 \cdot v`.

    Cost: linearising about twice an E-step, a product about twice; O(N s) memory is held.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.learn import word_corpus
        >>> from jaxseq.models import Multinomials
        >>> point = Multinomials(jnp.ones(2), jnp.ones((2, 2)), jnp.array([[3.0, 1.0], [1.0, 3.0]]))
        >>> mean, product = linearise_mean_counts(point, word_corpus([[0, 1], [1]], 2))
        >>> product(point).initial.tolist()  # a scale cancels
        [0.0, 0.0]
    """
    check_method(method)
    check_families("frozen", frozen)
    check_fits(parameters, corpus)
    number = number_of(corpus)
    free = tuple(name for name in FAMILIES if name not in frozen)

    def linearise(shard: WordShard):
        if method != "log":
            *linear, certified = _linearise(parameters, shard, free, "scaled")
            if method == "scaled" or certified:
                return linear
        return _linearise(parameters, shard, free, "log")[:2]

    counts, products = zip(*map_on_cores(linearise, corpus.shards))
    mean = jax.tree.map(lambda family: family / number, add_up(list(counts)))

    def product(tangent: Multinomials) -> Multinomials:
        moves = {name: getattr(tangent, name) for name in free}
        parts = map_on_cores(lambda linear: _apply(linear, moves), products)
        total = jax.tree.map(lambda family: family / number, add_up(parts))
        still = {name: jnp.zeros_like(getattr(parameters, name)) for name in frozen}
        return Multinomials(**total, **still)

    return mean, product


@partial(jax.jit, static_argnums=(2, 3))
def _linearise(parameters: Multinomials, shard: WordShard, free: tuple[str, ...], method: Method):
    def counts_of(moving: dict[str, Array]):
        point = parameters._replace(**moving)
        if method == "log":
            (counts, _), certified = shard_tally(point, shard, method), jnp.array(True)
        else:
            (counts, _), certified = certified_tally(point, shard)
        return {name: getattr(counts, name) for name in free}, (counts, certified)

    moving = {name: getattr(parameters, name) for name in free}
    _, product, (counts, certified) = jax.linearize(counts_of, moving, has_aux=True)
    return counts, product, certified


@jax.jit
def _apply(product: Callable, moves: dict[str, Array]) -> dict[str, Array]:
    return product(moves)
