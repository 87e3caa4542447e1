"""Unfinished searches of a tagger on disk.

A search may have several stages, one after another; a file on disk says which of them it is of.
It says neither how many processes there were nor how many blocks the weights were in.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax.sharding import NamedSharding

from jaxseq._io import (
    FORMAT,
    FORMAT_OF_INDEX,
    check_about,
    check_like,
    check_names,
    load_checkpoint,
    named_leaves,
    open_arrays,
    place_like,
    read_about,
    read_metadata,
    save_checkpoint,
    write_arrays,
)
from jaxseq._runtime import Outcome
from jaxseq.crf._mesh_objective import Blocks, RowsOf
from jaxseq.crf._parameters import Parameters
from jaxseq.crf._problem import EntropyTerm, Plan, Problem
from jaxseq.parallel import MODEL, Peers, mesh_peers, off_mesh
from jaxseq.text import TokenFeatures

# -------------------------------------------------------------------------------------------------
# Checkpoints of weights in blocks: every process writes and reads rows of its own.
#
# What depends on the number of blocks or processes is left out: a table of weights, of gradients or
# of the memory of L-BFGS is on disk as its rows in the order of attributes, and of its columns those
# of labels. Block for block these are in files of their own, the parts; the checkpoint itself is an
# index, which names them and has the small arrays. The parts are there before the index replaces the
# one before it, and the parts of that go last: whenever a process is killed, one checkpoint is whole.
#
# Files of safetensors rather than orbax: that would bring a dozen packages with it, tensorstore among
# them, where safetensors is one that models need anyway. Its slices read any rows out of files that
# any program can open, which is all that it takes to go on with other blocks on other processes.


FORMAT_OF_PART = "jaxseq checkpoint 2, part"

Tree = TypeVar("Tree")
Place = str | os.PathLike[str]


class _Part(NamedTuple):
    """A file beside the index, with the rows from `first` to before `stop`."""

    file: str
    first: int
    stop: int


def is_in_blocks(leaf: Any) -> bool:
    """Whether the rows of an array, its axis before the last, are along ``"model"``."""
    sharding = getattr(leaf, "sharding", None)
    if not isinstance(sharding, NamedSharding) or np.ndim(leaf) < 2:
        return False
    spec = [*sharding.spec, *[None] * np.ndim(leaf)]
    return MODEL in (spec[np.ndim(leaf) - 2] or ())


def any_in_blocks(tree: Any) -> bool:
    """Whether a pytree has to be saved in parts."""
    return any(is_in_blocks(leaf) for leaf in jax.tree.leaves(tree))


# ------------------------------------------------------------------------------------- writing


def save_parts(
    path: Place, tree: Any, about: str, extra: Any, blocks: Blocks, peers: Peers
) -> None:
    """Write the arrays of a pytree, some of them in blocks; at once or not at all.

    Args:
        path: of the index, which all processes must see; the parts are beside it.
        tree: a pytree of arrays on a mesh.
        about, extra: as of `save_checkpoint`.
        blocks: how the arrays are cut.
        peers: all processes of the mesh, which must call this together.
    """
    path, leaves = Path(path), named_leaves(tree)
    cut = {name: leaf for name, leaf in leaves.items() if is_in_blocks(leaf)}
    with peers.guard():
        number = peers.exchange(_number_on_disk(path) + 1)[0]
        parts = [
            _Part(f"{path.name}.part-{number}-{block}", *blocks.span(block))
            for block in range(blocks.count)
        ]
        for block, device in _own_blocks(next(iter(cut.values())).sharding.mesh):
            arrays = {
                name: _rows_on(device, leaf, parts[block], blocks) for name, leaf in cut.items()
            }
            metadata = {"format": FORMAT_OF_PART, "about": about}
            write_arrays(path.with_name(parts[block].file), arrays, metadata)
    with peers.guard():  # which nobody enters before all have written
        small = off_mesh({name: leaf for name, leaf in leaves.items() if name not in cut})
        if peers.is_first:
            metadata = {"format": FORMAT_OF_INDEX, "about": about, "extra": json.dumps(extra)}
            metadata |= {"number": str(number), "cut": json.dumps(sorted(cut))}
            metadata["parts"] = json.dumps(parts)
            write_arrays(path, {name: np.asarray(leaf) for name, leaf in small.items()}, metadata)
            remove_parts(path, number, {part.file for part in parts})


def _own_blocks(mesh: Any) -> list[tuple[int, Any]]:
    """The blocks that this process writes, and the device of each: by turns along ``"data"``."""
    places, count = mesh.devices.shape
    writers = [(block, mesh.devices[block % places, block]) for block in range(count)]
    return [each for each in writers if each[1].process_index == jax.process_index()]


def _rows_on(device: Any, leaf: jax.Array, part: _Part, blocks: Blocks) -> np.ndarray:
    """What a device has of an array in blocks, without rows and columns of padding."""
    data = next(shard.data for shard in leaf.addressable_shards if shard.device == device)
    rows = np.asarray(data)[..., : part.stop - part.first, : blocks.labels]
    return np.ascontiguousarray(rows)


def _number_on_disk(path: Path) -> int:
    """By which the names of parts differ from those of the checkpoint that they replace."""
    return int(read_metadata(path).get("number", 0)) if path.exists() else 0


def remove_parts(path: Place, number: int | None = None, but: set[str] | None = None) -> None:
    """Remove the parts of a checkpoint, and what was left of them where a process was killed.

    Args:
        path: of the index.
        number: of the checkpoint up to which; None for all. but: files to leave.
    """
    path = Path(path)
    name = re.compile(rf"\.?{re.escape(path.name)}\.part-(\d+)-\d+(\.tmp)?")
    for file in path.parent.iterdir() if path.parent.is_dir() else ():
        found = name.fullmatch(file.name)
        if found is None or file.name in (but or ()):
            continue
        if number is None or int(found[1]) <= number:
            file.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------- reading


def load_parts(path: Place, like: Tree, about: str, blocks: Blocks) -> tuple[Tree, Any]:
    """The pytree and the extra of `save_parts` or `save_checkpoint`, in blocks or not.

    Of what is in blocks on disk or is to be, every process reads the rows that its own devices
    need, one block at a time.

    Args:
        path: of the index, or of the single file.
        like: a pytree of the same structure and dtypes; its shapes are those of this search.
        about: as when saved.
        blocks: how the arrays of this search are cut; one block where they are not.

    Raises:
        ValueError: for files that are another's, missing or not whole.
    """
    path, leaves, placed = Path(path), named_leaves(like), []
    metadata = read_metadata(path)
    in_parts = metadata["format"] == FORMAT_OF_INDEX
    if not in_parts and not any_in_blocks(like):
        return load_checkpoint(path, like, about)
    check_about(path, metadata, about)
    readers = _readers_of_parts(path, metadata, blocks) if in_parts else {}
    with open_arrays(path, FORMAT, FORMAT_OF_INDEX) as (file, _):
        check_names(path, {**dict.fromkeys(file.keys()), **readers}, leaves)
        for name, leaf in leaves.items():
            if name in readers:
                placed.append(_place_table(path, name, readers[name], leaf, blocks))
            elif is_in_blocks(leaf):
                reader = _reader_of_table(path, name, file.get_slice(name), leaf, blocks)
                placed.append(_place_table(path, name, reader, leaf, blocks))
            else:
                array = file.get_tensor(name)
                check_like(path, name, array, leaf)
                placed.append(place_like(array, leaf))
    return jax.tree.unflatten(jax.tree.structure(like), placed), json.loads(metadata["extra"])


def _place_table(path: Path, name: str, rows_of: RowsOf, leaf: Any, blocks: Blocks) -> jax.Array:
    """Rows as a table of this search: in blocks, with a row of zeros, or flat."""
    probe = rows_of(0, 0)
    lead, size = probe.shape[:-2], blocks.attributes * blocks.labels
    table = (*lead, blocks.attributes + 1, blocks.width)
    shapes = [(*lead, *blocks.shape)] if is_in_blocks(leaf) else [table, (*lead, size)]
    if leaf.shape not in shapes or leaf.dtype != probe.dtype:
        raise ValueError(
            f"{path}: array {name}: expected {leaf.dtype} for a shape of {list(leaf.shape)}, got "
            f"{probe.dtype} for {' or '.join(str(list(shape)) for shape in shapes)}"
        )
    if is_in_blocks(leaf):
        return blocks.place(rows_of, leaf.dtype, leaf.sharding.mesh, lead)
    found = rows_of(0, blocks.attributes)
    if leaf.shape != table:
        return place_like(found.reshape(leaf.shape), leaf)
    whole = np.zeros(leaf.shape, leaf.dtype)
    whole[..., : blocks.attributes, : blocks.labels] = found
    return place_like(whole, leaf)


def _reader_of_table(path: Path, name: str, found: Any, leaf: Any, blocks: Blocks) -> RowsOf:
    """Of an array in a single file: a table with a row of zeros, or flat."""
    shape, labels = found.get_shape(), blocks.labels
    lead = list(leaf.shape[:-2])
    if shape == [*lead, blocks.attributes * labels]:
        return lambda first, stop: found[..., first * labels : stop * labels].reshape(
            *lead, stop - first, labels
        )
    if shape == [*lead, blocks.attributes + 1, blocks.width]:
        return lambda first, stop: found[..., first:stop, :labels]
    raise ValueError(
        f"{path}: array {name}: expected the weights of {blocks.attributes} attributes and "
        f"{labels} labels, got shape {shape}"
    )


def _readers_of_parts(path: Path, metadata: Mapping[str, str], blocks: Blocks) -> dict[str, RowsOf]:
    """For each array that is in parts; ValueError unless the parts are all there and whole."""
    names = json.loads(metadata["cut"])
    parts = [_Part(*each) for each in json.loads(metadata["parts"])]
    for part in parts:
        _check_part(path, part, names, metadata["about"], blocks)
    ends = [0, *(part.stop for part in parts)]
    if [part.first for part in parts] != ends[:-1] or ends[-1] != blocks.attributes:
        raise ValueError(
            f"{path}: expected the rows of {blocks.attributes} attributes in its parts, got "
            f"{[part[1:] for part in parts]}"
        )

    def reader(name: str) -> RowsOf:
        def rows_of(first: int, stop: int) -> np.ndarray:
            spans = [(part, max(first, part.first), min(stop, part.stop)) for part in parts]
            spans = [span for span in spans if span[1] < span[2]] or [(parts[0], 0, 0)]
            pieces = []
            for part, begin, end in spans:
                with open_arrays(path.with_name(part.file), FORMAT_OF_PART) as (file, _):
                    inside = slice(begin - part.first, end - part.first)
                    pieces.append(file.get_slice(name)[..., inside, :])
            return np.concatenate(pieces, -2)

        return rows_of

    return {name: reader(name) for name in names}


def _check_part(path: Path, part: _Part, names: list[str], about: str, blocks: Blocks) -> None:
    place = path.with_name(part.file)
    if not place.is_file():
        raise ValueError(f"{place}: expected a part of the checkpoint {path}, there is none")
    with open_arrays(place, FORMAT_OF_PART) as (file, metadata):
        check_about(place, metadata, about)
        check_names(place, dict.fromkeys(file.keys()), dict.fromkeys(names))
        for name in names:
            shape, wanted = (
                file.get_slice(name).get_shape(),
                [part.stop - part.first, blocks.labels],
            )
            if shape[-2:] != wanted:
                raise ValueError(
                    f"{place}: array {name}: expected {wanted[0]} rows of {wanted[1]} labels, got "
                    f"shape {shape}"
                )


if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxseq.crf._mesh_objective import Blocks


class Before(NamedTuple):
    """Iterations and evaluations of the stages before the one that is running."""

    iterations: int = 0
    evaluations: int = 0


class Keeper:
    """Keeps the stages of one search in a file, or nowhere.

    Args:
        path: the file; None keeps nothing.
        about: says which search this is.
        also: another name of the same search, under which a file is read, but none is written.
        peers: on a mesh, all its processes. The first one writes; where weights are in blocks, each
            writes some of them. All must see the file.
        blocks: how the weights are cut in this search; None where they never are.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        about: str,
        also: Callable[[], str] | None = None,
        peers: Peers | None = None,
        blocks: Blocks | None = None,
    ):
        self._path = None if path is None else Path(path)
        self._about = self._about_on_disk = about
        self._on_mesh, self._blocks = peers is not None, blocks
        self._peers = Peers(0, 1, lambda message: [message]) if peers is None else peers
        if self._path is None:
            return
        if self._path.is_dir():
            raise ValueError(f"{path}: expected a file to keep the search in, got a folder")
        exists = self._path.exists()
        self._peers.check_same(f"{path}: is there", exists)
        if not exists:
            return
        found = read_about(self._path) or ""
        if also is not None and not found.startswith(about) and found.startswith(other := also()):
            self._about_on_disk = other

    def _name_on_disk(self, stage: int) -> str:
        return _name(self._about_on_disk, stage)

    def stage(self, stages: int) -> int:
        """The stage on disk; the first where there is none, or another search's (which `resumed`
        refuses)."""
        if self._path is None or not self._path.exists():
            return 0
        found = read_about(self._path)
        return next((stage for stage in range(stages) if found == self._name_on_disk(stage)), 0)

    def resumed(self, begun: Any, stage: int) -> tuple[Any, Before | None]:
        """The state on disk, and what was done before its stage; else the one given, and None.

        A file of an earlier stage of the same search is over, and only waits to be replaced.
        """
        if self._path is None or not self._path.exists():
            return begun, None
        if read_about(self._path) in [self._name_on_disk(earlier) for earlier in range(stage)]:
            return begun, None
        like, name = _arrays_of(begun), self._name_on_disk(stage)
        with self._peers.guard():
            if self._blocks is None:
                tree, extra = load_checkpoint(self._path, like, name)
            else:
                tree, extra = load_parts(self._path, like, name, self._blocks)
        before = Before(*extra.pop("before"))
        return begun._replace(**tree, **{**extra, "values": tuple(extra["values"])}), before

    def keep(self, state: Any, stage: int, before: Before) -> None:
        """Write a state."""
        if self._path is None:
            return
        names = ("value", "iteration", "values", "evaluations")
        extra = {name: getattr(state, name) for name in names if hasattr(state, name)}
        extra["before"] = list(before)
        arrays, about = _arrays_of(state), _name(self._about, stage)
        self._about_on_disk = self._about
        if self._blocks is not None and any_in_blocks(arrays):
            save_parts(self._path, arrays, about, extra, self._blocks, self._peers)
            return
        arrays = off_mesh(arrays) if self._on_mesh else arrays
        with self._peers.guard():
            if self._peers.is_first:
                save_checkpoint(self._path, arrays, about, extra)
                remove_parts(self._path)  # also of a search that was killed

    def finish(
        self, outcome: Outcome, state: Any | None, stage: int, before: Before, last: bool
    ) -> None:
        """A search that is over leaves nothing. One that was interrupted or cut short does, and so
        does a stage that others follow: to go on from its end is to begin the next."""
        if self._path is None:
            return
        goes_on = not last or outcome in (Outcome.INTERRUPTED, Outcome.MAX_ITERATIONS)
        if not goes_on:
            with self._peers.guard():
                if self._peers.is_first:
                    self._path.unlink(missing_ok=True)
                    remove_parts(self._path)  # also of a search that was killed
        elif state is not None:
            self.keep(state, stage, before)


def _name(about: str, stage: int) -> str:
    return f"{about} stage {stage}"


def _arrays_of(state: Any) -> dict[str, Any]:
    names = ("parameters", "gradient", "memory")
    return {name: getattr(state, name) for name in names if hasattr(state, name)}


def fingerprint(
    problem: Problem, plan: Plan, start: Parameters, term: EntropyTerm, warm: bool, steps: int
) -> str:
    """Says which search this is: a hash of the data, the settings and the starting point.

    A search in one stage may be taken further by more iterations; with several stages, that would
    be another search from the first of them on. `steps` is how many will be made, by mini-batches.
    """
    settings = plan.settings._replace(max_iterations=0)
    parts: list[Any] = [problem.classes, problem.attributes, problem.transitions]
    parts += [plan.weights, plan.algorithm, settings, plan.l2, plan.batch_size, plan.cores]
    if plan.algorithm != "lbfgs":
        parts += [plan.epochs, plan.learning_rate, plan.seed]
    features = [problem.features]
    if problem.unlabelled is not None:
        features.append(problem.unlabelled)
        parts += [term.gradient, warm]
        iterations = plan.settings.max_iterations
        if plan.algorithm != "lbfgs":
            parts.append([term.at(step) for step in range(steps if callable(term.weight) else 1)])
        elif warm and not callable(term.weight):
            parts.append(term.weight)
        else:
            parts += [term.pieces(iterations), iterations]
    digest = hashlib.sha256(repr(parts).encode())
    arrays: list[Any] = [problem.labels.gold, problem.labels.allowed, problem.sentence_weights]
    for each in features:
        arrays += [each.ids, each.values, each.lengths, each.edge_ids]
    arrays += [*(problem.legal or ()), *jax.tree.leaves(start)]
    for array in arrays:
        digest.update(b"-" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


# -------------------------------------------------------------------------------------------------
# Which search this is, whoever has which of its sentences.


MODULUS = 1 << 256


def shared_fingerprint(
    problem: Problem, plan: Plan, start: Parameters, term: EntropyTerm, warm: bool
) -> str:
    """A hash of all processes' data, the settings of L-BFGS and the starting point.

    Neither the number of processes or devices nor the order of the sentences is in it: a search
    that was stopped on some goes on, up to rounding, on others.
    """
    settings = plan.settings._replace(max_iterations=0)
    parts: list[Any] = [problem.classes, problem.attributes, problem.transitions]
    parts += [plan.weights, plan.algorithm, settings, plan.l2]
    labels, weights = problem.labels, problem.sentence_weights
    # One label that is known and a set of one are the same, as is a sentence that counts once.
    known = _allowed(labels.gold, labels.allowed, len(problem.classes))
    count = len(problem.features.lengths)
    each = np.ones(count) if weights is None else np.asarray(weights, float)
    sums = [sum_of_sentences(problem.features, known, each)]
    if problem.unlabelled is not None:
        iterations = plan.settings.max_iterations
        parts += [term.gradient, warm]
        constant = warm and not callable(term.weight)
        parts += [term.weight] if constant else [term.pieces(iterations), iterations]
        ones = np.ones(len(problem.unlabelled.lengths))
        sums.append(sum_of_sentences(problem.unlabelled, None, ones))
    found = mesh_peers(plan.mesh).exchange([f"{value:x}" for value in sums])
    parts += [sum(int(value, 16) for value in values) % MODULUS for values in zip(*found)]
    digest = hashlib.sha256(repr(parts).encode())
    for array in [*(problem.legal or ()), *jax.tree.leaves(start)]:
        digest.update(np.ascontiguousarray(array).tobytes())
    return f"shared {digest.hexdigest()}"


def _allowed(gold: np.ndarray, allowed: np.ndarray | None, labels: int) -> np.ndarray:
    """Bits of the labels that each token may have."""
    which = gold[:, None] == np.arange(labels) if allowed is None else allowed
    return np.packbits(which, axis=1)


def sum_of_sentences(features: TokenFeatures, known: np.ndarray | None, weights: np.ndarray) -> int:
    """The sum of a hash of every sentence, which its order does not change."""
    arrays = [features.ids, features.values, features.edge_ids, known]
    ends, total = np.cumsum(features.lengths), 0
    for end, length, weight in zip(ends.tolist(), features.lengths.tolist(), weights.tolist()):
        digest = hashlib.sha256(repr((length, weight)).encode())
        for array in arrays:
            digest.update(b"-" if array is None else array[end - length : end].tobytes())
        total += int.from_bytes(digest.digest(), "big")
    return total % MODULUS
