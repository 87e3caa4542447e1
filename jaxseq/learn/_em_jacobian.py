"""The Jacobian of the E-step at a point, as a product with a vector."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxseq.batch import map_on_cores
from jaxseq.chain._engines import Method, check_method
from jaxseq.learn._counts import FAMILIES, add_up, check_families, check_fits, number_of
from jaxseq.learn._em_corpus import WordCorpus, WordShard
from jaxseq.learn._em_lattice import certified_tally, shard_tally
from jaxseq.learn._em_products import ShardProduct, linearise_shard, log_slopes, multiply_shard
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

    Cost: linearising about an E-step and a half, a product one to two; O(N s) memory is held.

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

    linearise = partial(linearise_counts, parameters, free=free, method=method)
    counts, products = zip(*map_on_cores(linearise, corpus.shards))
    mean = jax.tree.map(lambda family: family / number, add_up(list(counts)))

    def product(tangent: Multinomials) -> Multinomials:
        moves = {name: getattr(tangent, name) for name in free}
        parts = map_on_cores(lambda multiply: multiply(moves), products)
        total = jax.tree.map(lambda family: family / number, add_up(parts))
        still = {name: jnp.zeros_like(getattr(parameters, name)) for name in frozen}
        return Multinomials(**total, **still)

    return mean, product


Moves = dict[str, Any]
"""Tangents, or changes of counts, by family."""


def linearise_counts(
    parameters: Multinomials,
    shard: WordShard,
    free: tuple[str, ...],
    method: Method = "auto",
    dtype: Any = None,
) -> tuple[Multinomials, Callable[[Moves], Moves]]:
    """Expected counts of a shard, and the product with their Jacobian.

    By covariances along the lattice where they serve (`_em_products`); by differentiating
    forward–backward where transitions move, which is quicker then, a free parameter is 0, or scaled
    messages underflow.

    Args:
        parameters, method: as in `linearise_mean_counts`.
        shard: of `WordCorpus.shards`.
        free: families that move.
        dtype: of products, if narrower than the parameters' will do.
    """
    wide = parameters.initial.dtype
    precisions = dict.fromkeys(jnp.dtype(one) for one in (dtype or wide, wide))
    if method != "log":
        positive = all((np.asarray(getattr(parameters, name)) > 0).all() for name in free)
        by_covariance = positive and "transition" not in free
        for precision in precisions:
            run = _by_covariance if by_covariance else _by_autodiff
            counts, product, certified = run(parameters, shard, free, precision)
            if method == "scaled" or certified:
                return counts, product
    counts, product, _ = _linearise(parameters, shard, free, "log")
    return counts, partial(_apply, product)


def _by_covariance(
    parameters: Multinomials, shard: WordShard, free: tuple[str, ...], precision: jnp.dtype
) -> tuple[Multinomials, Callable[[Moves], Moves], Array]:
    counts, linear, certified = linearise_shard(parameters, shard, precision)
    return counts, partial(_multiply, parameters, linear), certified


def _by_autodiff(
    parameters: Multinomials, shard: WordShard, free: tuple[str, ...], precision: jnp.dtype
) -> tuple[Multinomials, Callable[[Moves], Moves], Array]:
    wide = parameters.initial.dtype
    if precision == wide:
        counts, product, certified = _linearise(parameters, shard, free, "scaled")
        return counts, partial(_apply, product), certified
    (counts, _), certified = _tally(parameters, shard)
    rounded = jax.tree.map(lambda family: family.astype(precision), parameters)
    _, product, also = _linearise(rounded, shard, free, "scaled")
    return counts, partial(_apply_rounded, product, precision, wide), certified & also


def _apply_rounded(product: Callable, precision: Any, wide: Any, moves: Moves) -> Moves:
    found = _apply(product, {name: np.asarray(move, precision) for name, move in moves.items()})
    return {name: change.astype(wide) for name, change in found.items()}


def _multiply(parameters: Multinomials, linear: ShardProduct, moves: Moves) -> Moves:
    slopes = log_slopes(parameters, moves)
    precision = linear.transition.dtype
    found = multiply_shard(linear, {n: slope.astype(precision) for n, slope in slopes.items()})
    return {name: change.astype(parameters.initial.dtype) for name, change in found.items()}


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


_tally = jax.jit(certified_tally)


@jax.jit
def _apply(product: Callable, moves: dict[str, Array]) -> dict[str, Array]:
    return product(moves)
