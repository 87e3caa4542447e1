"""The best labellings of many sequences under constraints, in few shapes, on cores or on a mesh."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float, Int

from jaxseq._runtime import map_on_cores, usable_cores
from jaxseq.constraints._constraint import Constraints
from jaxseq.constraints._search import (
    WIDTH,
    Labellings,
    beam_search,
    exact_search,
    fold_local,
    joint_states,
)
from jaxseq.lattice import Chain, as_count, k_best
from jaxseq.parallel import BY_DATA, EVERYWHERE, check_mesh, own_mesh, own_parts, place, place_rows

__all__ = ["CorpusLabellings", "search_corpus"]

Search = Literal["auto", "beam", "exact"]

CHUNK = 64
"""Sequences of similar length that are searched together."""

FEW_STATES = 64
"""Joint states that are searched exactly without being asked to, for a single labelling."""


class CorpusLabellings(NamedTuple):
    """The best labellings of many sequences.

    labels [N, k]: of all tokens, one sequence after another; −1 where a sequence has no legal
    labelling at all. scores [B, k]: less the soft penalties, −inf where there are fewer than k.
    hard [B, k]: violations of hard constraints. exact: whether these are certainly the best ones.

    Example:
        >>> import numpy as np
        >>> from jaxseq.constraints import bind_constraints
        >>> nodes, edges = np.zeros((2, 2), np.float32), np.zeros((2, 2), np.float32)
        >>> best = search_corpus(nodes, edges, np.array([2]), bind_constraints([], ["A", "B"]), ())
        >>> best.labels.shape, best.scores.shape
        ((2, 1), (1, 1))
    """

    labels: Int[np.ndarray, "N k"]
    scores: Float[np.ndarray, "B k"]
    hard: Int[np.ndarray, "B k"]
    exact: bool


def search_corpus(
    nodes: Float[np.ndarray, "N s"],
    edges: Any,
    lengths: Int[np.ndarray, " B"],
    constraints: Constraints,
    x: tuple[Any, ...],
    k: int = 1,
    width: int | None = None,
    method: Search = "auto",
    cores: int | None = None,
    mesh: Mesh | None = None,
) -> CorpusLabellings:
    """The k best labellings of each sequence under constraints.

    Args:
        nodes: scores of all tokens' labels, one sequence after another.
        edges: scores of transitions, [s, s]; or [N, s, s], those *into* each token.
        lengths: tokens of each sequence, N together.
        constraints: from `bind_constraints`.
        x: from `Constraints.observe_all`.
        k: labellings wanted.
        width: of the beam; None for 50, or k if that is more.
        method: ``"beam"``; ``"exact"``; or ``"auto"``, which is exact where that is as cheap: soft
            local constraints, and few joint states with k = 1.
        cores: threads; None for all.
        mesh: devices to share the sequences out to, along the axis ``"data"`` of
            `jaxseq.parallel.make_mesh`; where it spans several processes, each searches its own.

    Raises:
        ValueError: for shapes that do not fit, or constraints that cannot be searched exactly.

    Cost: as `beam_search`, one thread per core; one program is compiled for each of few lengths.

    Example:
        >>> import numpy as np
        >>> from jaxseq.constraints import AtMostOnce, bind_constraints
        >>> rules = bind_constraints([AtMostOnce()], ["A", "B"], penalty=5.0)
        >>> nodes = np.array([[1, 0], [0, 1], [1.5, 0], [0, 1]], np.float32)
        >>> best = search_corpus(
        ...     nodes, np.zeros((2, 2), np.float32), np.array([3, 1]), rules, (None,))
        >>> best.labels[:, 0].tolist(), best.scores.tolist(), best.exact
        ([0, 0, 0, 1], [[2.5], [1.0]], True)
    """
    nodes, lengths = np.asarray(nodes), np.asarray(lengths, np.int64)
    _check(nodes, edges, lengths, constraints, x)
    # What costs nothing is left out, so that the search is to the bit that of a model without it;
    # and names are left out, which are no reason to compile anew.
    chosen = constraints.costly
    kept = constraints.only(chosen)
    constraints = Constraints(kept.parts, kept.penalties, kept.hard, (), kept.num_labels)
    x = tuple(x[number] for number in chosen)
    run, exact = _choose(constraints, k, width, method)
    order = np.argsort(lengths, kind="stable")  # neighbours are of similar length
    chunks = [order[first : first + CHUNK] for first in range(0, len(order), CHUNK)]
    starts = np.cumsum(lengths) - lengths

    def pad(members: np.ndarray, rows: int, width: int | None = None):
        count, spread = make_padding(members, starts, lengths, rows, width)
        # A chain of n positions has n − 1 edges: those into the first token are none of its own.
        moved = edges if np.ndim(edges) == 2 else spread(edges)[:, 1:]
        return spread(nodes), jnp.asarray(moved), count, jax.tree.map(spread, x)

    def search(members: np.ndarray) -> Labellings:
        block = pad(members, 1 if len(members) == 1 else CHUNK)
        return jax.tree.map(np.asarray, _search_block(*block, constraints, run))

    if mesh is None:
        # Chunks are in the order of their lengths: those of one round take about as long.
        step, results = cores or usable_cores(), []
        for first in range(0, len(chunks), step):
            results += map_on_cores(search, chunks[first : first + step])
    else:
        longest = [padded_length(int(lengths[members].max())) for members in chunks]
        results = _search_on_mesh(chunks, longest, partial(pad, rows=CHUNK), constraints, run, mesh)
    labels = np.full((len(nodes), k), -1, np.int32)
    scores, hard = np.zeros((len(lengths), k), nodes.dtype), np.zeros((len(lengths), k), np.int32)
    for members, best in zip(chunks, results):
        for row, member in enumerate(members):
            tokens = slice(starts[member], starts[member] + lengths[member])
            labels[tokens] = best.paths[row, :, : lengths[member]].T
        scores[members], hard[members] = best.scores[: len(members)], best.hard[: len(members)]
    return CorpusLabellings(labels, scores, hard, exact)


def _check(nodes, edges, lengths, constraints: Constraints, x: tuple[Any, ...]) -> None:
    if (lengths < 0).any():
        raise ValueError(f"lengths: expected numbers of tokens, got {lengths.min()}")
    total, s = int(lengths.sum()), constraints.num_labels
    if nodes.shape != (total, s):
        raise ValueError(f"nodes: expected shape [{total}, {s}], got {list(nodes.shape)}")
    if np.shape(edges) not in ((s, s), (total, s, s)):
        wanted = f"[{s}, {s}] or [{total}, {s}, {s}]"
        raise ValueError(f"edges: expected shape {wanted}, got {list(np.shape(edges))}")
    if len(x) != len(constraints):
        raise ValueError(f"x: expected one of each of {len(constraints)} constraints, got {len(x)}")
    for leaf in jax.tree.leaves(x):
        if len(leaf) != total:
            raise ValueError(f"x: expected arrays of {total} tokens, got one of {len(leaf)}")


class _Run(eqx.Module):
    """A search with its numbers, equal to another with the same: one compilation for both."""

    # A partial function would be new for each call, and jit would compile anew for each.
    search: Callable = eqx.field(static=True)
    numbers: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, chain: Chain, constraints: Constraints, x: tuple[Any, ...]) -> Labellings:
        return self.search(chain, constraints, x, *self.numbers)


def _viterbi(chain: Chain, constraints: Constraints, x: tuple[Any, ...], k: int) -> Labellings:
    paths, scores = k_best(fold_local(chain, constraints, x).chain, k)
    return Labellings(paths, scores, jnp.zeros(k, jnp.int32))


def _choose(constraints: Constraints, k: int, width: int | None, method: str) -> tuple[_Run, bool]:
    """How to search, and whether that is exact."""
    if method not in ("auto", "beam", "exact"):
        raise ValueError(f"method: expected 'auto', 'beam' or 'exact', got {method!r}")
    if width is not None:
        as_count("width", width, 1)
    states = joint_states(constraints)
    # Hard local constraints need the least violation where none satisfies them: not Viterbi's.
    folds = constraints.all_local and not constraints.any_hard
    if method != "beam" and folds:
        return _Run(_viterbi, (k,)), True
    few = k == 1 and states is not None and states <= FEW_STATES
    if method == "exact" or (method == "auto" and few):
        return _Run(exact_search, (k,)), True
    return _Run(beam_search, (k, max(WIDTH, k) if width is None else width)), False


@partial(jax.jit, static_argnums=5)
def _search_block(nodes, edges, lengths, x, constraints: Constraints, run: _Run) -> Labellings:
    def one(nodes, edges, length, x):
        return run(Chain(nodes, edges, length), constraints, x)

    shared = edges.ndim == 2  # one matrix for all rows, instead of a copy of it for each
    return jax.vmap(one, (0, None if shared else 0, 0, 0))(nodes, edges, lengths, x)


@partial(jax.jit, static_argnames=("run", "mesh", "shared"))
def _search_shard(blocks, edges, constraints, run: _Run, mesh: Mesh, shared: bool):
    def on_device(blocks, edges, constraints):
        nodes, own_edges, lengths, x = jax.tree.map(lambda array: array[0], blocks)
        edges = edges if shared else own_edges
        best = _search_block(nodes, edges, lengths, x, constraints, run)
        return jax.tree.map(lambda array: array[None], best)

    specs = (BY_DATA, EVERYWHERE, EVERYWHERE)
    return jax.shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=BY_DATA, check_vma=False)(
        blocks, edges, constraints
    )


def _search_on_mesh(
    chunks: list[np.ndarray],
    longest: list[int],
    pad: Callable[..., tuple[Any, Any, np.ndarray, Any]],
    constraints: Constraints,
    run: _Run,
    mesh: Mesh,
) -> list[Labellings]:
    """The labellings of every chunk of sequences, as many chunks at a time as there are devices.

    Sequences do not depend on each other: only the devices of this process take part, and nothing
    is sent between them.
    """
    mesh = own_mesh(check_mesh(mesh))
    places, constraints = mesh.devices.shape[0], place(constraints, mesh)
    results: list[Labellings] = []
    for first in range(0, len(chunks), places):
        group = chunks[first : first + places]
        width = max(longest[first : first + places])  # all devices run one program of one shape
        blocks = [pad(chunk, width=width) for chunk in group]
        shared = np.ndim(blocks[0][1]) == 2
        edges = place(blocks[0][1], mesh) if shared else None
        blocks = [(nodes, None if shared else own, count, x) for nodes, own, count, x in blocks]
        blocks += [blocks[-1]] * (places - len(blocks))  # the last one again where there are none
        placed = place_rows(blocks, mesh)
        parts = [own_parts(a) for a in _search_shard(placed, edges, constraints, run, mesh, shared)]
        results += [Labellings(*each) for each in list(zip(*parts))[: len(group)]]
    return results


def padded_length(n: int) -> int:
    """The next of 8, 12, 16, 24, 32, 48, …: few shapes, little padding."""
    power = max(8, 1 << max(n - 1, 0).bit_length())
    return power * 3 // 4 if n <= power * 3 // 4 and power > 8 else power


def make_padding(
    members: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    rows: int,
    width: int | None = None,
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Lengths of some sequences, and the function that makes [rows, width, …] of tokens [N, …]."""
    width = padded_length(int(lengths[members].max())) if width is None else width
    count, begin = np.zeros(rows, np.int32), np.zeros(rows, np.int64)
    # Rows without a member have length 0, and are padding altogether.
    count[: len(members)], begin[: len(members)] = lengths[members], starts[members]
    inside = np.arange(width) < count[:, None]
    index = np.where(inside, begin[:, None] + np.arange(width), 0)

    def spread(array: np.ndarray) -> np.ndarray:
        array = np.asarray(array)
        if not len(array):  # no sequence has a token, and so there is no row 0 to read either
            array = np.zeros((1, *array.shape[1:]), array.dtype)
        mask = inside.reshape(*inside.shape, *(1,) * (array.ndim - 1))
        return np.where(mask, array[index], np.zeros((), array.dtype))

    return count, spread
