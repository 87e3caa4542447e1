r"""Forward–backward on one row of positions, in scaled space and in log space.

A *row* holds one sequence, or several one after another: ``linked[t]`` says whether positions t
and t + 1 belong to the same sequence, ``valid[t]`` whether t is a real position at all. The
recursion restarts wherever the link is cut, so a row of many sequences costs the same as one
long sequence.

Two engines give the same `Lattice`:

*scaled* (Rabiner 1989): one vector–matrix product and s exponentials per step. Messages are
normalised at every step, so length is no problem, but scores that spread too far *within* a step
underflow. The engine therefore certifies itself: it returns, besides the lattice, whether every
message entry that ought to be positive came out above a threshold so far above the smallest
number that nothing lost to underflow could matter (see `smallest_trusted`).

*log*: s² exponentials per step, right for any dynamic range.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float

from jaxseq.lattice._chain import Edges, Linked, Nodes, Valid
from jaxseq.lattice._numerics import einsum, finite_top, inverse, logsumexp, matmul, normalise

F = TypeVar("F", bound=Callable[..., Any])

# -------------------------------------------------------------------------------------------------
# Run a fast algorithm that certifies itself, and a slower one only where it could not.


def rescue(
    fast: Callable[..., tuple[Any, Bool[Array, "..."]]], slow: Callable[..., Any]
) -> Callable[..., Any]:
    """``fast(*args)[0]`` when ``fast(*args)[1]`` (certified) holds, else ``slow(*args)``.

    A plain `lax.cond` would do for one sequence, but `jax.vmap` turns its condition into an array
    and then runs both branches for everybody. Here a batch asks once whether *any* member needs
    the slow algorithm, so the common case never pays for it, at any depth of nested `vmap`.

    The result is not differentiable (it is called inside custom derivative rules only).
    """

    @custom_vmap
    def run(*args):
        result, certified = fast(*args)
        # Both are traced, one is run. `custom_vmap` below keeps JAX from making a `select` of this.
        return lax.cond(certified.all(), lambda: result, lambda: slow(*args))

    @run.def_vmap
    def _(axis_size, in_batched, *args):
        in_axes = tuple(0 if batched else None for batched in in_batched)
        batched_run = rescue(
            jax.vmap(fast, in_axes, axis_size=axis_size),
            jax.vmap(slow, in_axes, axis_size=axis_size),
        )
        result = batched_run(*args)
        return result, jax.tree.map(lambda _: True, result)

    return run


Method = Literal["auto", "scaled", "log"]
METHODS: tuple[Method, ...] = ("auto", "scaled", "log")

ChainMethod = Literal["auto", "scaled", "log", "parallel", "blocked"]
"""Of functions on one chain: the engines here, and those for long chains (`_parallel`,
`_blocked`), which do not take rows of several sequences."""

CHAIN_METHODS: tuple[ChainMethod, ...] = (*METHODS, "parallel", "blocked")


class Lattice(NamedTuple):
    """What forward–backward leaves behind: marginals, zero where the link is cut, and log Z."""

    increments: Float[Array, " n"]  # of log Z, when summed over a sequence's positions
    nodes: Float[Array, "n s"]
    edges: Float[Array, "n-1 s s"]


def smallest_trusted(dtype) -> float:
    """The smallest unnormalised message entry that the scaled engine vouches for.

    Terms lost to underflow are below ``tiny`` each; at 64 · tiny / eps and more, losing a few
    hundred of them changes an entry by less than rounding does. It is 2⁻⁹⁷ ≈ e⁻⁶⁷ in float32 and
    2⁻⁹⁶⁴ ≈ e⁻⁶⁶⁸ in float64: the spread of scores within a step that the scaled engine can take.
    """
    info = jnp.finfo(dtype)
    return 64 * float(info.tiny) / float(info.eps)


def check_method(method: str, methods: tuple[str, ...] = METHODS) -> None:
    """Refuse a method that does not exist."""
    if method not in methods:
        raise ValueError(f"method: expected one of {', '.join(methods)}, got {method!r}")


def check_chain_method(method: str) -> None:
    """Refuse a method that does not exist for one chain."""
    check_method(method, CHAIN_METHODS)


def chain_function(function: F) -> F:
    """Compile a public function of chains, one program per method."""
    compiled = jax.jit(function, static_argnames="method")

    @wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        # Filled in here: JAX compiles anew for an option that is named and for one that is not.
        method = options.setdefault("method", "auto")
        # Before JAX traces, where an unknown one would be an error of some branch deep inside.
        check_chain_method(method)
        return compiled(*args, **options)

    return cast(F, run)


def scan_edges(
    step: Callable[..., tuple[Any, Any]], start: Any, edges: Array, *inputs: Any,
    reverse: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """`lax.scan` of (carry, edge, *input) ↦ (carry, output); the edges one per step, or one for
    all."""
    shared = edges.ndim == 2

    def run(carry, scanned):
        edge, *slices = scanned
        # A shared matrix is closed over: scanned, it would be copied for every step.
        return step(carry, edges if shared else edge, *slices)

    return lax.scan(run, start, (None if shared else edges, *inputs), reverse=reverse)


def run_forward_backward(
    nodes: Nodes, edges: Edges, linked: Linked, valid: Valid, method: Method
) -> Lattice:
    """The lattice by the chosen engine. Cost O(n s²) time, O(n s²) memory."""
    if method == "log":
        return log_forward_backward(nodes, edges, linked, valid)
    if method == "scaled":
        return scaled_forward_backward(nodes, edges, linked, valid)[0]
    return rescue(scaled_forward_backward, log_forward_backward)(nodes, edges, linked, valid)


def run_forward(
    nodes: Nodes, edges: Edges, linked: Linked, valid: Valid, method: Method
) -> Float[Array, " n"]:
    """The increments of log Z alone, by the forward half. Cost O(n s²) time, O(n s) memory."""
    if method == "log":
        return log_forward(nodes, edges, linked, valid)[1]
    if method == "scaled":
        return _scaled_increments(nodes, edges, linked, valid)[0]
    slow = lambda *row: log_forward(*row)[1]  # noqa: E731
    return rescue(_scaled_increments, slow)(nodes, edges, linked, valid)


class _ScaledScores(NamedTuple):
    """Scores as factors: exp of each score less the largest of its position."""

    nodes: Float[Array, "n s"]
    node_top: Float[Array, " n"]
    edges: Edges
    edge_top: Float[Array, "..."]


def _scale(nodes: Array, edges: Array, linked: Array, valid: Array) -> _ScaledScores:
    nodes = jnp.where(valid[:, None], nodes, -jnp.inf)
    if edges.ndim == 3:  # padding may hold anything, and a factor of 0 does not undo a NaN
        edges = jnp.where(linked[:, None, None], edges, 0)
    node_top = finite_top(nodes, 1)
    edge_top = finite_top(edges, (-2, -1))
    return _ScaledScores(
        jnp.exp(nodes - node_top[:, None]), node_top, jnp.exp(edges - edge_top[..., None, None]),
        edge_top,
    )  # fmt: skip


def _arriving(edges: Array, linked: Array) -> tuple[Array, Array]:
    """The edges into each position and whether they count."""
    # Position 0 is a step from nowhere: its link is cut, so the edges given to it do not matter.
    links = jnp.concatenate([jnp.zeros(1, bool), linked])
    if edges.ndim == 2:
        return edges, links
    return jnp.concatenate([jnp.zeros((1, *edges.shape[1:]), edges.dtype), edges]), links


def _scaled_forward(scores: _ScaledScores, linked: Array, valid: Array):
    """Filtered label distributions α_t and the sum c_t that each was divided by."""

    def step(alpha, edge, factor, link):
        # Without a link the sequence starts here, and takes nothing from the one before it.
        raw = jnp.where(link, matmul(alpha, edge), 1) * factor
        total = raw.sum()
        alpha = raw * inverse(total)
        return alpha, (alpha, total)

    edges, links = _arriving(scores.edges, linked)
    start = jnp.zeros_like(scores.nodes[0])
    _, (alphas, totals) = scan_edges(step, start, edges, scores.nodes, links)
    edge_top = jnp.broadcast_to(scores.edge_top, linked.shape)
    edge_part = jnp.concatenate([jnp.zeros(1, edge_top.dtype), jnp.where(linked, edge_top, 0)])
    increments = jnp.where(valid, jnp.log(totals) + scores.node_top + edge_part, 0)
    return alphas, totals, increments


def _scaled_backward(scores: _ScaledScores, linked: Array):
    """Backward messages β_t scaled to a maximum of 1, and the maximum each was divided by."""

    def step(beta, edge, factor, link):
        raw = jnp.where(link, matmul(edge, factor * beta), 1)
        top = raw.max()
        beta = raw * inverse(top)
        return beta, (beta, top)

    last = jnp.ones_like(scores.nodes[0])
    _, (betas, tops) = scan_edges(step, last, scores.edges, scores.nodes[1:], linked, reverse=True)
    return jnp.concatenate([betas, last[None]]), tops


def _reachable(legal_before: Array, edges: Array, spec: str) -> Array:
    """Entries that have a legal neighbour across a legal edge.

    With no −inf among the edges, one legal label before makes every label reachable: the matrix
    product is paid only by chains that forbid transitions.
    """

    def by_product():
        legal_edges = (edges > -jnp.inf).astype(edges.dtype)
        return einsum(spec, legal_before.astype(edges.dtype), legal_edges) > 0

    def by_any():
        return jnp.broadcast_to(legal_before.any(-1, keepdims=True), legal_before.shape)

    return lax.cond(jnp.isneginf(edges).any(), by_product, by_any)


def _forward_certified(nodes, edges, linked, valid, alphas, totals) -> Bool[Array, ""]:
    """Whether no legal forward message entry came near underflow."""
    t = "t" if edges.ndim == 3 else ""
    reached = _reachable(alphas[:-1] > 0, edges, f"ti,{t}ij->tj")
    # Where a sequence starts, every label that is legal at all must have a message.
    reached = jnp.concatenate([jnp.ones_like(reached[:1]), reached | ~linked[:, None]])
    ought = reached & (nodes > -jnp.inf) & valid[:, None]
    return ~(ought & (alphas * totals[:, None] < smallest_trusted(nodes.dtype))).any()


def _backward_certified(nodes, edges, linked, alphas, betas, tops) -> Bool[Array, ""]:
    """Whether no legal backward message entry came near underflow, of labels that can occur."""
    t = "t" if edges.ndim == 3 else ""
    legal_after = (nodes[1:] > -jnp.inf) & (betas[1:] > 0)
    ought = _reachable(legal_after, edges, f"tj,{t}ij->ti") & linked[:, None] & (alphas[:-1] > 0)
    return ~(ought & (betas[:-1] * tops[:, None] < smallest_trusted(nodes.dtype))).any()


def _scaled_increments(nodes, edges, linked, valid):
    alphas, totals, increments = _scaled_forward(_scale(nodes, edges, linked, valid), linked, valid)
    return increments, _forward_certified(nodes, edges, linked, valid, alphas, totals)


def scaled_forward_backward(nodes, edges, linked, valid) -> tuple[Lattice, Bool[Array, ""]]:
    """The lattice in scaled space, and whether it is certified free of underflow."""
    scores = _scale(nodes, edges, linked, valid)
    alphas, totals, increments = _scaled_forward(scores, linked, valid)
    betas, tops = _scaled_backward(scores, linked)

    # Products are scaled before they are complete: an unlikely label must not underflow on the
    # way to a marginal that the dtype can hold.
    node_totals = (alphas * betas).sum(1)
    node_marginals = alphas * inverse(node_totals)[:, None] * betas
    # Σ_i α_t(i) (E β'_{t+1})(i) is the same sum, times what the backward message was divided by.
    edge_totals = jnp.where(linked, node_totals[:-1] * tops, 0)
    after = scores.nodes[1:] * betas[1:]
    shares = alphas[:-1] * inverse(edge_totals)[:, None]
    pairs = shares[:, :, None] * scores.edges * after[:, None, :]
    lattice = Lattice(increments, node_marginals, pairs)
    # Each message may be fine and their product not: where the labels that one favours are dead
    # ends for the other. (A sequence with no legal path does not pass either; it is rare.)
    trusted = smallest_trusted(nodes.dtype)
    met = ~(valid & (node_totals < trusted)).any() & ~(linked & (edge_totals < trusted)).any()
    certified = _forward_certified(nodes, edges, linked, valid, alphas, totals)
    certified &= _backward_certified(nodes, edges, linked, alphas, betas, tops)
    return lattice, certified & met


# ------------------------------------------------------------------------------- log space


def log_forward(nodes, edges, linked, valid) -> tuple[Array, Float[Array, " n"]]:
    """Log of the filtered label distributions, and the increments of log Z."""

    def step(log_alpha, edge, node, link, real):
        mass = jnp.where(link, logsumexp(log_alpha[:, None] + edge, 0), 0)
        raw = jnp.where(real, mass + node, -jnp.inf)
        increment = logsumexp(raw, 0)
        # Normalised at every step, as in scaled space: sums along a long chain would lose digits.
        log_alpha = raw - jnp.where(jnp.isneginf(increment), 0, increment)
        return log_alpha, (log_alpha, jnp.where(real, increment, 0))

    arriving, links = _arriving(edges, linked)
    return scan_edges(step, jnp.zeros_like(nodes[0]), arriving, nodes, links, valid)[1]


def log_backward(nodes, edges, linked) -> Float[Array, "n s"]:
    """Log backward messages, each scaled to a maximum of 0."""

    def step(log_beta, edge, node, link):
        raw = jnp.where(link, logsumexp(edge + node + log_beta, 1), 0)
        log_beta = raw - finite_top(raw, 0)
        return log_beta, log_beta

    last = jnp.zeros_like(nodes[0])
    _, log_betas = scan_edges(step, last, edges, nodes[1:], linked, reverse=True)
    return jnp.concatenate([log_betas, last[None]])


def log_forward_backward(nodes, edges, linked, valid) -> Lattice:
    """The lattice in log space."""
    log_alphas, increments = log_forward(nodes, edges, linked, valid)
    log_betas = log_backward(nodes, edges, linked)
    log_pairs = log_alphas[:-1, :, None] + edges + (nodes[1:] + log_betas[1:])[:, None, :]
    log_pairs = jnp.where(linked[:, None, None], log_pairs, -jnp.inf)
    return Lattice(increments, normalise(log_alphas + log_betas, 1), normalise(log_pairs, (1, 2)))
