r"""Products with the Jacobian of the E-step, as covariances along the lattice.

Where transitions are frozen and free parameters positive, expected counts move by their covariance
with the functional :math:`S = \sum_t f(y_t, x_t)`, where f is the change of log Θ. With the
messages of forward–backward, conditional expectations of its parts are

    L_t(j) = E[S up to slot t | y_t = j]
           = f_t(j) + Σ_i α_{t-1}(i) A(i,j) L_{t-1}(i) / mass_t(j)
    R_t(i) = E[S from slot t on | y_t = i]
           = f_t(i) + Σ_j A(i,j) after_{t+1}(j) R_{t+1}(j) / raw_t(i)

and the probability of a label moves by P(y_t = i)·(L_t + R_t − f_t − E[S])(i). A product is one
matrix product a slot in each direction, with nothing to normalise and nothing of forward–backward
done again; linearising is no more than an E-step that keeps its messages.

Layout is [slots, labels, rows], as in `jaxseq.hmm._counts`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxseq._runtime import map_on_cores
from jaxseq.hmm._corpus import WordCorpus, WordShard
from jaxseq.hmm._counts import (
    FAMILIES,
    BlockLattice,
    add_up,
    block_lattice,
    block_tally,
    certified_tally,
    check_families,
    check_fits,
    count_sequences,
    is_certified,
    shard_tally,
    word_factors,
)
from jaxseq.hmm._model import EVENT_AXES, Multinomials
from jaxseq.lattice import Method, check_method, matmul, safe_divide


class BlockProduct(eqx.Module):
    """What products at a point need of a block."""

    words: Int[Array, "w c"]
    linked: Bool[Array, "w 1 c"]  # whether a slot continues the sequence of the slot before it
    before: Float[Array, "w s c"]  # α of the slot before
    over_mass: Float[Array, "w s c"]  # 1 over its product with the transitions; 0 where one begins
    # From the last slot to the first, as they are used: e ⊙ β of the slot after, and 1 over the
    # transitions' product with it, 0 at the end.
    after: Float[Array, "w s c"]
    over_raw: Float[Array, "w s c"]
    labels: Float[Array, "w s c"]  # P(label | words)


class ShardProduct(eqx.Module):
    """A shard's blocks, stacked, and the transition probabilities."""

    blocks: BlockProduct
    transition: Float[Array, "s s"]


def _block_product(lattice: BlockLattice, words: Array) -> BlockProduct:
    # Shifted by a slot, so that the scan of products reads each array at one place.
    before = jnp.pad(lattice.alphas[:-1], ((1, 0), (0, 0), (0, 0)))
    after = jnp.pad(lattice.afters[1:], ((0, 1), (0, 0), (0, 0)))
    linked_after = jnp.pad(lattice.linked[1:], ((0, 1), (0, 0), (0, 0)))
    ones = jnp.ones_like(before)
    # Divided once here, and multiplied by in every product; 0 cuts sequences apart.
    over_mass = jnp.where(lattice.linked, safe_divide(ones, lattice.masses), 0)
    over_raw = jnp.where(linked_after, safe_divide(ones, lattice.raws), 0)
    return BlockProduct(
        words, lattice.linked, before, over_mass, after[::-1], over_raw[::-1], lattice.labels
    )


@partial(jax.jit, static_argnums=2)
def linearise_shard(
    parameters: Multinomials, shard: WordShard, dtype: jnp.dtype
) -> tuple[Multinomials, ShardProduct, Bool[Array, ""]]:
    """Expected counts of a shard, what products with their Jacobian need, and whether nothing was
    lost to underflow. Products may be narrower than the counts; parameters that will move must be
    positive. Cost: about an E-step; O(N s) memory is held.
    """
    theta = parameters.normalised()
    factors, _ = word_factors(theta)

    def run(block):
        words, segments, allowed = block
        lattice, lowest = block_lattice(theta, factors, words, segments, allowed)
        counts = block_tally(lattice, theta, words, segments).counts
        return counts, lowest, _narrowed(_block_product(lattice, words), dtype)

    counts, lowest, blocks = _map_blocks(run, (shard.words, shard.segments, shard.allowed))
    counts = jax.tree.map(lambda family: family.sum(0), counts)
    lowest = jax.tree.map(lambda values: values.min(0), lowest)
    # Stacked blocks: one compiled product goes through them all.
    linear = ShardProduct(blocks, theta.transition.astype(dtype))
    return counts, linear, is_certified(theta, lowest, dtype)


def _narrowed(tree, dtype: jnp.dtype):
    def narrow(leaf):
        return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(narrow, tree)


@jax.jit
def multiply_shard(linear: ShardProduct, slopes: dict[str, Array]) -> dict[str, Array]:
    """The change of a shard's expected counts, for the families that move. Cost: about an E-step;
    half of one in float32.

    `log_slopes` is no part of this program: fused with the look-up of words, its divisions would be
    made for every token.
    """
    run = partial(_multiply_block, linear.transition, slopes)
    return {name: part.sum(0) for name, part in _map_blocks(run, linear.blocks).items()}


def log_slopes(parameters: Multinomials, moves: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The change of log Θ as Θ̃ moves, with Θ = Θ̃ / ΣΘ̃ within each multinomial; not of transitions,
    and for positive parameters."""
    slopes = {}
    for name, axis in zip(FAMILIES, EVENT_AXES):
        if name in moves:
            tilde, move = np.asarray(getattr(parameters, name)), np.asarray(moves[name])
            mean = move.sum(axis, keepdims=True) / tilde.sum(axis, keepdims=True)
            slopes[name] = (move / tilde - mean).astype(move.dtype)
    return slopes


def _map_blocks(run: Callable, blocks: Any) -> Any:
    """`lax.map`, which copies what it hands on, unless there is one block."""
    if jax.tree.leaves(blocks)[0].shape[0] > 1:
        return lax.map(run, blocks)
    only = run(jax.tree.map(lambda array: array[0], blocks))
    return jax.tree.map(lambda array: array[None], only)


def _multiply_block(
    transition: Array, slopes: dict[str, Array], block: BlockProduct
) -> dict[str, Array]:
    w, s, c = block.labels.shape
    flat = block.words.reshape(-1)
    own = jnp.zeros_like(block.labels)
    if "emission" in slopes:
        # f_t of each slot, looked up by its word, in the layout of the lattice.
        rows = slopes["emission"].at[flat].get(mode="promise_in_bounds")
        own = rows.reshape(w, c, s).transpose(0, 2, 1)
    if "initial" in slopes:
        own = own + jnp.where(block.linked, 0, slopes["initial"][:, None])

    def step(carry, slot):
        left, right = carry
        before, over_mass, here, after, over_raw, there = slot
        left = here + over_mass * matmul(transition.T, before * left)
        right = there + over_raw * matmul(transition, after * right)
        return (left, right), (left, right)

    # Both directions at once: half as many steps, each of which has its own cost.
    slots = (block.before, block.over_mass, own, block.after, block.over_raw, own[::-1])
    start = jnp.zeros_like(own[0])
    _, (left, right) = lax.scan(step, (start, start), slots)
    # L + R counts the slot's own part twice; less its mean, which is E[S], it is the covariance.
    conditional = left + right[::-1] - own
    mean = (block.labels * conditional).sum(1, keepdims=True)
    moved = block.labels * (conditional - mean)
    changes = {}
    if "initial" in slopes:
        changes["initial"] = jnp.where(block.linked, 0, moved).sum((0, 2))
    if "emission" in slopes:
        sums = jnp.zeros_like(slopes["emission"])
        by_token = moved.transpose(0, 2, 1).reshape(-1, s)
        changes["emission"] = sums.at[flat].add(by_token, mode="promise_in_bounds")
    return changes


# -------------------------------------------------------------------------------------------------
# The Jacobian of the E-step at a point, as a product with a vector.


def linearise_mean_counts(
    parameters: Multinomials,
    corpus: WordCorpus,
    *,
    frozen: tuple[str, ...] = (),
    method: Method = "auto",
) -> tuple[Multinomials, Callable[[Multinomials], Multinomials]]:
    r"""`mean_counts` at a point, and its Jacobian there as a product, on all cores.

    As ``jax.linearize``, but one shard per core, and compiled once for all points.

    Args:
        parameters: as in `expected_counts`; must not be traced.
        corpus: as in `expected_counts`.
        method: as in `expected_counts`.
        frozen: families that do not move; their tangents are not looked at, their counts' changes
            come out as 0 and cost nothing.

    Returns:
        The mean expected counts, and the function :math:`v \mapsto \nabla_{\tilde\Theta}
        \mathrm{EM}_1 \cdot v`.

    Cost: linearising about an E-step and a half, a product one to two; O(N s) memory is held.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.hmm import Multinomials, word_corpus
        >>> point = Multinomials(jnp.ones(2), jnp.ones((2, 2)), jnp.array([[3.0, 1.0], [1.0, 3.0]]))
        >>> mean, product = linearise_mean_counts(point, word_corpus([[0, 1], [1]], 2))
        >>> product(point).initial.tolist()  # a scale cancels
        [0.0, 0.0]
    """
    check_method(method)
    check_families("frozen", frozen)
    check_fits(parameters, corpus)
    number = count_sequences(corpus)
    # Each shard's product holds its own messages, and they are added up on the host.
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

    By covariances along the lattice where they serve; by differentiating forward–backward where
    transitions move, which is quicker then, a free parameter is 0, or scaled messages underflow.
    `dtype` is that of products, if narrower than the parameters' will do.
    """
    wide = parameters.initial.dtype
    positive = all((np.asarray(getattr(parameters, name)) > 0).all() for name in free)
    run = _by_covariance if positive and "transition" not in free else _by_autodiff
    # From the narrower dtype to the wider, and in the end to log space, as underflow demands.
    for precision in dict.fromkeys(jnp.dtype(one) for one in (dtype or wide, wide)):
        if method != "log":
            counts, product, certified = run(parameters, shard, free, precision)
            if method == "scaled" or certified:
                return counts, product
    counts, product, _ = _linearise(parameters, shard, free, "log")
    return counts, partial(_apply, product)


def _by_covariance(
    parameters: Multinomials, shard: WordShard, free: tuple[str, ...], precision: jnp.dtype
) -> tuple[Multinomials, Callable[[Moves], Moves], Array]:
    counts, linear, certified = linearise_shard(parameters, shard, precision)

    def product(moves: Moves) -> Moves:
        slopes = log_slopes(parameters, moves)
        narrow = {name: slope.astype(precision) for name, slope in slopes.items()}
        return _widened(multiply_shard(linear, narrow), parameters.initial.dtype)

    return counts, product, certified


def _by_autodiff(
    parameters: Multinomials, shard: WordShard, free: tuple[str, ...], precision: jnp.dtype
) -> tuple[Multinomials, Callable[[Moves], Moves], Array]:
    wide = parameters.initial.dtype
    if precision == wide:
        counts, push, certified = _linearise(parameters, shard, free, "scaled")
        return counts, partial(_apply, push), certified
    # Counts in full, the product at the rounded point: it only directs Newton's method.
    (counts, _), certified = _tally(parameters, shard)
    rounded = jax.tree.map(lambda family: family.astype(precision), parameters)
    _, push, also = _linearise(rounded, shard, free, "scaled")

    def product(moves: Moves) -> Moves:
        narrow = {name: np.asarray(move, precision) for name, move in moves.items()}
        return _widened(_apply(push, narrow), wide)

    return counts, product, certified & also


def _widened(changes: Moves, dtype: Any) -> Moves:
    return {name: change.astype(dtype) for name, change in changes.items()}


@partial(jax.jit, static_argnums=(2, 3))
def _linearise(parameters: Multinomials, shard: WordShard, free: tuple[str, ...], method: Method):
    def free_counts(moving: dict[str, Array]):
        point = parameters._replace(**moving)
        if method == "log":
            (counts, _), certified = shard_tally(point, shard, method), jnp.array(True)
        else:
            (counts, _), certified = certified_tally(point, shard)
        return {name: getattr(counts, name) for name in free}, (counts, certified)

    moving = {name: getattr(parameters, name) for name in free}
    _, product, (counts, certified) = jax.linearize(free_counts, moving, has_aux=True)
    return counts, product, certified


_tally = jax.jit(certified_tally)


@jax.jit
def _apply(product: Callable, moves: dict[str, Array]) -> dict[str, Array]:
    return product(moves)
