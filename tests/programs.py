"""Every program that jaxseq gives to a device, with small float32 arguments.

`test_accelerators` lowers them all; a public function is in this list, under the name in
`COVERS`, or among `ON_THE_HOST` with the reason why it never runs on a device itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxseq
from experiments.haffari2008 import _jacobian as _published_jacobian
from jaxseq import constraints, crf, hmm
from jaxseq.active import _pool as _active_look
from jaxseq.constraints import _corpus as constrained_corpus
from jaxseq.crf import EncodedLabels, ShardMaker, _lbfgs, _search
from jaxseq.crf import _decoding as _lattices
from jaxseq.crf import _lbfgs as _orthant
from jaxseq.hmm import _counts
from jaxseq.hmm import _jacobian as _em_products
from jaxseq.hmm._path import _entropy_of_shard
from jaxseq.homotopy import _linear as _homotopy_linear
from jaxseq.homotopy import _problem as homotopy
from jaxseq.text import TokenFeatures
from tests.lattice.cases import SHARED, Case, random_case, scores_of
from tests.lattice.registry import ENTRIES, Entry, projected

Program = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function of arrays, and arguments for it."""

PROGRAMS: dict[str, Callable[[], Program]] = {}
"""Each makes its program only when asked: collecting the tests must not compute anything."""

COVERS: dict[str, set[str]] = {}
"""Public functions that a program runs."""


def program(*covers: str):
    """Register the function below under its name."""

    def keep(make: Callable[[], Program]) -> Callable[[], Program]:
        PROGRAMS[make.__name__] = make
        COVERS[make.__name__] = set(covers)
        return make

    return keep


# ------------------------------------------------------------------------------- one chain


@cache
def _case() -> Case:
    return random_case(SHARED, 0, dtype=np.float32)


LONG_CHAINS = {
    "parallel": ("log_partition", "marginals", "viterbi", "sample", "entropy"),
    "blocked": ("log_partition", "marginals", "viterbi", "sample", "entropy"),
}
"""Methods with programs of their own, beside "auto", which holds the scaled and the log engine."""


def _of_entry(entry: Entry, method: str) -> Program:
    def run(case: Case):
        if entry.kind == "discrete":
            return entry.call(case, method)
        return jax.value_and_grad(projected(entry, case, method), has_aux=True)(scores_of(case))

    return run, (_case(),)


def _register_chains() -> None:
    for entry in ENTRIES:
        others = (method for method, names in LONG_CHAINS.items() if entry.name in names)
        for method in ("auto", *others):
            name = entry.name if method == "auto" else f"{entry.name}_{method}"
            PROGRAMS[name] = partial(_of_entry, entry, method)
            COVERS[name] = {entry.name}


_register_chains()


# --------------------------------------------------------------------------------- batches

NODES = np.linspace(-1, 1, 2 * 5 * 3, dtype=np.float32).reshape(2, 5, 3)
EDGES = np.linspace(1, -1, 9, dtype=np.float32).reshape(3, 3)
SEGMENTS = np.array([[0, 0, 0, 1, 1], [2, 2, -1, -1, -1]], np.int32)
SENTENCES = 3
ROWS = (NODES, EDGES, SEGMENTS)


def _of_batch(function: Callable[..., Any]) -> Program:
    def run(nodes, edges, segments):
        return function(jaxseq.PackedBatch(nodes, edges, segments, SENTENCES))

    return run, ROWS


def _gradient_of_batch(function: Callable[..., Any]) -> Program:
    def total(nodes, edges, segments):
        return function(jaxseq.PackedBatch(nodes, edges, segments, SENTENCES)).sum()

    return jax.value_and_grad(total, (0, 1)), ROWS


@program("batch_log_partition")
def batch_log_partition():
    return _gradient_of_batch(jaxseq.batch_log_partition)


@program("batch_entropy")
def batch_entropy():
    return _gradient_of_batch(jaxseq.batch_entropy)


@program("batch_marginals")
def batch_marginals():
    return _of_batch(jaxseq.batch_marginals)


@program("batch_entropy_gradient")
def batch_entropy_gradient():
    return _of_batch(jaxseq.batch_entropy_gradient)


@program("batch_covariance_product")
def batch_covariance_product():
    return _of_batch(lambda batch: jaxseq.batch_covariance_product(batch, batch))


@program("batch_viterbi")
def batch_viterbi():
    return _of_batch(jaxseq.batch_viterbi)


@program()
def padded_viterbi():
    run = lambda nodes, lengths: jaxseq.batch_viterbi(  # noqa: E731
        jaxseq.PaddedBatch(nodes, EDGES, lengths)
    )
    return run, (NODES, np.array([5, 2], np.int32))


# ----------------------------------------------------------------- conditional random fields

ATTRIBUTES, LABELS = 6, 3
IDS = np.array([[0, 1], [2, -1], [3, 4], [5, 0], [1, 2]], np.int32)
LENGTHS = np.array([3, 2])
SPREAD = {
    "dense": lambda: crf.Spread(ATTRIBUTES, LABELS),
    "observed": lambda: crf.Spread(ATTRIBUTES, LABELS, places=jnp.array([0, 3, 9, 17])),
    "tied": lambda: crf.Spread(ATTRIBUTES, LABELS, groups=jnp.array([0, 1, 0]), num_groups=2),
}


def _shard(partial_labels: bool = False, pairs: bool = False) -> crf.Shard:
    edge_ids = np.array([[-1], [0], [1], [-1], [1]], np.int32) if pairs else None
    features = TokenFeatures(IDS, None, LENGTHS, edge_ids)
    gold = np.array([0, 1, -1 if partial_labels else 2, 1, 0], np.int32)
    allowed = (gold[:, None] < 0) | (gold[:, None] == np.arange(LABELS))
    labels = EncodedLabels(gold, allowed if partial_labels else None)
    return ShardMaker(crf.lay_out(LENGTHS, 1, width=5), features, ATTRIBUTES, labels)(0)


def _gradient_step(kind: str = "dense", *, unlabelled: bool = False, how: Any = "mann", **shard):
    spread, one = SPREAD[kind](), _shard(**shard)
    point = spread.zeros(2 if shard.get("pairs") else 0, jnp.float32)
    legal = crf.Legal(~jnp.eye(LABELS, dtype=bool), *[jnp.ones(LABELS, bool)] * 2)

    def step(point, shard):
        others = [shard] if unlabelled else []
        return crf.entropy_regularised_gradient(
            point, [shard], others, spread, l2=0.5, entropy_weight=0.3, legal=legal,
            entropy_gradient=how,
        )  # fmt: skip

    return step, (point, one)


@program("entropy_regularised_gradient")
def supervised_step():
    return _gradient_step()


@program()
def supervised_step_on_observed_weights():
    return _gradient_step("observed")


@program()
def supervised_step_on_tied_weights():
    return _gradient_step("tied")


@program()
def step_on_partial_labels():
    return _gradient_step(partial_labels=True)


@program()
def step_on_pairs_of_tokens():
    return _gradient_step(pairs=True, unlabelled=True)


@program()
def entropy_regularised_step():
    return _gradient_step(unlabelled=True)


@program()
def entropy_regularised_step_by_jiao():
    return _gradient_step(unlabelled=True, how="jiao")


@program()
def entropy_regularised_step_by_autodiff():
    return _gradient_step(unlabelled=True, how="autodiff")


@program("entropy_regularised_loss")
def gradient_of_the_entropy_regularised_loss():
    spread = SPREAD["dense"]()

    def loss(point, shard):
        return crf.entropy_regularised_loss(point, [shard], [shard], spread, entropy_weight=0.3)

    return jax.value_and_grad(loss), (spread.zeros(0, jnp.float32), _shard())


def _optimiser_step(algorithm: Any) -> Program:
    settings = _search.StochasticSettings(algorithm, 2, 3, 0.1, 0, l2=1.0, sentences=9.0)
    optimiser = _search._optimiser(settings)
    point = SPREAD["dense"]().zeros(0, jnp.float32)

    def step(point, memory, gradient):
        updates, memory = optimiser.update(gradient, memory, point)
        return optax.apply_updates(point, updates), memory

    return step, (point, optimiser.init(point), point)


@program()
def adamw_step():
    return _optimiser_step("adamw")


@program()
def sgd_step():
    return _optimiser_step("sgd")


@program("minimise")
def lbfgs_step():
    point = SPREAD["dense"]().zeros(0, jnp.float32)
    memory = _lbfgs._empty_memory(point, crf.Settings())

    def step(point, memory, gradient):
        pairs = (memory.diff_params_memory, memory.diff_updates_memory)
        rest = memory._replace(diff_params_memory=None, diff_updates_memory=None)
        direction, slope, memory = _lbfgs._take_in(pairs, rest, gradient, point)
        moved = _lbfgs._move(point, direction, jnp.float32(0.5))
        return moved, slope, memory, _lbfgs._norms(gradient, point)

    return step, (point, memory, point)


@program()
def orthantwise_step():
    point = SPREAD["dense"]().zeros(0, jnp.float32)
    memory = _lbfgs._empty_memory(point, crf.Settings())

    def step(point, memory, gradient):
        pseudo = _orthant.pseudo_gradient(point, gradient, 0.5)
        direction = _orthant.orthant_direction(memory, pseudo)
        return _orthant.move(point, direction, pseudo, 0.5), _orthant.l1_norm(point)

    return step, (point, memory, point)


def _crf() -> crf.CRF:
    return crf.CRF(np.ones((ATTRIBUTES, LABELS), np.float32), EDGES)


@program()
def decoding_of_packed_rows():
    run = lambda *rows: _lattices._best_of_rows(*rows, SENTENCES)  # noqa: E731
    return run, ROWS


@program()
def decoding_of_sentences():
    def run(model, ids, lengths):
        return _lattices.run_chains(model, ids, None, None, lengths, _lattices._best_path)

    return run, (_crf(), IDS[None, :4], np.array([3], np.int32))


@program()
def looks_of_active_learning():
    def run(*rows):
        look = _active_look._look_at_rows(*rows, SENTENCES)
        whole = _active_look._entropies_of_rows(*rows, SENTENCES)
        return look, whole, _active_look._steps_of_rows(*rows, SENTENCES)

    return run, ROWS


# --------------------------------------------------------------------- hidden Markov models

WORDS = 4


def _words() -> hmm.WordCorpus:
    return hmm.word_corpus([[0, 1, 3], [2, 1]], WORDS, cores=1, width=5)


def _point(dtype: Any = np.float32) -> hmm.Multinomials:
    shapes = ((LABELS,), (LABELS, LABELS), (WORDS, LABELS))
    return hmm.Multinomials(
        *(jnp.linspace(1, 2, int(np.prod(shape)), dtype=dtype).reshape(shape) for shape in shapes)
    )


@program("shard_tally", "expected_counts")
def e_step():
    return hmm.shard_tally, (_point(), _words().shards[0])


@program("linearise_mean_counts")
def jacobian_product_by_covariances():
    def product(point, shard, moves):
        counts, linear, certified = _em_products.linearise_shard(point, shard, point.initial.dtype)
        return counts, certified, _em_products.multiply_shard(linear, moves)

    moves = {name: getattr(_point(), name) for name in ("initial", "emission")}
    return product, (_point(), _words().shards[0], moves)


@program("mean_counts", "linearise_mean_counts")
def jacobian_product_of_the_e_step():
    corpus = _words()

    def product(point, tangent):
        return jax.jvp(lambda p: hmm.mean_counts(p, corpus), (point,), (tangent,))

    return product, (_point(), _point())


@program("viterbi_counts", "log_likelihoods", "label_entropy", "shard_batch")
def other_e_steps():
    def run(point, shard):
        found = _counts._best_tally(point, shard), _counts._log_partitions(point, shard)
        return found, _entropy_of_shard(point, shard)

    return run, (_point(), _words().shards[0])


@program()  # of an experiment, on the same devices
def published_jacobian():
    def run(total, theta, words, legal):
        total = _published_jacobian._add_sequence(total, theta, words, legal)
        return _published_jacobian._times_normalisation(total, theta)

    side = LABELS + LABELS**2 + WORDS * LABELS
    arguments = (np.zeros(4, np.int32), np.ones((4, LABELS), bool))
    return run, (np.zeros((side, side), np.float32), _point(), *arguments)


@program("mix_models")
def mixture_of_models():
    run = lambda one, other: constraints.mix_models(one, other, 0.25)  # noqa: E731
    return run, (_crf(), _crf())


@program("labelling_weights")
def labelling_weights():
    return partial(constraints.labelling_weights, how="score"), (NODES[0],)


@program()
def chains_of_models():
    def run(linear, markov, ids, words):
        return linear.chain(ids), markov.chain(words)

    markov = hmm.HMM(*_point(), unknown=0)
    return run, (_crf(), markov, IDS, np.array([0, 1, 9], np.int32))


# ------------------------------------------------------------------------------- homotopies


def _problem() -> homotopy.Problem:
    turn = jnp.linspace(0, 0.5, 9, dtype=jnp.float32).reshape(3, 3)
    symmetric = homotopy.Structure.SYMMETRIC
    return homotopy.Problem(
        lambda theta: jnp.tanh(turn @ theta), jnp.ones(3, jnp.float32), structure=symmetric
    )


@program("follow_path", "find_critical_points", "hmm_path", "leading_eigenvalues")
def products_with_the_jacobian_of_a_map():
    """All that a path runs on a device: its Krylov methods are NumPy's."""
    problem = _problem()

    def run(theta, vector):
        expected, push = _homotopy_linear.linearise_program(problem, theta)
        return expected, _homotopy_linear.push_forward(push, vector)

    return run, (np.ones(3, np.float32), np.ones(3, np.float32))


@program()
def dense_jacobian_of_a_map():
    return partial(_homotopy_linear.dense_jacobian, _problem()), (np.ones(3, np.float32),)


# ------------------------------------------------------------------------------ constraints


def _rules(*rules: Any, **options: Any) -> tuple[constraints.Constraints, tuple[Any, ...]]:
    bound = constraints.bind_constraints(list(rules), ["A", "B", "C"], **options)
    seen = bound.observe(["a", "b", "c", "d", "e"])
    return jax.tree.map(_single, bound), jax.tree.map(jnp.asarray, seen)


def _single(leaf: Any) -> Any:
    return leaf.astype(jnp.float32) if getattr(leaf, "dtype", None) == jnp.float64 else leaf


@program("beam_search", "fold_local")
def beam_search():
    rules, seen = _rules(constraints.AtMostOnce(), constraints.StartsWith(["A"]), penalty=1.0)
    run = lambda chain: constraints.beam_search(chain, rules, seen, 3, 6)  # noqa: E731
    return run, (_case().chain,)


@program()
def beam_search_with_hard_constraints():
    rules, seen = _rules(constraints.AtMostOnce(), penalty=float("inf"))
    run = lambda chain: constraints.beam_search(chain, rules, seen, 3, 6)  # noqa: E731
    return run, (_case().chain,)


@program("exact_search")
def exact_search():
    rules, seen = _rules(constraints.StartsWith(["A"]), constraints.MustAppear("B"), penalty=1.0)
    return (lambda chain: constraints.exact_search(chain, rules, seen, 2)), (_case().chain,)


@program("search_corpus")
def search_of_a_corpus():
    rules, seen = _rules(constraints.AtMostOnce(), penalty=1.0)
    search = constrained_corpus._Run(constraints.beam_search, (2, 4))
    seen = jax.tree.map(lambda array: jnp.stack([array, array]), seen)

    def run(nodes, edges, lengths):
        return constrained_corpus._search_block(nodes, edges, lengths, seen, rules, search)

    return run, (NODES, EDGES, np.array([5, 2], np.int32))


@program("penalised_score", "count_violations", "violations", "corpus_violations")
def violations():
    rules, seen = _rules(constraints.AtMostOnce(), constraints.StartsWith(["A"]), penalty=1.0)

    def run(chain, path):
        counts = constraints.count_violations(rules, seen, path)
        return constraints.penalised_score(chain, rules, seen, path), counts

    return run, (_case().chain, np.zeros(5, np.int32))


ON_THE_HOST = {
    "map_on_cores": "starts programs of others",
    "pack": "lays arrays out",
    "pack_lengths": "lays arrays out",
    "unpack": "lays arrays out",
    "lay_out": "lays a corpus out",
    "lay_out_by_length": "lays a corpus out",
    "make_shards": "lays a corpus out",
    "word_corpus": "lays a corpus out",
    "known_counts": "counts what is known, once",
    "labelling_counts": "counts what is known, in float64",
    "em": "iterates the E-step",
    "estimate_hmm": "counts and normalises, once",
    "choose_entropy_weight": "trains taggers",
    "choose_l2": "trains taggers",
    "sweep_weights": "trains taggers",
    "import_crfsuite": "reads a file",
    "linear_weights": "arithmetic on one number",
    "homotopy_problem": "puts a problem together",
    "freeze": "puts a problem together",
    "has_turned": "looks at a finished path",
    "select_max_entropy": "looks at a finished path",
    "select_min_eigenvalue": "looks at a finished path",
    "select_monotone": "looks at a finished path",
    "published_settings": "settings",
    "load_path": "a file",
    "save_path": "a file",
    "informative": "sorts what a program found",
    "propose": "sorts what a program found",
    "first_sentences": "sorts lengths",
    "register": "notes a class",
    "setting": "a field of a dataclass",
    "agreement": "compares labels",
    "is_stable": "compares labels",
    "should_stop": "compares labels",
    "token_price": "arithmetic on numbers of tokens",
    "bind_constraints": "looks labels up",
    "estimate_penalties": "runs the program of corpus_violations",
    "joint_states": "counts states",
    "read_constraints": "a file",
    "read_expectations": "a file",
    "rule_expectations": "looks labels up",
    "label_shares": "counts what is known, once",
    "attribute_shares": "counts what is known, once",
}
"""Public functions that run no program of their own on a device, and what they do instead."""


def as_shapes(tree: Any) -> Any:
    """Arrays as shapes and dtypes: what lowering needs to know."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), leaf.dtype), tree)
