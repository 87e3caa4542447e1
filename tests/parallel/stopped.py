"""Searches with weights in blocks that are stopped and gone on with in others, on many devices.

Of `tests.parallel.on_mesh`, whose process has the devices.
"""

import gc
import shutil
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxseq.crf import Blocks, CRFTagger, MeshObjective, Spread, _lbfgs
from jaxseq.crf import _decoding as _mesh_lattices
from jaxseq.crf import _resume as _mesh_checkpoint
from jaxseq.parallel import Peers, make_mesh
from tests.parallel import problems

SETTINGS = {
    "templates": ["word[0]", "word[-1]|word[0]"],
    "weights": "dense",
    "dtype": "float64",
    "tolerance": 0.0,
    "cores": 1,
    "progress": False,
    "checkpoint_every": 3,
}
STOPPED, ALL = 4, 7
"""Iterations."""

ALONE = Peers(0, 1, lambda message: [message])


def mesh_of(places, model):
    """Of the first devices."""
    return make_mesh(jax.devices()[: places * model], model=model)


def draw_sentences(rng, count):
    """Sentences of three labels, some without a word."""
    X = [[f"w{i}" for i in rng.integers(0, 9, rng.integers(0, 9))] for _ in range(count)]
    return X, [["ABC"[int(word[1:]) % 3] for word in sentence] for sentence in X]


def fit(iterations, mesh=None, checkpoint=None):
    """A tagger."""
    data = draw_sentences(np.random.default_rng(60), 15)
    settings = {**SETTINGS, "max_iterations": iterations, "checkpoint": checkpoint}
    return CRFTagger(**settings).fit(*data, mesh=mesh)


def files_of(folder):
    """Names of the files in it."""
    return sorted(file.name for file in folder.iterdir())


def gone_on_with():
    """Distance from a search that was not stopped, for each pair of where it began and ended."""
    whole = fit(ALL)
    meshes = {"no mesh": None, "1": mesh_of(1, 1), "2": mesh_of(2, 2), "4": mesh_of(1, 4)}
    pairs = ("2", "4"), ("2", "1"), ("2", "no mesh"), ("no mesh", "2"), ("1", "4")
    with tempfile.TemporaryDirectory() as place:
        for begun, ended in pairs:
            path = Path(place) / f"{begun} {ended}" / "search"
            fit(STOPPED, meshes[begun], path)
            found = fit(ALL, meshes[ended], path)
            far = problems.distance((whole.loss_, whole.model_), (found.loss_, found.model_))
            yield f"{begun} to {ended}", far
            yield f"files, {begun} to {ended}", files_of(path.parent)
        yield from broken(Path(place) / "2 4", meshes["2"], whole)


def broken(folder, mesh, whole):
    """What is said of parts that are missing or cut; what a kill before the index leaves."""
    path, other = folder.parent / "broken" / "search", folder.parent / "copy"
    fit(STOPPED, mesh, path)
    shutil.copytree(path.parent, other)
    part = next(file for file in other.iterdir() if file.name.endswith("-1"))
    part.write_bytes(part.read_bytes()[:-5])
    yield "cut", said(lambda: fit(ALL, mesh, other / "search"))
    part.unlink()
    yield "missing", said(lambda: fit(ALL, mesh, other / "search"))
    ordinary = _mesh_checkpoint.write_arrays

    def stop_at_index(file, *arguments):
        if Path(file).name == "search":
            raise OSError("killed")
        ordinary(file, *arguments)

    _mesh_checkpoint.write_arrays = stop_at_index
    before = path.read_bytes()
    yield "killed", said(lambda: fit(ALL, mesh, path))
    _mesh_checkpoint.write_arrays = ordinary
    yield "index is as before", path.read_bytes() == before
    yield "files of two", files_of(path.parent)
    found = fit(ALL, mesh, path)
    yield "after the kill", problems.distance(whole.model_, found.model_)
    yield "files of one", files_of(path.parent)
    yield from orphans(path.parent / "orphans" / "search", mesh)


def orphans(path, mesh):
    """What a search that was killed before its first index leaves is gone after another."""
    path.parent.mkdir()
    for name in ("search.part-1-0", ".search.part-1-1.tmp", "search.part-2", "other.part-1-0"):
        path.with_name(name).touch()
    data = draw_sentences(np.random.default_rng(60), 15)
    settings = {**SETTINGS, "tolerance": 0.1, "checkpoint": path, "max_iterations": 300}
    CRFTagger(**settings).fit(*data, mesh=mesh)
    yield "orphans", files_of(path.parent)


def said(run):
    """The error of a function."""
    try:
        run()
    except (ValueError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return None


# ------------------------------------------------------------------------------- rows alone


def rows_of_any_blocks():
    """How many tables do not come back as they were, in other blocks, whole or flat."""
    rng, wrong, tried = np.random.default_rng(61), 0, 0
    with tempfile.TemporaryDirectory() as place:
        for attributes, labels in ((1, 3), (5, 8), (7, 2), (24, 3)):
            table = rng.normal(size=(2, attributes, labels))
            spread = Spread(attributes=attributes, labels=labels)
            for saved in (mesh_of(2, 2), mesh_of(1, 8), mesh_of(2, 3)):
                path = Path(place) / "search"
                cut = Blocks.of(spread, saved)
                tree = {"small": jnp.arange(3), "tables": in_blocks(table, cut, saved)}
                _mesh_checkpoint.save_parts(path, tree, "it", [1], cut, ALONE)
                for like, blocks in destinations(tree, table, spread):
                    got, extra = _mesh_checkpoint.load_parts(path, like, "it", blocks)
                    tried += 1
                    same = np.array_equal(rows_in(got["tables"], blocks), table)
                    wrong += not (same and extra == [1] and got["small"].tolist() == [0, 1, 2])
    yield "tables tried", tried
    yield "tables that differ", wrong


def in_blocks(table, blocks, mesh):
    """A table [2, attributes, labels] in blocks."""
    rows_of = lambda first, stop: table[:, first:stop]  # noqa: E731
    return blocks.place(rows_of, table.dtype, mesh, table.shape[:1])


def destinations(tree, table, spread):
    """Trees of zeros to read into."""
    for mesh in (mesh_of(4, 2), mesh_of(1, 3), mesh_of(1, 1)):
        blocks = Blocks.of(spread, mesh)
        if blocks.count > 1:
            yield {**tree, "tables": in_blocks(0 * table, blocks, mesh)}, blocks
        else:
            yield {**tree, "tables": jnp.zeros((2, *spread.shape))}, blocks
            yield {**tree, "tables": jnp.zeros((2, table[0].size))}, blocks


def rows_in(found, blocks):
    """The rows of the attributes, wherever they are."""
    found = np.asarray(found)
    if found.ndim == 2:
        return found.reshape(2, blocks.attributes, blocks.labels)
    cut = found.reshape(2, blocks.count, -1, blocks.width)[:, :, : blocks.rows, : blocks.labels]
    return cut.reshape(2, -1, blocks.labels)[:, : blocks.attributes]


# --------------------------------------------------------------------------- what devices hold


def largest_share():
    """Of the table of weights, the most that one array has on one device while a tagger trains,
    and while it predicts."""
    rng = np.random.default_rng(62)
    X = [[f"w{word}" for word in rng.integers(0, 10**6, 8)] for _ in range(60)]
    y = [["ABC"[int(word[-1]) % 3] for word in sentence] for sentence in X]
    settings = {"templates": [f"word[{n}]" for n in range(-2, 3)], "weights": "dense"}
    tagger = CRFTagger(**settings, memory_size=2, max_iterations=3, progress=False)
    seen, ordinary = [], (_lbfgs.iterate, MeshObjective.collect_parameters)

    def look():
        arrays = jax.live_arrays()
        seen.append(max(s.data.size for array in arrays for s in array.addressable_shards))

    def iterate(*arguments):
        look()
        return ordinary[0](*arguments)

    def collect(self, parameters):
        look()
        return ordinary[1](self, parameters)

    gc.collect()  # what is left of other results
    mesh = mesh_of(1, 8)
    _lbfgs.iterate, MeshObjective.collect_parameters = iterate, collect
    try:
        tagger.fit(X, y, mesh=mesh)
    finally:
        _lbfgs.iterate, MeshObjective.collect_parameters = ordinary
    yield "looks", len(seen)
    yield "largest share", max(seen) / tagger.model_.table.size
    placed, ordinary_place = [], _mesh_lattices._place_model

    def place(*arguments):
        model, blocks = ordinary_place(*arguments)
        placed.append(max(shard.data.size for shard in model.table.addressable_shards))
        return model, blocks

    _mesh_lattices._place_model = place
    try:
        tagger.predict(X[:3], mesh=mesh)
    finally:
        _mesh_lattices._place_model = ordinary_place
    yield "largest share in prediction", max(placed) / tagger.model_.table.size
