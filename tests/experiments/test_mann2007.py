"""The cells of Mann & McCallum 2007 that can be checked by other means."""

from __future__ import annotations

import dataclasses
import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import jaxseq
from experiments._config import read_config
from experiments._paper import discover
from experiments._results import without_seconds
from experiments.data import Data
from experiments.data._sources import Source
from experiments.mann2007 import run

FOLDER = discover()["mann2007"].folder


@pytest.fixture(scope="module")
def config():
    smoke, _ = read_config(FOLDER / "config.toml", "smoke", run.Config)
    return dataclasses.replace(
        smoke, sentences=40, iterations=4, rounds=1, span_sentences=3, agreement_sentences=1
    )


@pytest.fixture(scope="module")
def data():
    return Data({"conll2000": Source("conll2000")})


def test_the_plain_entropy_is_that_of_all_labellings():
    rng = np.random.default_rng(0)
    nodes, edges = rng.normal(size=(4, 3)), rng.normal(size=(3, 3))
    scores = np.array(
        [
            sum(nodes[t, path[t]] for t in range(4))
            + sum(edges[path[t], path[t + 1]] for t in range(3))
            for path in itertools.product(range(3), repeat=4)
        ]
    )
    p = np.exp(scores - scores.max())
    p /= p.sum()
    found = run._entropy_in_logs(jnp.asarray(nodes), jnp.asarray(edges))
    np.testing.assert_allclose(float(found), -(p * np.log(p)).sum(), rtol=1e-12)


@pytest.mark.parametrize("words", [2, 6])
def test_the_most_uncertain_span_is_the_best_of_all(words):
    rng = np.random.default_rng(words)
    model = jaxseq.CRF(rng.normal(size=(4, 3)) * 3, np.eye(3))
    ids = rng.integers(-1, 4, (words, 2))
    start, stop, nats, whole = run._most_uncertain(model, ids, 3)
    chain = model.chain(ids)
    every = [(float(jaxseq.span_entropy(chain, a, a + 3)), a) for a in range(words - 2)] or [
        (float(jaxseq.entropy(chain)), 0)
    ]
    assert (nats, start) == (pytest.approx(max(every)[0], rel=1e-6), max(every)[1])
    assert stop - start == min(3, words)
    assert whole == pytest.approx(float(jaxseq.entropy(chain)), rel=1e-6)


def test_all_derivations_agree(config, data):
    for cell in ({"part": "agreement", "seed": 0}, {"part": "real agreement"}):
        found = run.run_cell(config, cell, data)["relative_error_below"]
        assert set(found) >= {"jiao", "autodiff", "forward-mode autodiff"}
        assert max(found.values()) <= 1e-9, found


def test_disagreement_is_noticed(monkeypatch):
    """A gradient that is wrong in one entry does not pass for right."""
    nodes, edges = jnp.zeros((3, 2)).at[0, 0].set(1.0), jnp.zeros((2, 2))
    right = run._jiao
    monkeypatch.setattr(
        run, "_jiao", lambda n, e: (right(n, e)[0].at[1, 1].add(1.0), right(n, e)[1])
    )
    assert run._disagreement(nodes, edges)["jiao"] > 0.1


def test_results_are_the_same_every_time(config, data):
    for cell in ({"part": "spans"}, {"part": "ratio"}):
        first = without_seconds(run.run_cell(config, cell, data))
        run._trained.cache_clear()
        assert without_seconds(run.run_cell(config, cell, data)) == first
