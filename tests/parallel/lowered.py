"""The programs of a mesh, lowered for GPUs and TPUs. Of `tests.parallel.on_mesh`."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from jaxseq.constraints import AtMostOnce, Penalised, StartsWith, bind_constraints, search_corpus
from jaxseq.constraints import _corpus as _mesh_search
from jaxseq.crf import CRF
from jaxseq.crf import _decoding as _lattices
from jaxseq.crf import _decoding as _mesh_lattices
from jaxseq.crf import _objective as mesh_objective
from jaxseq.hmm import Multinomials, expected_counts, viterbi_counts
from jaxseq.parallel import make_mesh
from tests.parallel import problems


def wrong_with(function, *arguments):
    """Lines of the program that are not for accelerators."""
    # Here, since it makes arrays at once: processes that join others must not have any before.
    from tests.test_accelerators import PLATFORMS, callbacks, double_arrays, rounded_products

    text = export.export(jax.jit(function), platforms=PLATFORMS)(*arguments).mlir_module()
    return [*callbacks(text), *double_arrays(text), *rounded_products(text)]


def programs():
    """For each name what is wrong with the program: nothing."""
    for parts in (of_objective, of_decoding):
        yield from parts(make_mesh())
    yield "search under constraints", of_search(make_mesh())
    rng, mesh = np.random.default_rng(1), make_mesh()
    s, v = problems.LABELS, problems.WORDS
    sizes = (s,), (s, s), (v, s)
    theta = Multinomials(*(jnp.asarray(rng.uniform(0.1, 1, size), "float32") for size in sizes))
    for count in (expected_counts, viterbi_counts):
        corpus = problems.draw_words(rng, 9)  # which is not on the mesh yet
        count_on_mesh = lambda theta: count(theta, corpus, mesh=mesh)  # noqa: E731
        if count is expected_counts:
            yield count.__name__, wrong_with(count_on_mesh, theta)
        else:
            found = jax.jit(count_on_mesh)(theta)
            far = problems.distance(count(theta, corpus), found)
            yield count.__name__, wrong_with(count_on_mesh, theta) + [far] * (far > 1e-6)


def of_objective(mesh):
    """The parts of an evaluation, one after another."""
    rng = np.random.default_rng(0)
    features = problems.draw_features(rng, 9)
    labels, spread = problems.draw_labels(rng, features), problems.draw_spread(rng, "dense")
    shards = problems.shards_of(features, labels, 2)
    objective = mesh_objective.Objective(shards, spread, 1.0, mesh=mesh)
    point = problems.draw_point(rng, spread, False, "float32")
    point = objective.place(point)
    placed = objective._executor._work[0].shard
    edges, start, stop = mesh_objective._end_scores(point, None)
    how = (placed, mesh, spread.labels)

    def scores(table, start, stop):
        return mesh_objective.mesh_scores(table, start, stop, *how)

    yield "scores", wrong_with(scores, point.weights, start, stop)
    nodes = scores(point.weights, start, stop)
    half = jnp.float32(0.5)
    for name, derivation in (("likelihood", None), ("entropy", "mann")):

        def lattices(nodes, edges, derivation=derivation):
            return mesh_objective._mesh_lattices(nodes, edges, None, placed, half, mesh, derivation)

        yield name, wrong_with(lattices, nodes, edges)
    tables = mesh_objective._empty_tables(spread, np.float32, mesh)

    def gradient(tables, by_token):
        found = mesh_objective._mesh_scatter(
            tables, by_token, placed, spread.attributes, mesh, False
        )
        return mesh_objective._mesh_sum(found, objective.spread, mesh)

    yield "gradient", wrong_with(gradient, tables, lattices(nodes, edges)[0])


class _Asked(Exception):
    """A program was about to be run."""


def wrong_when_run(module, name, arrays, work):
    """What is wrong with the program `name` of a module as it is run in the course of ``work()``.

    Args:
        arrays: how many of its arguments, the first ones, are arrays or trees of them.
    """
    ordinary = getattr(module, name)

    def ask(*arguments):
        raise _Asked(arguments)

    setattr(module, name, ask)
    try:
        work()
    except _Asked as asked:
        (arguments,) = asked.args
    finally:
        setattr(module, name, ordinary)
    rest = arguments[arrays:]
    return wrong_with(lambda *given: ordinary(*given, *rest), *arguments[:arrays])


def of_decoding(mesh):
    """Best labels and marginals of packed rows, the best paths of single sentences."""
    rng = np.random.default_rng(2)
    features = problems.draw_features(rng, 9)
    s = problems.LABELS
    sizes = (problems.ATTRIBUTES, s), (s, s)
    model = CRF(*(jnp.asarray(rng.normal(size=size), "float32") for size in sizes))
    for decode in (_lattices.best_labels, _lattices.node_marginals):
        wrong = wrong_when_run(_mesh_lattices, "_run", 3, lambda: decode(model, features, mesh))
        yield decode.__name__, wrong
    decode = lambda: _lattices.k_best_paths(model, features, 3, mesh)  # noqa: E731
    yield "k_best_paths", wrong_when_run(_mesh_lattices, "_run_chains", 2, decode)


def of_search(mesh):
    """The beam search."""
    rng = np.random.default_rng(3)
    rules = [Penalised(AtMostOnce(), 1.0), Penalised(StartsWith(["A"]), 0.5)]
    lengths = np.array([4, 2, 6])
    with jax.enable_x64(False):  # penalties of the type that they have where float64 is not wanted
        bound = bind_constraints(rules, ["A", "B", "C"])
    nodes = rng.normal(size=(12, 3)).astype(np.float32)
    x = bound.observe_all([["w"] * length for length in lengths])
    edges = np.zeros((3, 3), np.float32)
    return wrong_when_run(
        _mesh_search,
        "_search_shard",
        3,
        lambda: search_corpus(nodes, edges, lengths, bound, x, k=2, method="beam", mesh=mesh),
    )
