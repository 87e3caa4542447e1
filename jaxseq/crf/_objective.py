r"""The negative log-likelihood of a corpus and its gradient.

.. math::
    L = \sum_q w_q \big(\log Z(x_q) - \log Z(x_q; y_q)\big),

where :math:`Z(x; y)` sums over the labellings that agree with what is known of y: one path when
all labels are known, several with partial labels (Tsuboi et al. 2008). The gradient by node
scores is the difference of two sets of marginals, spread over the attributes of each token.

Three programs, not one: gather (scores from weights), lattice (marginals from scores), scatter
(gradient from marginals). In a single program XLA would fuse the gathers into every use of the
scores, and take more than twice as long.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxseq._runtime import map_on_cores, usable_cores
from jaxseq.crf import _model as _linear
from jaxseq.crf._data import EntropyGradient, ScoreGradient, Shard, entropy_gradient, score_gradient
from jaxseq.crf._parameters import Legal, Parameters, Spread, mask_forbidden
from jaxseq.lattice import vdot


@partial(jax.jit, static_argnames="labels")
def node_scores(
    table: Float[Array, "a1 p"],
    start: Float[Array, " s"],
    stop: Float[Array, " s"],
    shard: Shard,
    labels: int,
) -> Float[Array, "r w s"]:
    """Scores of every slot, those of starting and stopping included."""
    rows, width = shard.segments.shape
    scores = _linear.sum_weights(table, shard.ids, shard.values)[:, :labels]
    scores = scores.at[shard.starts].add(start, mode="drop")
    scores = scores.at[shard.stops].add(stop, mode="drop")
    return scores.reshape(rows, width, labels)


@partial(jax.jit, donate_argnums=0, static_argnums=(3, 4))
def weight_gradient(
    table: Float[Array, "a1 p"],
    by_token: Float[Array, "slots p"],
    shard: Shard,
    attributes: int,
    add: bool,
) -> Float[Array, "a1 p"]:
    """The scatter: gradient by the table, in the place of one that is no longer wanted.

    Args:
        table: a table to write over, or with `add` to add to.
    """
    start = table if add else table.at[:].set(0)
    return _linear.spread_gradient(by_token, shard.ids, shard.values, attributes, start)


@partial(jax.jit, donate_argnums=0)
def _write_table(old: Array, weights: Array, spread: Spread) -> Array:
    return spread.to_table(weights, old)


@jax.jit
def _from_table(gradient: Array, spread: Spread) -> Array:
    return spread.from_table(gradient)


@jax.jit
def _end_scores(parameters: Parameters, legal: Legal | None) -> tuple[Array, Array, Array]:
    return mask_forbidden(parameters, legal)


@jax.jit
def finish(parts: list[tuple[Array, Parameters]], parameters: Parameters, spread: Spread, l2):
    """Sum over shards, and the penalty l2 · ‖parameters‖² / 2 with its gradient."""
    loss = sum(part[0] for part in parts)
    gradient = jax.tree.map(lambda *arrays: sum(arrays), *(part[1] for part in parts))
    squares = sum(vdot(leaf, leaf) for leaf in jax.tree.leaves(parameters))
    gradient = jax.tree.map(lambda g, p: g + l2 * p, gradient, parameters)
    transitions = spread.keep_learnt(gradient.transitions)
    return loss + l2 / 2 * squares, gradient._replace(transitions=transitions)


class Objective:
    """Penalised negative log-likelihood on shards, each on a core of its own.

    With unlabelled shards and an entropy weight γ, γ times the entropy of the model on them is
    added (Grandvalet & Bengio 2004; Jiao et al. 2006): labels far from any decision boundary are
    preferred. Calling it with `Parameters` gives the value and the gradient, of the same structure.

    Args:
        shards: of `make_shards`, equal in shape so that each program is compiled once.
        spread: how the learnt weights make the table.
        l2: the penalty is l2 / 2 times the sum of squares of all parameters.
        legal: transitions that may be used, or None for all.
        unlabelled: shards whose labels are not looked at.
        entropy_weight: γ; may be changed between calls.
        entropy_gradient: how the gradient of the entropy is derived; the values are the same.

    `seconds` adds up where the time went, by the clock of the first core. The tables of a call are
    written over by the next: memory that is asked for anew each time costs as much in page faults
    as the arithmetic on it.
    """

    def __init__(
        self,
        shards: list[Shard],
        spread: Spread,
        l2: float,
        legal: Legal | None = None,
        unlabelled: Sequence[Shard] = (),
        entropy_weight: float = 0.0,
        entropy_gradient: EntropyGradient = "mann",
    ):
        self.spread, self.l2, self.legal = spread, l2, legal
        self.entropy_weight, self.entropy_gradient = entropy_weight, entropy_gradient
        self.seconds = {"gather": 0.0, "lattice": 0.0, "scatter": 0.0, "evaluations": 0.0}
        self._table: Array | None = None
        self._gradients: list[Array | None] = []
        self.take(shards, unlabelled)

    def take(self, shards: Sequence[Shard], unlabelled: Sequence[Shard] = ()) -> None:
        """Go on with other shards, in the same memory: the next mini-batch."""
        together = min(len(shards) + len(unlabelled), usable_cores())
        cores = max(len(shards), len(unlabelled), together)
        self._work: list[list[tuple[Shard, bool]]] = [[] for _ in range(cores)]
        for index, shard in enumerate(shards):
            self._work[index].append((shard, True))
        # The other way round, so that no core has both where there are cores for each.
        for index, shard in enumerate(unlabelled):
            self._work[cores - 1 - index].append((shard, False))
        self._gradients += [None] * (cores - len(self._gradients))

    def __call__(self, parameters: Parameters) -> tuple[Array, Parameters]:
        began = time.perf_counter()
        table = self._take_table(parameters)
        ends = _end_scores(parameters, self.legal)
        cores = range(len(self._work))
        parts = map_on_cores(lambda core: self._on_core(core, parameters, table, ends), cores)
        found = jax.block_until_ready(finish(parts, parameters, self.spread, self.l2))
        self.seconds["evaluations"] += time.perf_counter() - began
        return found

    def _take_table(self, parameters: Parameters) -> Array:
        """The table of these parameters."""
        if self.spread.places is None:  # nothing to keep: it is the parameters, or made from them
            return self.spread.to_table(parameters.weights)
        old = self._table
        if old is None or old.dtype != parameters.weights.dtype:
            old = jnp.zeros(self.spread.shape, parameters.weights.dtype)
        table = self._table = _write_table(old, parameters.weights, self.spread)
        return table

    def _on_core(self, core: int, parameters: Parameters, table: Array, ends):
        """Loss and gradient of the shards of one core."""
        clock = _Clock(self.seconds if core == 0 else {})
        edges, start, stop = ends
        by_table, self._gradients[core] = self._gradients[core], None
        if by_table is None or by_table.dtype != table.dtype:
            by_table = jnp.zeros(self.spread.shape, table.dtype)
        parts = []
        for number, (shard, labelled) in enumerate(self._work[core]):
            nodes = node_scores(table, start, stop, shard, self.spread.labels)
            clock.note("gather", nodes)
            pair_weights = None if shard.edge_ids is None else parameters.edge_weights
            if labelled:
                found = score_gradient(nodes, edges, pair_weights, shard)
            else:
                found = entropy_gradient(
                    nodes, edges, pair_weights, shard, self.entropy_weight, self.entropy_gradient
                )
            clock.note("lattice", found)
            attributes = self.spread.attributes
            by_table = weight_gradient(by_table, found.nodes, shard, attributes, number > 0)
            clock.note("scatter", by_table)
            parts.append(found._replace(nodes=None))
        self._gradients[core] = by_table
        weights = _from_table(by_table, self.spread) if self.spread.sparse else by_table
        loss, *others = sum_parts(parts, parameters.edge_weights)
        clock.note("scatter", weights)
        return loss, Parameters(weights, *others)


@jax.jit
def sum_parts(parts: list[ScoreGradient], edge_weights: Array | None):
    """Loss of several shards, and gradients by all but the table, in the order of `Parameters`."""
    loss = sum(part.loss for part in parts)
    transitions, start, stop = (
        sum(getattr(part, name) for part in parts) for name in ("transitions", "start", "stop")
    )
    by_pair = None
    if edge_weights is not None:
        found = [part.edge_weights for part in parts if part.edge_weights is not None]
        by_pair = sum(found, jnp.zeros_like(edge_weights))
    return loss, transitions, start, stop, by_pair


class _Clock:
    """Adds the time since it was last asked to an entry."""

    def __init__(self, seconds: dict[str, float]):
        self._seconds, self._last = seconds, time.perf_counter()

    def note(self, name: str, result) -> None:
        jax.block_until_ready(result)
        now = time.perf_counter()
        self._seconds[name] = self._seconds.get(name, 0.0) + now - self._last
        self._last = now
