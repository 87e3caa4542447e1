"""Run in a process of eight virtual devices: how far results on a mesh are from those of one.

Prints a JSON object from the name of a result to its distance (or to what was seen), for each of
float32 and float64.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import clone

from jaxseq.constraints import AtMostOnce, CoDL, Penalised, StartsWith
from jaxseq.crf import (
    CRFTagger,
    ExpectationTerm,
    Legal,
    Objective,
    SharePenalty,
    entropy_regularised_gradient,
    entropy_regularised_loss,
    lay_out,
    make_shards,
)
from jaxseq.expectations import Expectation, encode_expectations
from jaxseq.hmm import (
    EMOperator,
    HMMTagger,
    Multinomials,
    expected_counts,
    mean_counts,
    viterbi_counts,
)
from jaxseq.parallel import make_mesh, off_mesh
from tests.parallel import lowered, problems, stopped, streamed

CASES = {
    "dense": {"kind": "dense", "others": True, "dtype": "float32"},
    "tied, values": {"kind": "tied", "values": True, "dtype": "float64"},
    "pairs, partial labels": {
        "kind": "observed",
        "pairs": True,
        "partial": True,
        "dtype": "float64",
    },
}
"""Compiling is what takes time, so that each is done in one type; two processes do both."""


def objectives(dtype):
    """Each case with shards for 8 places: as many, fewer, more, one empty."""
    for number, (name, case) in enumerate(CASES.items()):
        if dtype != case["dtype"]:
            continue
        rng = np.random.default_rng(number)
        options = {key: case.get(key, False) for key in ("values", "pairs")}
        features = problems.draw_features(rng, 19, **options)
        labels = problems.draw_labels(rng, features, case.get("partial", False))
        others = problems.draw_features(rng, 5, **options)
        spread = problems.draw_spread(rng, case["kind"])
        point = problems.draw_point(rng, spread, options["pairs"], dtype)
        legal = None
        if name == "dense":
            everything = jnp.ones(problems.LABELS, bool)
            legal = Legal(jnp.ones((problems.LABELS,) * 2, bool), everything, everything)
        settings = (spread, 0.3, legal)
        alone = shared = None
        if case.get("others"):
            alone, shared = problems.shards_of(others), problems.shards_of(others, None, 2)
        one = Objective(problems.shards_of(features, labels), *settings, alone, 0.7)
        expected = problems.differentiate(one, point)
        count = {"dense": 8, "tied, values": 11}.get(name, 3)
        many = Objective(
            problems.shards_of(features, labels, count),
            *settings,
            shared,
            0.7,
            mesh=make_mesh(),
        )
        yield name, problems.distance(expected, problems.differentiate(many, point))


def entropy(dtype):
    """The pure functions: value, `jax.grad`, and the gradient by hand."""
    rng = np.random.default_rng(20)
    features, others = problems.draw_features(rng, 9), problems.draw_features(rng, 6)
    labels, spread = problems.draw_labels(rng, features), problems.draw_spread(rng, "observed")
    point = problems.draw_point(rng, spread, False, dtype)
    shards = problems.shards_of(features, labels, 3), problems.shards_of(others, None, 2)
    how = {"l2": 0.1, "entropy_weight": 0.5}
    mesh = make_mesh()

    def loss(parameters, mesh=None):
        return entropy_regularised_loss(parameters, *shards, spread, **how, mesh=mesh)

    expected = jax.jit(jax.value_and_grad(loss))(point)
    found = jax.jit(jax.value_and_grad(lambda parameters: loss(parameters, mesh)))(point)
    yield "entropy by jax.grad", problems.distance(expected, found)
    by_hand = entropy_regularised_gradient(point, *shards, spread, **how, mesh=mesh)
    yield "entropy by hand", problems.distance(expected, by_hand)


def expectations(dtype):
    """Penalties on shares, and the projection onto them, with conditions on pairs and without."""
    rng, labels = np.random.default_rng(40), [f"l{i}" for i in range(problems.LABELS)]
    known, others = problems.draw_features(rng, 7), problems.draw_features(rng, 12)
    sentences = [list(range(length)) for length in others.lengths]
    wanted = [
        Expectation({"l0": 0.5, "l1": (0.1, 0.2)}, weight=3),
        Expectation({"l2": 0.3}, lambda places: [t % 2 == 0 for t in places], penalty="l2"),
        Expectation({"l1 -> l1": 0.2}),
    ]
    odd = Expectation({"change": 0.1}, lambda places: [t % 2 == 1 for t in places])
    spread = problems.draw_spread(rng, "dense")
    point = problems.draw_point(rng, spread, False, dtype)
    gold = problems.draw_labels(rng, known)
    for name, chosen in {"shares": wanted, "pairs by condition": [*wanted, odd]}.items():
        encoded = encode_expectations(chosen, sentences, others.lengths, labels)
        penalty = SharePenalty.from_encoded(encoded, dtype)
        tilt = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape), dtype),
                            penalty.transposed(penalty.least))  # fmt: skip
        results = []
        for count, mesh in ((1, None), (3, make_mesh())):
            layout = lay_out(others.lengths, count, width=problems.ROW)
            marks = make_shards(layout, encoded.predicates, encoded.sizes[0])
            objective = Objective(
                problems.shards_of(known, gold, count), spread, 0.3, None,
                problems.shards_of(others, None, count), 0.2,
                expectations=ExpectationTerm(penalty, marks), mesh=mesh,
            )  # fmt: skip
            penalised = problems.differentiate(objective, point)
            features = objective.expected_features(point, tilt)
            seen = off_mesh((objective.expect(point, tilt), features))
            objective.projected = features
            results.append((penalised, seen, problems.differentiate(objective, point)))
        yield f"expectations, {name}", problems.distance(*results)


def counts(dtype):
    """The E-step, of corpora with more and with fewer sequences than devices."""
    rng = np.random.default_rng(30)
    mesh = make_mesh()
    s, v = problems.LABELS, problems.WORDS
    sizes = (s,), (s, s), (v, s)
    theta = Multinomials(*(jnp.asarray(rng.uniform(0.1, 1, size), dtype) for size in sizes))
    for name, corpus in {
        "many": problems.draw_words(rng, 20, labelled=True),
        "few": problems.draw_words(rng, 2),
    }.items():
        for method in ("auto",) if dtype == "float32" else ("auto", "log"):
            expected = expected_counts(theta, corpus, method=method)
            found = expected_counts(theta, corpus, method=method, mesh=mesh)
            yield f"counts, {name}, {method}", problems.distance(expected, found)
    if dtype == "float32":
        return
    expected, found = (viterbi_counts(theta, corpus, mesh=m) for m in (None, mesh))
    yield "best counts", problems.distance(expected, found)
    expected, found = (mean_counts(theta, corpus, mesh=m) for m in (None, mesh))
    yield "mean counts", problems.distance(expected, found)
    known = problems.draw_words(rng, 5, labelled=True)
    expected, found = (EMOperator(known, corpus, mesh=m)(theta) for m in (None, mesh))
    yield "step of EM", problems.distance(expected, found)


def draw_sentences(rng, count):
    words = [f"w{i}" for i in range(9)]
    X = [list(rng.choice(words, rng.integers(0, 9))) for _ in range(count)]
    X = [[str(word) for word in sentence] for sentence in X]
    return X, [["ABC"[int(word[1:]) % 3] for word in sentence] for sentence in X]


def k_best(tagger, sentences, options, name):
    """Labellings that differ, and how far their scores are apart."""
    found = [
        [pair for best in tagger.predict_k_best(sentences, 2, mesh=m, **options) for pair in best]
        for m in (None, make_mesh())
    ]
    (alone, scores), (shared, others) = (zip(*pairs) for pairs in found)
    yield f"k best{name} differ", sum(a != b for a, b in zip(alone, shared, strict=True))
    yield f"k best{name}", problems.distance(np.array(scores), np.array(others))


def taggers(dtype):
    """Labels out of decoding, with and without constraints; training."""
    rng = np.random.default_rng(40)
    mesh = make_mesh()
    X, y = draw_sentences(rng, 400)  # more rows than devices
    new = draw_sentences(rng, 400)[0]
    tagger = CRFTagger(
        ["word[0]", "word[-1]"], l2=1.0, dtype=dtype, max_iterations=8, progress=False
    )
    tagger.fit(X, y)
    yield (
        "labels differ",
        sum(a != b for a, b in zip(tagger.predict(new), tagger.predict(new, mesh=mesh))),
    )
    yield (
        "marginals",
        problems.distance(tagger.predict_proba(new), tagger.predict_proba(new, mesh=mesh)),
    )
    rules = [Penalised(AtMostOnce(), 1.0), Penalised(StartsWith(["A"]), 0.5)]
    alone, shared = (tagger.predict(new, constraints=rules, mesh=m) for m in (None, mesh))
    yield "labels under constraints differ", sum(a != b for a, b in zip(alone, shared))
    yield from k_best(tagger, new[:99], {}, "")
    yield from k_best(tagger, new[:99], {"constraints": rules}, " under constraints")
    again = CRFTagger(**tagger.get_params()).fit(X, y, mesh=mesh)
    yield "training", problems.distance(tagger.model_, again.model_)
    models = [
        CRFTagger(**{**tagger.get_params(), "weights": "dense"}).fit(X, y, mesh=m).model_
        for m in (None, mesh)
    ]
    yield "training of dense weights", problems.distance(*models)
    hmm = HMMTagger(unknown_below=1, dtype=dtype, max_iterations=3, progress=False)
    models = [
        HMMTagger(**hmm.get_params()).fit(X, y, unlabelled=new, mesh=m).model_.probabilities
        for m in (None, mesh)
    ]
    yield "EM", problems.distance(*models)
    codl = CoDL(hmm, [AtMostOnce()], penalty=1.0, k=2, cycles=1, progress=False)
    models = [
        clone(codl).fit(X, y, unlabelled=new, mesh=m).tagger_.model_.probabilities
        for m in (None, mesh)
    ]
    yield "CoDL", problems.distance(*models)


def from_shards():
    """Training on shards: devices with several streams and with one, and with parts of a stream."""
    with tempfile.TemporaryDirectory() as place:
        streamed.write(Path(place))
        whole = streamed.train(Path(place) / "all", 3, dtype="float64")
        for count in (2, 8):
            mesh = make_mesh(jax.devices()[:count])
            found = streamed.train(Path(place) / "all", 3, mesh, dtype="float64")
            yield f"3 streams on {count}", problems.distance(whole.model_, found.model_)


def told(pair):
    """The pair, after a line on standard error: where the time goes, and how far this came."""
    print(f"{time.process_time():.0f} s of processor time: {pair}", file=sys.stderr, flush=True)
    return pair


def main():
    """Everything, as JSON."""
    found = {}
    for x64 in (False, True):
        dtype = "float64" if x64 else "float32"
        with jax.enable_x64(x64):
            parts = (objectives, counts, *((entropy, expectations) if x64 else (taggers,)))
            found[dtype] = dict(told(pair) for part in parts for pair in part(dtype))
    with jax.enable_x64(True):
        found["shards"] = dict(told(pair) for pair in from_shards())
        found["gone on with"] = dict(told(pair) for pair in stopped.gone_on_with())
        # With 64-bit numbers on, since without them there is no float64 that could be noticed.
        found["lowered"] = dict(told(pair) for pair in lowered.programs())
    found["devices"] = jax.device_count()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
