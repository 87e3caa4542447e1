"""The model: its scores and chains, what it refuses, and what gradients see of its padding."""

from __future__ import annotations

from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxseq
from jaxseq.crf import CRF

ATTRIBUTES, LABELS, TOKENS, PAIRS = 5, 3, 4, 2
SEEDS = st.integers(0, 2**32 - 1)


def draw(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "weights": rng.normal(size=(ATTRIBUTES, LABELS)),
        "transitions": rng.normal(size=(LABELS, LABELS)),
        "start": rng.normal(size=LABELS),
        "stop": rng.normal(size=LABELS),
        "edge_weights": rng.normal(size=(PAIRS, LABELS, LABELS)),
        "ids": rng.integers(-1, ATTRIBUTES, (TOKENS, 3)),
        "values": rng.normal(size=(TOKENS, 3)),
        "edge_ids": rng.integers(-1, PAIRS, (TOKENS, 2)),
    }


def model_of(a: dict[str, np.ndarray]) -> CRF:
    return CRF(a["weights"], a["transitions"], a["start"], a["stop"], a["edge_weights"])


def path_score(a: dict[str, np.ndarray], path: tuple[int, ...]) -> float:
    """The score of a labelling, term by term of the definition."""
    score = a["start"][path[0]] + a["stop"][path[-1]]
    for t, label in enumerate(path):
        present = [(i, v) for i, v in zip(a["ids"][t], a["values"][t]) if i >= 0]
        score += sum(value * a["weights"][i, label] for i, value in present)
        if t:
            pair = (path[t - 1], label)
            score += a["transitions"][pair]
            score += sum(a["edge_weights"][(i, *pair)] for i in a["edge_ids"][t] if i >= 0)
    return float(score)


@eqx.filter_jit
def summed_and_best(model, ids, values, length, edge_ids):
    chain = model.chain(ids, values, length, edge_ids)
    return jaxseq.log_partition(chain), jaxseq.viterbi(chain)[0]


@pytest.mark.parametrize("length", [1, 2, TOKENS])
@given(seed=SEEDS)
def test_chain_sums_the_definition(length, seed):
    a = draw(seed)
    found = summed_and_best(model_of(a), a["ids"], a["values"], jnp.asarray(length), a["edge_ids"])
    paths = list(product(range(LABELS), repeat=length))
    scores = np.array([path_score(a, path) for path in paths])
    np.testing.assert_allclose(found[0], np.log(np.exp(scores).sum()), rtol=1e-10)
    assert tuple(found[1].tolist()[:length]) == paths[int(scores.argmax())]


def test_chain_without_a_length_is_that_of_all_tokens():
    a = draw(0)
    model = model_of(a)
    with_length = model.chain(a["ids"], a["values"], TOKENS, a["edge_ids"])
    without = model.chain(a["ids"], a["values"], edge_ids=a["edge_ids"])
    np.testing.assert_array_equal(with_length.nodes, without.nodes)
    np.testing.assert_array_equal(with_length.edges, without.edges)


def test_length_may_be_traced():
    a = draw(1)
    model = model_of(a)

    @jax.jit
    def log_z(length):
        return jaxseq.log_partition(model.chain(a["ids"], a["values"], length))

    for length in (1, 3):
        wanted = jaxseq.log_partition(model.chain(a["ids"][:length], a["values"][:length]))
        np.testing.assert_allclose(log_z(length), wanted, rtol=1e-12)


def test_padding_is_invisible():
    a = draw(2)
    model = model_of(a)
    assert model.table.shape == (ATTRIBUTES + 1, 8)
    assert (model.num_attributes, model.num_labels) == (ATTRIBUTES, LABELS)
    np.testing.assert_array_equal(model.weights, a["weights"])
    assert model.scores(a["ids"]).shape == (TOKENS, LABELS)


def test_start_stop_and_values_may_be_left_out():
    a = draw(3)
    model = CRF(a["weights"], a["transitions"])
    np.testing.assert_array_equal(model.start, np.zeros(LABELS))
    np.testing.assert_array_equal(model.stop, np.zeros(LABELS))
    np.testing.assert_array_equal(
        model.chain(a["ids"]).nodes, model.scores(a["ids"], np.ones((TOKENS, 3)))
    )


def test_attributes_that_the_model_lacks_count_nothing():
    a = draw(4)
    found = model_of(a).scores(np.array([[0, ATTRIBUTES], [0, ATTRIBUTES + 9], [0, -1]]))
    np.testing.assert_array_equal(found, np.repeat(a["weights"][:1], 3, 0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_everything_takes_the_dtype_of_the_weights(dtype):
    a = draw(5)
    a["weights"] = a["weights"].astype(dtype)
    model = model_of(a)
    assert {leaf.dtype for leaf in jax.tree.leaves(model)} == {np.dtype(dtype)}
    assert model.scores(a["ids"], a["values"]).dtype == dtype
    assert model.chain(a["ids"], a["values"], None, a["edge_ids"]).edges.dtype == dtype


def test_gradient_is_expected_less_known_counts():
    a = draw(6)
    a["ids"][0] = [-1, 2, 2]  # an absent one, and one twice
    gold = (0, 2, 1, 0)

    def loss(model):
        chain = model.chain(a["ids"], a["values"], None, a["edge_ids"])
        return jaxseq.log_partition(chain) - jaxseq.path_score(chain, jnp.array(gold))

    gradient = eqx.filter_grad(loss)(model_of(a))
    paths = list(product(range(LABELS), repeat=TOKENS))
    mass = np.exp([path_score(a, path) for path in paths])
    chances = dict(zip(paths, mass / mass.sum()))
    chances[gold] -= 1
    wanted = {name: np.zeros_like(a[name]) for name in list(a)[:5]}
    for path, share in chances.items():
        wanted["start"][path[0]] += share
        wanted["stop"][path[-1]] += share
        for t, label in enumerate(path):
            for i, v in zip(a["ids"][t], a["values"][t]):
                if i >= 0:
                    wanted["weights"][i, label] += share * v
            if t:
                wanted["transitions"][path[t - 1], label] += share
                for i in a["edge_ids"][t]:
                    if i >= 0:
                        wanted["edge_weights"][i, path[t - 1], label] += share
    for name, array in wanted.items():
        np.testing.assert_allclose(getattr(gradient, name), array, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("with_values", [False, True])
def test_padding_has_no_gradient(with_values):
    a = draw(7)
    a["ids"][1] = -1
    values = a["values"] if with_values else None

    def squares(model):
        return (model.scores(a["ids"], values) ** 2).sum()

    gradient = eqx.filter_grad(squares)(model_of(a))
    assert np.asarray(gradient.weights).any()
    np.testing.assert_array_equal(gradient.table[-1], 0)
    np.testing.assert_array_equal(gradient.table[:, LABELS:], 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": np.zeros(3)}, r"weights: expected floats of shape \[attributes, labels\]"),
        ({"weights": np.zeros((2, 3), int)}, "weights: expected floats .* got dtype int"),
        ({"transitions": np.zeros((3, 2))}, r"transitions: expected shape \[3, 3\].*got \[3, 2\]"),
        ({"start": np.zeros(2)}, r"start: expected shape \[3\]"),
        ({"stop": np.zeros((3, 1))}, r"stop: expected shape \[3\]"),
        ({"edge_weights": np.zeros((3, 3))}, r"edge_weights: expected shape \[edge attributes, 3"),
        ({"edge_weights": np.zeros((2, 3, 2))}, "edge_weights: expected shape"),
    ],
)
def test_models_refuse(change, message):
    with pytest.raises(ValueError, match=message):
        model_of({**draw(0), **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": np.zeros(4, int)}, "ids: expected integers of shape"),
        ({"ids": np.zeros((4, 3))}, "ids: expected integers .* got dtype float"),
        ({"values": np.zeros((4, 2))}, r"values: expected the shape of ids \[4, 3\], got \[4, 2\]"),
        ({"edge_ids": np.zeros((3, 2), int)}, r"edge_ids: expected integers of shape \[4,"),
        ({"edge_ids": np.zeros(4, int)}, "edge_ids: expected integers"),
        ({"edge_ids": np.zeros((4, 2))}, "edge_ids: expected integers .* got dtype float"),
        ({"length": 5}, "length: expected 0 … 4"),
        ({"length": 1.5}, "length: expected one integer"),
        (
            {"ids": np.zeros((0, 3), int), "values": np.zeros((0, 3)), "edge_ids": None},
            "ids: expected at least one token",
        ),
    ],
)
def test_chains_refuse(change, message):
    a = {**draw(0), "length": None, **change}
    with pytest.raises(ValueError, match=message):
        model_of(a).chain(a["ids"], a["values"], a["length"], a["edge_ids"])
