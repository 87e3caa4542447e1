"""One of two processes, on loopback: what they compute together, each with its own sentences.

Run as ``python -m tests.parallel.in_processes PORT INDEX FOLDER``; process 0 prints JSON. The same
functions without processes are in `alone`, for the test's own process.
"""

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxseq.constraints import CoDL
from jaxseq.crf import CRFTagger, Objective
from jaxseq.hmm import EMOperator, Multinomials, expected_counts, word_corpus
from jaxseq.parallel import OtherProcessError, in_words, join_processes, leave_processes, make_mesh
from tests.limits import no_room
from tests.parallel import problems, streamed
from tests.parallel.on_mesh import draw_sentences

SPLITS = {"unequal": 13, "one has nothing": 17}
"""Sentences of process 0, of 17."""

SETTINGS = {
    "templates": ["word[0]", "word[-1]|word[0]"],
    "cutoff": 2,
    "l2": 1.0,
    "progress": False,
    "checkpoint_every": 2,
}


def draw_problem(dtype):
    """Features, labels, spread and a point."""
    rng = np.random.default_rng(1)
    features = problems.draw_features(rng, 17)
    labels = problems.draw_labels(rng, features, partial=True)
    spread = problems.draw_spread(rng, "observed")
    return features, labels, spread, problems.draw_point(rng, spread, False, dtype)


def draw_unlabelled():
    """Features of 17 other sentences."""
    return problems.draw_features(np.random.default_rng(4), 17)


ENTROPY_WEIGHT = 0.7


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


def by_name(found, regularised):
    """The parts by name, for JSON."""
    return {
        "supervised, counts": [as_lists(part) for part in found],
        "regularised": as_lists(regularised),
    }


def alone(dtype):
    """What one process finds: value and gradient, a tally, a step of EM; with entropies too."""
    features, labels, spread, point = draw_problem(dtype)
    shards, rest = problems.shards_of(features, labels), problems.shards_of(draw_unlabelled())
    objective = Objective(shards, spread, 0.3)
    regularised = Objective(shards, spread, 0.3, None, rest, ENTROPY_WEIGHT)
    words, theta = draw_em(dtype)
    corpus = word_corpus(words, problems.WORDS, cores=1)
    step = EMOperator(None, corpus, 1.0)(theta)
    found = problems.differentiate(objective, point), expected_counts(theta, corpus), step
    return by_name(found, problems.differentiate(regularised, point))


def together(dtype, split, index, mesh):
    """The same, by two processes."""
    features, labels, spread, point = draw_problem(dtype)
    own = range(split) if index == 0 else range(split, 17)
    part = problems.cut(features, labels, own)
    shards = problems.shards_of(*part)
    objective = Objective(shards, spread, 0.3, mesh=mesh)
    rest, _ = problems.cut(draw_unlabelled(), None, own)
    others = problems.shards_of(rest)
    regularised = Objective(shards, spread, 0.3, None, others, ENTROPY_WEIGHT, mesh=mesh)
    words, theta = draw_em(dtype)
    corpus = word_corpus([words[q] for q in own], problems.WORDS, cores=1)
    step = EMOperator(None, corpus, 1.0, mesh=mesh)(theta)
    tally = expected_counts(theta, corpus, mesh=mesh)
    found = problems.differentiate(objective, point), tally, step
    return by_name(found, problems.differentiate(regularised, point))


def train(index, folder, mesh):
    """A tagger on the sentences that are this process's turn; another one that stops early."""
    X, y = draw_sentences(np.random.default_rng(3), 15)
    own = X[index::2], y[index::2]
    tagger = CRFTagger(**SETTINGS).fit(*own, mesh=mesh)
    stopped = {**SETTINGS, "max_iterations": 4, "checkpoint": folder / "stopped"}
    CRFTagger(**stopped).fit(*own, mesh=mesh)
    names = tagger.extractor_.attribute_names()
    found = {"attributes": names, "model": as_lists(tagger.model_), "loss": tagger.loss_}
    # Process 1 has no sentence of the last, and no unlabelled one.
    labels = tagger.predict(own[0], mesh=mesh), tagger.predict(X if index == 0 else [], mesh=mesh)
    others = {"unlabelled": X[:5] if index == 0 else [], "entropy_weight": 0.3}
    sure = CRFTagger(**SETTINGS, max_iterations=5).fit(*own, **others, mesh=mesh)
    return {**found, "labels": labels, "sure": as_lists(sure.model_)}


def said(run):
    """What went wrong, and where."""
    try:
        run()
    except OtherProcessError as error:
        return f"other: {error}"
    except (ValueError, OSError) as error:
        return f"own {type(error).__name__}: {in_words(error)}"
    return None


def on_a_full_disk(index, folder, mesh):
    """What is said where process 0 cannot write its checkpoint."""
    X, y = draw_sentences(np.random.default_rng(3), 15)
    tagger = CRFTagger(**{**SETTINGS, "max_iterations": 2, "checkpoint": folder / "full"})
    with no_room(1024) if index == 0 else nullcontext():
        return said(lambda: tagger.fit(X[index::2], y[index::2], mesh=mesh))


def differing(index, mesh):
    """What is said where processes were told to train in different ways."""
    X, y = [["a", "b"]], [["N", "V"]]

    def fit(settings=None, **data):
        tagger = CRFTagger(["word[0]"], progress=False, **(settings or {}))
        return said(lambda: tagger.fit(X, y, mesh=mesh, **data))

    codl = CoDL(CRFTagger(["word[0]"]), progress=False)
    return {
        "iterations": fit({"max_iterations": 3 + index}),
        "nonsense": fit({"l2": -1.0 if index else 1.0}),
        "unlabelled": fit(unlabelled=X if index else None),
        "codl": said(lambda: codl.fit(X, y, unlabelled=X, mesh=mesh)),
    }


def refused(index, mesh):
    """What is said where one process has a sentence without labels for its words."""
    X, y = [["a", "b"]], [["N", "V"] if index == 0 else ["N"]]
    return said(lambda: CRFTagger(["word[0]"]).fit(X, y, mesh=mesh))


def other_vocabulary(index, mesh):
    """What is said where processes have not agreed on their attributes."""
    features, labels, spread, _ = draw_problem("float32")
    if index == 1:
        spread = problems.draw_spread(np.random.default_rng(99), "dense")
    try:
        Objective(problems.shards_of(features, labels), spread, 0.3, mesh=mesh)
    except ValueError as error:
        return str(error)
    return None


def main(port, index, folder):
    """All of it."""
    jax.config.update("jax_num_cpu_devices", 2)
    peers = join_processes(f"127.0.0.1:{port}", 2, index)
    assert peers is not None
    first = {device.process_index: device for device in jax.devices()}
    mesh, found = make_mesh([first[0], first[1]]), {}
    for x64 in (False, True):
        dtype = "float64" if x64 else "float32"
        with jax.enable_x64(x64):
            found[dtype] = {
                name: together(dtype, split, index, mesh) for name, split in SPLITS.items()
            }
    told = train(index, folder, mesh)
    found["trained"], found["labels"] = told, peers.exchange(told.pop("labels"))
    found["differing"] = peers.exchange(differing(index, mesh))
    found["streamed"] = peers.exchange(streamed.together(index, folder / "streamed", mesh, said))
    found["full disk"] = peers.exchange(on_a_full_disk(index, folder, mesh))
    found["refused"] = peers.exchange(refused(index, mesh))
    found["other vocabulary"] = peers.exchange(other_vocabulary(index, mesh))
    if index == 0:
        print(json.dumps(found))
    sys.stdout.flush()
    leave_processes(peers)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
