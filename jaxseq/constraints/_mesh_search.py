"""The search under constraints on the devices of a mesh."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jaxseq.constraints._beam import Labellings
from jaxseq.constraints._set import Constraints
from jaxseq.scale._mesh import (
    BY_DATA,
    EVERYWHERE,
    check_mesh,
    own_mesh,
    own_parts,
    place,
    place_rows,
)

SearchBlock = Callable[..., Labellings]
"""From nodes, edges, lengths, observations, constraints and a search to the labellings."""


@partial(jax.jit, static_argnames=("search_block", "run", "mesh", "shared"))
def _search(blocks, edges, constraints, search_block, run, mesh: Mesh, shared: bool):
    def on_device(blocks, edges, constraints):
        nodes, own_edges, lengths, x = jax.tree.map(lambda array: array[0], blocks)
        edges = edges if shared else own_edges
        found = search_block(nodes, edges, lengths, x, constraints, run)
        return jax.tree.map(lambda array: array[None], found)

    specs = (BY_DATA, EVERYWHERE, EVERYWHERE)
    return jax.shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=BY_DATA, check_vma=False)(
        blocks, edges, constraints
    )


def search_on_mesh(
    chunks: list[np.ndarray],
    pad: Callable[[np.ndarray, int], tuple[Any, Any, np.ndarray, Any]],
    longest: Callable[[np.ndarray], int],
    constraints: Constraints,
    run: Any,
    search_block: SearchBlock,
    mesh: Mesh,
) -> list[Labellings]:
    """The labellings of every chunk of sequences, as many chunks at a time as there are devices.

    Sequences do not depend on each other: only the devices of this process take part, and nothing
    is sent between them.

    Args:
        chunks: sequences that are searched together.
        pad: the arrays of a chunk, padded to a length. longest: the padded length of a chunk.
        constraints, run, search_block: what is searched under, and how.
        mesh: as of `jaxseq.scale.make_mesh`.
    """
    mesh = own_mesh(check_mesh(mesh))
    places, constraints = mesh.devices.shape[0], place(constraints, mesh)
    found: list[Labellings] = []
    for first in range(0, len(chunks), places):
        group = chunks[first : first + places]
        length = max(map(longest, group))
        blocks = [pad(chunk, length) for chunk in group]
        shared = np.ndim(blocks[0][1]) == 2
        edges = place(blocks[0][1], mesh) if shared else None
        blocks = [(nodes, None if shared else e, count, x) for nodes, e, count, x in blocks]
        blocks += [blocks[-1]] * (places - len(blocks))
        placed = place_rows(blocks, mesh)
        result = _search(placed, edges, constraints, search_block, run, mesh, shared)
        parts = [own_parts(array) for array in result]
        found += [Labellings(*each) for each in list(zip(*parts))[: len(group)]]
    return found
