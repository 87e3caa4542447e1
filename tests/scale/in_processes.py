"""One of two processes, on loopback: what they compute together, each with its own sentences.

Run as ``python -m tests.scale.in_processes PORT INDEX FOLDER``; process 0 prints JSON. The same
functions without processes are in `alone`, for the test's own process.
"""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxseq.learn import EMOperator, Objective, expected_counts, word_corpus
from jaxseq.learn._mesh_objective import MeshObjective
from jaxseq.models import Multinomials
from jaxseq.scale import OtherProcessError, join_processes, leave_processes, make_mesh
from jaxseq.tagger import CRFTagger
from tests.scale import problems
from tests.scale.on_mesh import draw_sentences

SPLITS = {"unequal": 13, "one has nothing": 17}
"""Sentences of process 0, of 17."""

SETTINGS = {
    "templates": ["word[0]", "word[-1]|word[0]"],
    "cutoff": 2,
    "progress": False,
    "checkpoint_every": 2,
}


def draw_problem(dtype):
    """Features, labels, other sentences' features, spread and a point."""
    rng = np.random.default_rng(1)
    features = problems.draw_features(rng, 17)
    labels = problems.draw_labels(rng, features, partial=True)
    spread = problems.draw_spread(rng, "observed")
    return features, labels, spread, problems.draw_point(rng, spread, False, dtype)


def draw_em(dtype):
    """Sequences of words and parameters."""
    rng = np.random.default_rng(2)
    words = [rng.integers(0, problems.WORDS, rng.integers(0, 8)) for _ in range(17)]
    s, v = problems.LABELS, problems.WORDS
    sizes = (s,), (s, s), (v, s)
    theta = Multinomials(*(jnp.asarray(rng.uniform(0.1, 1, size), dtype) for size in sizes))
    return words, theta


def as_lists(tree):
    """The leaves as lists of numbers."""
    return [np.asarray(leaf, float).ravel().tolist() for leaf in jax.tree.leaves(tree)]


def alone(dtype):
    """What one process finds: value and gradient, a tally, a step of EM."""
    features, labels, spread, point = draw_problem(dtype)
    objective = Objective(problems.shards_of(features, labels), spread, 0.3)
    words, theta = draw_em(dtype)
    corpus = word_corpus(words, problems.WORDS, cores=1)
    step = EMOperator(None, corpus, 1.0)(theta)
    found = problems.differentiate(objective, point), expected_counts(theta, corpus), step
    return [as_lists(part) for part in found]


def together(dtype, split, index, mesh):
    """The same, by two processes."""
    features, labels, spread, point = draw_problem(dtype)
    own = range(split) if index == 0 else range(split, 17)
    part = problems.cut(features, labels, own)
    objective = MeshObjective(problems.shards_of(*part), spread, 0.3, mesh=mesh)
    words, theta = draw_em(dtype)
    corpus = word_corpus([words[q] for q in own], problems.WORDS, cores=1)
    step = EMOperator(None, corpus, 1.0, mesh=mesh)(theta)
    tally = expected_counts(theta, corpus, mesh=mesh)
    found = problems.differentiate(objective, point), tally, step
    return [as_lists(part) for part in found]


def train(index, folder, mesh):
    """A tagger on the sentences that are this process's turn; another one that stops early."""
    X, y = draw_sentences(np.random.default_rng(3), 15)
    own = X[index::2], y[index::2]
    tagger = CRFTagger(**SETTINGS).fit(*own, mesh=mesh)
    stopped = {**SETTINGS, "max_iterations": 4, "checkpoint": folder / "stopped"}
    CRFTagger(**stopped).fit(*own, mesh=mesh)
    names = tagger.extractor_.attribute_names()
    return {"attributes": names, "model": as_lists(tagger.model_), "loss": tagger.loss_}


def refused(index, mesh):
    """What is said where one process has a sentence without labels for its words."""
    X, y = [["a", "b"]], [["N", "V"] if index == 0 else ["N"]]
    try:
        CRFTagger(["word[0]"]).fit(X, y, mesh=mesh)
    except OtherProcessError as error:
        return f"other: {error}"
    except ValueError as error:
        return f"own: {error}"
    return None


def other_vocabulary(index, mesh):
    """What is said where processes have not agreed on their attributes."""
    features, labels, spread, _ = draw_problem("float32")
    if index == 1:
        spread = problems.draw_spread(np.random.default_rng(99), "dense")
    try:
        MeshObjective(problems.shards_of(features, labels), spread, 0.3, mesh=mesh)
    except ValueError as error:
        return str(error)
    return None


def main(port, index, folder):
    """All of it."""
    peers = join_processes(f"127.0.0.1:{port}", 2, index)
    assert peers is not None
    mesh, found = make_mesh(), {}
    for x64 in (False, True):
        dtype = "float64" if x64 else "float32"
        with jax.enable_x64(x64):
            found[dtype] = {
                name: together(dtype, split, index, mesh) for name, split in SPLITS.items()
            }
    found["trained"] = train(index, folder, mesh)
    found["refused"] = peers.exchange(refused(index, mesh))
    found["other vocabulary"] = peers.exchange(other_vocabulary(index, mesh))
    if index == 0:
        print(json.dumps(found))
    sys.stdout.flush()
    leave_processes(peers)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
