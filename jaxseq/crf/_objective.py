r"""The objective of training: the negative log-likelihood of a corpus, with penalties, and its
gradient.

.. math::
    L = \sum_q w_q \big(\log Z(x_q) - \log Z(x_q; y_q)\big),

where :math:`Z(x; y)` sums over the labellings that agree with what is known of y: one path when
all labels are known, several with partial labels (Tsuboi et al. 2008). The gradient by node
scores is the difference of two sets of marginals, spread over the attributes of each token.

An evaluation is three programs, not one: gather (scores from weights), lattice (marginals from
scores), scatter (gradient from marginals). In a single program XLA would fuse the gathers into
every use of the scores, and take more than twice as long.

A penalty on expected shares of labels (see `_expectation_gradient`) is of all shards together. It
takes a pass of gather and marginals before, whose node scores are kept for the others.

Two executors run them: one on the cores of this machine, a shard each; and one on the devices of a
mesh, where each program is under `jax.shard_map` and the gradients are summed along ``"data"``.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Float

from jaxseq._runtime import map_on_cores, usable_cores
from jaxseq.crf._expectation_gradient import (
    LabelCounts,
    SharePenalty,
    expectation_gradient,
    expected_counts,
    expected_features,
    share_penalty,
)
from jaxseq.crf._model import spread_gradient, sum_weights
from jaxseq.crf._parameters import Legal, Parameters, Spread, mask_forbidden
from jaxseq.crf._score_gradient import (
    EntropyGradient,
    ScoreGradient,
    lattice_gradient,
)
from jaxseq.crf._shards import Shard, place_shards
from jaxseq.lattice import vdot
from jaxseq.parallel import (
    BY_DATA,
    DATA,
    EVERYWHERE,
    all_peers,
    check_mesh,
    place,
    place_rows,
    spans_processes,
)

# ------------------------------------------------------------- the programs of one shard


@partial(jax.jit, static_argnames="labels")
def node_scores(
    table: Float[Array, "a1 p"],
    start: Float[Array, " s"],
    stop: Float[Array, " s"],
    shard: Shard,
    labels: int,
) -> Float[Array, "r w s"]:
    """Gather: scores of every slot, those of starting and stopping included."""
    rows, width = shard.segments.shape
    scores = sum_weights(table, shard.ids, shard.values)[:, :labels]
    # Sentences that are not there start and stop out of bounds, and are dropped.
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
    """Scatter: the gradient by the table, in the place of one that is no longer wanted.

    Args:
        table: a table to write over, or with `add` to add to.
        by_token: the gradient by the scores of every slot.
        shard: where the slots have their attributes.
        attributes: how many there are.
        add: whether the numbers in `table` are wanted.
    """
    start = table if add else table.at[:].set(0)
    return spread_gradient(by_token, shard.ids, shard.values, attributes, start)


# ------------------------------------------------- the programs of all shards on a mesh


def on_devices(fn, mesh: Mesh, in_specs: Any, out_specs: Any):
    """`jax.shard_map`, without its check of what varies along an axis: the loops of the lattices
    start from constants, which it takes for something else than what they become."""
    return jax.shard_map(fn, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def own(tree):
    """The part that a device has of arrays along ``"data"``."""
    return jax.tree.map(lambda array: array[0], tree)


@partial(jax.jit, static_argnames=("mesh", "labels"))
def mesh_scores(table, start, stop, shards: Shard, mesh: Mesh, labels: int):
    """`node_scores` along ``"data"``."""

    def on_device(table, start, stop, shards):
        return node_scores(table, start, stop, own(shards), labels)[None]

    specs = (EVERYWHERE, EVERYWHERE, EVERYWHERE, BY_DATA)
    return on_devices(on_device, mesh, specs, BY_DATA)(table, start, stop, shards)


@partial(jax.jit, static_argnames=("mesh", "derivation"))
def _mesh_lattices(nodes, edges, pair_weights, shards, weight, mesh: Mesh, derivation):
    """`lattice_gradient`: the gradient by scores along ``"data"``, all else summed along it."""

    def on_device(nodes, edges, pair_weights, shards, weight):
        part = lattice_gradient(nodes[0], edges, pair_weights, own(shards), weight, derivation)
        return part.nodes[None], lax.psum(part._replace(nodes=None), DATA)

    specs = (BY_DATA, EVERYWHERE, EVERYWHERE, BY_DATA, EVERYWHERE)
    # Gradients by scores stay where they are: they go into the device's own scatter.
    run = on_devices(on_device, mesh, specs, (BY_DATA, EVERYWHERE))
    return run(nodes, edges, pair_weights, shards, weight)


@partial(jax.jit, static_argnames=("mesh", "sizes"))
def _mesh_counts(nodes, edges, pair_weights, shards, marks, tilt, mesh: Mesh, sizes):
    """`expected_counts`, summed along ``"data"``."""

    def on_device(nodes, edges, pair_weights, shards, marks, tilt):
        where = (nodes[0], edges, pair_weights, own(shards), own(marks))
        return lax.psum(expected_counts(*where, sizes, tilt), DATA)

    specs = (BY_DATA, EVERYWHERE, EVERYWHERE, BY_DATA, BY_DATA, EVERYWHERE)
    run = on_devices(on_device, mesh, specs, EVERYWHERE)
    return run(nodes, edges, pair_weights, shards, marks, tilt)


@partial(jax.jit, static_argnames="mesh")
def _mesh_features(nodes, edges, pair_weights, shards, weight, marks, tilt, mesh: Mesh):
    """`expected_features`, as `_mesh_lattices`."""

    def on_device(nodes, edges, pair_weights, shards, weight, marks, tilt):
        where = (nodes[0], edges, pair_weights, own(shards), weight, own(marks))
        part = expected_features(*where, tilt)
        return part.nodes[None], lax.psum(part._replace(nodes=None), DATA)

    specs = (BY_DATA, EVERYWHERE, EVERYWHERE, BY_DATA, EVERYWHERE, BY_DATA, EVERYWHERE)
    run = on_devices(on_device, mesh, specs, (BY_DATA, EVERYWHERE))
    return run(nodes, edges, pair_weights, shards, weight, marks, tilt)


@partial(jax.jit, static_argnames="mesh")
def _mesh_expectations(nodes, edges, pair_weights, shards, marks, slopes, mesh: Mesh):
    """`expectation_gradient`, as `_mesh_lattices`."""

    def on_device(nodes, edges, pair_weights, shards, marks, slopes):
        where = (nodes[0], edges, pair_weights, own(shards), own(marks))
        part = expectation_gradient(*where, slopes)
        return part.nodes[None], lax.psum(part._replace(nodes=None), DATA)

    specs = (BY_DATA, EVERYWHERE, EVERYWHERE, BY_DATA, BY_DATA, EVERYWHERE)
    run = on_devices(on_device, mesh, specs, (BY_DATA, EVERYWHERE))
    return run(nodes, edges, pair_weights, shards, marks, slopes)


@partial(jax.jit, static_argnames=("attributes", "mesh", "add"), donate_argnums=0)
def _mesh_scatter(tables, by_token, shards, attributes: int, mesh: Mesh, add: bool):
    """`weight_gradient` of every device into a table of its own."""

    def on_device(tables, by_token, shards):
        table = weight_gradient(tables[0], by_token[0], own(shards), attributes, add)
        return table[None]

    return on_devices(on_device, mesh, (BY_DATA,) * 3, BY_DATA)(tables, by_token, shards)


@partial(jax.jit, static_argnames="mesh")
def _mesh_sum(tables, spread: Spread, mesh: Mesh):
    """Gradient by the learnt weights: only these are sent between devices, not whole tables."""

    def on_device(tables, spread):
        return lax.psum(spread.from_table(tables[0]), DATA)

    return on_devices(on_device, mesh, (BY_DATA, EVERYWHERE), EVERYWHERE)(tables, spread)


# --------------------------------------------------------- what comes before and after them


@jax.jit
def _tied_table(weights: Array, spread: Spread) -> Array:
    return spread.to_table(weights)


@partial(jax.jit, donate_argnums=0)
def _write_table(old: Array, weights: Array, spread: Spread) -> Array:
    return spread.to_table(weights, old)


@jax.jit
def _from_table(gradient: Array, spread: Spread) -> Array:
    return spread.from_table(gradient)


_end_scores = jax.jit(mask_forbidden)


@jax.jit
def sum_parts(parts: list[ScoreGradient], edge_weights: Array | None):
    """Loss of several shards, and gradients by all but the table, in the order of `Parameters`."""
    loss = sum(part.loss for part in parts)
    transitions, start, stop = (
        sum(getattr(part, name) for part in parts) for name in ("transitions", "start", "stop")
    )
    by_pair = None
    if edge_weights is not None:
        pieces = [part.edge_weights for part in parts if part.edge_weights is not None]
        by_pair = sum(pieces, jnp.zeros_like(edge_weights))
    return loss, transitions, start, stop, by_pair


@jax.jit
def _cross_entropy(parameters: Parameters, features: Parameters, weight: Any):
    """The linear part of γ (Σ log Z − E_q[score]), and its gradient."""
    products = jax.tree.map(vdot, parameters, features)
    gradient = jax.tree.map(lambda array: -weight * array, features)
    return -weight * sum(jax.tree.leaves(products)), gradient


@jax.jit
def add_up(parts: list[Any]) -> Any:
    """Sum of trees of one structure."""
    return jax.tree.map(lambda *arrays: sum(arrays), *parts)


class ExpectationTerm(NamedTuple):
    """What is expected of the unlabelled shards: the penalty, and for each of them the predicates
    that hold at its slots, as a shard of the same layout."""

    penalty: SharePenalty
    marks: Sequence[Shard]


@jax.jit
def finish(parts: list[tuple[Array, Parameters]], parameters: Parameters, spread: Spread, l2):
    """Sum over shards, and the penalty l2 · ‖parameters‖² / 2 with its gradient."""
    loss = sum(part[0] for part in parts)
    gradient = jax.tree.map(lambda *arrays: sum(arrays), *(part[1] for part in parts))
    squares = sum(vdot(leaf, leaf) for leaf in jax.tree.leaves(parameters))
    gradient = jax.tree.map(lambda g, p: g + l2 * p, gradient, parameters)
    # After the penalty: a transition that is not learnt must not move at all.
    transitions = spread.keep_learnt(gradient.transitions)
    return loss + l2 / 2 * squares, gradient._replace(transitions=transitions)


class Objective:
    """Penalised negative log-likelihood on shards, each on a core or a device of its own.

    With unlabelled shards and an entropy weight γ, γ times the entropy of the model on them is
    added (Grandvalet & Bengio 2004; Jiao et al. 2006): labels far from any decision boundary are
    preferred. Calling it with `Parameters` gives the value and the gradient, of the same structure.

    Args:
        shards: of `make_shards`, equal in shape so that each program is compiled once; on a mesh,
            those of this process, of any shapes.
        spread: how the learnt weights make the table.
        l2: the penalty is l2 / 2 times the sum of squares of all parameters.
        legal: transitions that may be used, or None for all.
        unlabelled: shards whose labels are not looked at; None for none in any process.
        entropy_weight: γ, or None to leave the unlabelled shards out; may be changed between calls.
        entropy_gradient: how the gradient of the entropy is derived; the values are the same.
        expectations: penalties on expected shares of labels in the unlabelled shards, which are
            left out together with these; None for none.
        cores: threads, where shards are more than these; None for one per shard.
        mesh: of `jaxseq.parallel.make_mesh`, for its devices in place of cores. Where it spans
            several processes, all call the objective together, with the same parameters. Devices
            send each other the gradient by the learnt weights and O(s²) numbers more.

    `projected` are the features that a distribution over the labellings of the unlabelled shards
    has, of `expected_features`; with them the term of these shards is γ times the cross-entropy of
    the model to that distribution, less a constant, in place of all others. None for none.

    `seconds` adds up where the time went, by the clock of the first core. The tables of a call are
    written over by the next: memory that is asked for anew each time costs as much in page faults
    as the arithmetic on it.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        spread: Spread,
        l2: Any,
        legal: Legal | None = None,
        unlabelled: Sequence[Shard] | None = None,
        entropy_weight: Any = 0.0,
        entropy_gradient: EntropyGradient = "mann",
        *,
        expectations: ExpectationTerm | None = None,
        cores: int | None = None,
        mesh: Mesh | None = None,
    ):
        self._executor = _Cores(spread, cores) if mesh is None else _MeshDevices(spread, mesh)
        self.spread, self.legal = self._executor.place((spread, legal))
        self.l2, self.entropy_weight = l2, entropy_weight
        self.entropy_gradient: EntropyGradient = entropy_gradient
        self.seconds = dict.fromkeys(self._executor.timed, 0.0) | {"evaluations": 0.0}
        self._old_table: Array | None = None
        self.projected: Parameters | None = None
        self._penalty = None
        if expectations is not None:
            self._penalty = self._executor.place(expectations.penalty)
        self._executor.hold(shards, unlabelled, expectations)

    def take(self, shards: Sequence[Shard], unlabelled: Sequence[Shard] = ()) -> None:
        """Go on with other shards, in the same memory: the next mini-batch.

        On a mesh, they are one labelled shard for each of this process's places, in their order,
        and of one shape in all processes, which are not asked.
        """
        self._executor.take(shards, unlabelled)

    def place(self, parameters: Parameters) -> Parameters:
        """Parameters where the objective wants them: on the mesh, if there is one."""
        return self._executor.place(parameters)

    def __call__(self, parameters: Parameters) -> tuple[Array, Parameters]:
        began = time.perf_counter()
        parameters = self.place(parameters)
        point, penalty = self._point(parameters), 0.0
        # Where labellings are given, expectations have had their say on these.
        penalised = self.projected is None and self.entropy_weight is not None
        if self._penalty is not None and penalised:
            # Of all shards together: their slopes are known only when all have been counted.
            _, counts = self._executor.count(point, self._penalty.sizes, self.seconds, True)
            penalty, slopes = share_penalty(self._penalty, counts)
            point = point._replace(slopes=slopes)
        parts = self._executor.run(point, self.seconds)
        if self.projected is not None and self.entropy_weight is not None:
            parts.append(_cross_entropy(parameters, self.projected, self.entropy_weight))
        loss, gradient = finish(parts, parameters, self.spread, self.l2)
        result = jax.block_until_ready((loss + penalty, gradient))
        self.seconds["evaluations"] += time.perf_counter() - began
        return result

    def _point(self, parameters: Parameters) -> _Point:
        table = self._table(parameters)
        edges, start, stop = _end_scores(parameters, self.legal)
        return _Point(
            self.spread, table, edges, start, stop, parameters.edge_weights,
            self.entropy_weight, self.entropy_gradient, is_projected=self.projected is not None,
        )  # fmt: skip

    def expect(
        self, parameters: Parameters, tilt: LabelCounts | None = None
    ) -> tuple[Array, LabelCounts]:
        """Σ log Z of the unlabelled shards, and the counts that expectations look at.

        Args:
            parameters: of the model.
            tilt: what to add to its scores where predicates of expectations hold.
        """
        assert self._penalty is not None
        point = self._point(self.place(parameters))._replace(tilt=self._executor.place(tilt))
        return self._executor.count(point, self._penalty.sizes, {}, False)

    def expected_features(
        self, parameters: Parameters, tilt: LabelCounts | None = None
    ) -> Parameters:
        """Expected features of the unlabelled shards alone. Arguments as of `expect`."""
        parameters = self.place(parameters)
        point = self._point(parameters)
        point = point._replace(
            tilt=self._executor.place(tilt), is_projected=True, entropy_weight=1.0
        )
        return add_up(self._executor.run(point, {}, only_unlabelled=True))[1]

    def _table(self, parameters: Parameters) -> Array:
        """The table of these parameters, in the memory of the last one where it has gaps."""
        weights, spread = parameters.weights, self.spread
        if not spread.sparse:
            return weights
        if spread.places is None:  # made anew, as every entry changes
            return _tied_table(weights, spread)
        # The places are the same in every call, so that the zeros between them are right already.
        old = self._old_table
        if old is None or old.dtype != weights.dtype:
            old = self._executor.place(np.zeros(spread.shape, weights.dtype))
        table = self._old_table = _write_table(old, weights, spread)
        return table


class _Point(NamedTuple):
    """The scores of the model at some parameters, and what is asked of them there."""

    spread: Spread
    table: Array
    edges: Array
    start: Array
    stop: Array
    edge_weights: Array | None
    entropy_weight: Any
    derivation: EntropyGradient
    slopes: LabelCounts | None = None
    tilt: LabelCounts | None = None
    is_projected: bool = False

    def gradient(self, weights: Array, parts: list[ScoreGradient]) -> tuple[Array, Parameters]:
        """Loss and gradient of some shards, of which that by the learnt weights is there."""
        loss, *by_others = sum_parts(parts, self.edge_weights)
        return loss, Parameters(weights, *by_others)


class _Cores:
    """The cores of this machine: a thread each, as programs of one thread wait for each other."""

    timed = ("gather", "lattice", "scatter")

    def __init__(self, spread: Spread, cores: int | None):
        self._most = cores
        self._work: list[list[_Part]] = []
        self._gradients: list[Array | None] = []
        self._scores: dict[tuple[int, int], Array] = {}

    def place(self, tree: Any) -> Any:
        return jax.tree.map(jnp.asarray, tree)

    def hold(
        self,
        shards: Sequence[Shard],
        unlabelled: Sequence[Shard] | None,
        expected: ExpectationTerm | None = None,
    ) -> None:
        self.take(shards, unlabelled or (), None if expected is None else expected.marks)

    def take(
        self,
        shards: Sequence[Shard],
        unlabelled: Sequence[Shard],
        marks: Sequence[Shard] | None = None,
    ) -> None:
        together = min(len(shards) + len(unlabelled), usable_cores())
        # At least one core for each shard: `cores` is for callers that have more shards than cores.
        cores = max(len(shards), len(unlabelled), together)
        cores = max(1, min(cores, self._most or cores))
        self._work = [[] for _ in range(cores)]
        for index, shard in enumerate(shards):
            self._work[index % cores].append(_Part(shard, True))
        # The other way round, so that no core has both where there are cores for each.
        for index, shard in enumerate(unlabelled):
            part = _Part(shard, False, None if marks is None else marks[index])
            self._work[cores - 1 - index % cores].append(part)
        # A buffer for each core, kept from call to call and from batch to batch.
        self._gradients += [None] * (cores - len(self._gradients))

    def count(
        self, at: _Point, sizes: tuple[int, int, int], seconds: dict[str, float], keep: bool
    ) -> tuple[Array, LabelCounts]:
        """log Z and expected counts of all unlabelled shards; `keep` their scores for `run`."""

        def on_core(core: int) -> list[tuple[Array, LabelCounts]]:
            clock, counts = _Clock(seconds if core == 0 else {}), []
            for number, part in enumerate(self._work[core]):
                if part.marks is None:
                    continue
                nodes = node_scores(at.table, at.start, at.stop, part.shard, at.spread.labels)
                clock.note("gather", nodes)
                if keep:
                    self._scores[core, number] = nodes
                where = (nodes, at.edges, part.pair_weights(at), part.shard, part.marks)
                counts.append(expected_counts(*where, sizes, at.tilt))
                clock.note("lattice", counts[-1])
            return counts

        marked = [core for core, parts in enumerate(self._work) if any(p.marks for p in parts)]
        return add_up([each for counts in map_on_cores(on_core, marked) for each in counts])

    def run(
        self, at: _Point, seconds: dict[str, float], only_unlabelled: bool = False
    ) -> list[tuple[Array, Parameters]]:
        """Loss and gradient of each core."""

        def counts(part: _Part) -> bool:
            return part.counts(at) and not (only_unlabelled and part.labelled)

        def on_core(core: int) -> tuple[Array, Parameters]:
            clock, spread = _Clock(seconds if core == 0 else {}), at.spread
            # Taken out of the list while it is written over: a table that was given away to a
            # program that fails must not be used again.
            by_table, self._gradients[core] = self._gradients[core], None
            if by_table is None or by_table.dtype != at.table.dtype:
                by_table = jnp.zeros(spread.shape, at.table.dtype)
            gradients = []
            for number, part in enumerate(self._work[core]):
                if not counts(part):
                    continue
                nodes = self._scores.pop((core, number), None)
                if nodes is None:
                    nodes = node_scores(at.table, at.start, at.stop, part.shard, spread.labels)
                clock.note("gather", nodes)
                gradient = part.gradient(at, nodes)
                clock.note("lattice", gradient)
                add = len(gradients) > 0  # the first one writes over what the last call has left
                by_table = weight_gradient(
                    by_table, gradient.nodes, part.shard, spread.attributes, add
                )
                clock.note("scatter", by_table)
                gradients.append(gradient._replace(nodes=None))
            self._gradients[core] = by_table
            weights = _from_table(by_table, spread) if spread.sparse else by_table
            clock.note("scatter", weights)
            return at.gradient(weights, gradients)

        # Cores that are left without work are not started.
        busy = [core for core, work in enumerate(self._work) if any(map(counts, work))]
        return map_on_cores(on_core, busy)


class _Part(NamedTuple):
    """A shard, whether it is labelled, and where predicates of expectations hold in it."""

    shard: Shard
    labelled: bool
    marks: Shard | None = None

    def counts(self, at: _Point) -> bool:
        """Whether it is in the objective at all."""
        return self.labelled or at.entropy_weight is not None

    def pair_weights(self, at: _Point) -> Array | None:
        return None if self.shard.edge_ids is None else at.edge_weights

    def has_lattice(self, at: _Point) -> bool:
        """Whether there is more to it than expectations."""
        # A weight that is traced, or on a mesh, is not looked at.
        without_entropy = isinstance(at.entropy_weight, float | int) and at.entropy_weight == 0
        return self.labelled or self.marks is None or not without_entropy

    def gradient(self, at: _Point, nodes: Array) -> ScoreGradient:
        """Its loss and gradient by scores."""
        where, gradients = (nodes, at.edges, self.pair_weights(at), self.shard), []
        if at.is_projected and not self.labelled:
            return expected_features(*where, at.entropy_weight, self.marks, at.tilt)
        if self.has_lattice(at):
            kind = None if self.labelled else at.derivation
            gradients.append(lattice_gradient(*where, at.entropy_weight, kind))
        if self.marks is not None and at.slopes is not None:
            gradients.append(expectation_gradient(*where, self.marks, at.slopes))
        return gradients[0] if len(gradients) == 1 else add_up(gradients)


class _MeshDevices:
    """The devices of a mesh, each with shards of its own along ``"data"``."""

    timed = ()

    def __init__(self, spread: Spread, mesh: Mesh):
        self._mesh = mesh = check_mesh(mesh)
        if spans_processes(mesh):
            # Else sums over processes would add weights of different attributes, without a word.
            all_peers().check_same("vocabulary", _summary(spread))
        self._sizes = (spread.attributes, spread.labels)
        self._work: list[_Part] = []
        self._gradients: Array | None = None

    def place(self, tree: Any) -> Any:
        return place(tree, self._mesh)

    def hold(
        self,
        shards: Sequence[Shard],
        unlabelled: Sequence[Shard] | None,
        expected: ExpectationTerm | None = None,
    ) -> None:
        mesh, (attributes, labels) = self._mesh, self._sizes
        self._work = [_Part(place_shards(shards, mesh, attributes, labels), True)]
        if unlabelled is not None:
            placed = place_shards(unlabelled, mesh, attributes, labels)
            marks = None
            if expected is not None:
                marks = place_shards(expected.marks, mesh, expected.penalty.sizes[0], labels)
            self._work.append(_Part(placed, False, marks))

    def take(self, shards: Sequence[Shard], unlabelled: Sequence[Shard]) -> None:
        assert not unlabelled, "mini-batches on a mesh are labelled"
        # From the host each part goes to its own device at once, not by way of the first.
        on_host = [jax.tree.map(np.asarray, shard) for shard in shards]
        self._work = [_Part(place_rows(on_host, self._mesh), True)]

    def _nodes(self, at: _Point, shards: Shard) -> Array:
        return mesh_scores(at.table, at.start, at.stop, shards, self._mesh, at.spread.labels)

    def count(
        self, at: _Point, sizes: tuple[int, int, int], seconds: dict[str, float], keep: bool
    ) -> tuple[Array, LabelCounts]:
        """log Z and expected counts of all unlabelled shards."""
        part = self._work[-1]
        where = (self._nodes(at, part.shard), at.edges, part.pair_weights(at), part.shard)
        return _mesh_counts(*where, part.marks, at.tilt, self._mesh, sizes)

    def run(
        self, at: _Point, seconds: dict[str, float], only_unlabelled: bool = False
    ) -> list[tuple[Array, Parameters]]:
        """Loss and gradient of all devices, summed."""
        mesh, spread, parts = self._mesh, at.spread, []
        tables, self._gradients = self._gradients, None  # as of a core
        if tables is None or tables.dtype != at.table.dtype:
            tables = _empty_tables(spread, at.table.dtype, mesh)
        for work in self._work:
            if not work.counts(at) or (only_unlabelled and work.labelled):
                continue
            nodes = self._nodes(at, work.shard)
            weight = jnp.asarray(0.0 if work.labelled else at.entropy_weight, nodes.dtype)
            kind = None if work.labelled else at.derivation
            where = (nodes, at.edges, work.pair_weights(at), work.shard)
            if at.is_projected and not work.labelled:
                gradients = [_mesh_features(*where, weight, work.marks, at.tilt, mesh)]
            else:
                gradients = [_mesh_lattices(*where, weight, mesh, kind)]
            if work.marks is not None and at.slopes is not None:
                gradients.append(_mesh_expectations(*where, work.marks, at.slopes, mesh))
            by_token, part = add_up(gradients)
            tables = _mesh_scatter(
                tables, by_token, work.shard, spread.attributes, mesh, len(parts) > 0
            )
            parts.append(part)
        self._gradients = tables
        return [at.gradient(_mesh_sum(tables, spread, mesh), parts)]


def _empty_tables(spread: Spread, dtype: Any, mesh: Mesh) -> Array:
    """Zeros for every device's own gradient, [places, a + 1, p]."""
    shape = (mesh.size, *spread.shape)

    def part(index: Any) -> np.ndarray:
        return np.zeros([len(range(*i.indices(n))) for i, n in zip(index, shape)], dtype)

    return jax.make_array_from_callback(shape, NamedSharding(mesh, BY_DATA), part)


def _summary(spread: Spread) -> dict[str, Any]:
    """What processes must have in common to learn one model."""
    digest = hashlib.sha256()
    for array in (spread.places, spread.groups, spread.transitions):
        digest.update(b"-" if array is None else np.asarray(array).tobytes())
    return {
        "attributes": spread.attributes,
        "labels": spread.labels,
        "learnt weights": digest.hexdigest()[:16],
    }


class _Clock:
    """Adds the time since it was last asked to an entry."""

    def __init__(self, seconds: dict[str, float]):
        self._seconds, self._last = seconds, time.perf_counter()

    def note(self, name: str, result) -> None:
        # JAX hands out results before they are there: the time would go to whoever waits first.
        jax.block_until_ready(result)
        now = time.perf_counter()
        self._seconds[name] = self._seconds.get(name, 0.0) + now - self._last
        self._last = now
