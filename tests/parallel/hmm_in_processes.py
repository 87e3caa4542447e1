"""One of two processes, on loopback, that train hidden Markov models together.

Run as ``python -m tests.parallel.hmm_in_processes PORT INDEX FOLDER``; process 0 prints JSON. What
they train is drawn from a seed, for one process to do the same.
"""

import json
import signal
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path

import jax
import numpy as np

from jaxseq.constraints import (
    AtMostOnce,
    CoDL,
    HMMLearner,
    Penalised,
    StartsWith,
    Words,
    WordsImply,
)
from jaxseq.hmm import HMM, EMOperator, HMMTagger, _em, em, word_corpus
from jaxseq.parallel import join_processes, leave_processes, make_mesh
from tests.parallel import problems
from tests.parallel.in_processes import as_lists, draw_em, said

SETTINGS = {
    "unknown_below": 2,
    "max_iterations": 6,
    "tolerance": 0.0,
    "dtype": "float64",
    "progress": False,
    "cores": 1,
    "checkpoint_every": 100,
}

WAYS = {
    "counted": {},
    "soft": {"more": True},
    "hard": {"more": True, "em": "hard", "classes": ["A", "B", "C", "D"], "frozen": ("initial",)},
    "partly known": {"more": True, "partial": True, "vocabulary": "labelled"},
}
"""How to train; with `more` unlabelled sentences, and some labels that are not known."""

SPLITS = {"unequal": (13, 4), "the first has no more": (5, 0), "one has nothing": (17, 11)}
"""Sentences of process 0, of 17 labelled ones and of 11 others."""

SHARED = {
    "counted": ("unequal",),
    "soft": ("unequal", "one has nothing"),
    "hard": ("the first has no more",),
    "partly known": ("unequal", "one has nothing"),
}
"""Which ways to train are tried with which splits."""


def draw_corpus():
    """Sentences, labels that their words leave open, and more sentences with other words."""
    rng = np.random.default_rng(8)

    def sentences(count, words):
        drawn = [rng.integers(0, words, rng.integers(0, 9)) for _ in range(count)]
        return [[f"w{number}" for number in each] for each in drawn]

    X = sentences(17, 9)
    y = [["ABC"[(int(w[1:]) + rng.integers(0, 2)) % 3] for w in sentence] for sentence in X]
    return X, y, sentences(11, 14)


def hide(y):
    """Labels of which some are sets, or not known; those of sentences 5 and on are."""

    def less(place, label):
        return (label, None, {label, "A"})[place % 3]

    return y[:5] + [[less(place, label) for place, label in enumerate(each)] for each in y[5:]]


def fit(way, own=None, others=None, mesh=None, **settings):
    """A tagger of some of the sentences; of all, where it is not said of which."""
    how = dict(WAYS[way])
    more, partial = how.pop("more", False), how.pop("partial", False)
    X, y, unlabelled = draw_corpus()
    y = hide(y) if partial else y
    given = {} if own is None else {"sentence_numbers": list(own), "mesh": mesh}
    own = range(len(X)) if own is None else own
    others = range(len(unlabelled)) if others is None else others
    if more:
        given["unlabelled"] = [unlabelled[q] for q in others]
    tagger = HMMTagger(**{**SETTINGS, **how, **settings})
    return tagger.fit([X[q] for q in own], [y[q] for q in own], **given)


def told(tagger):
    """Words, labels and numbers of a tagger."""
    X, _, unlabelled = draw_corpus()
    return {
        "words": tagger.vocabulary_.words,
        "classes": tagger.classes_.tolist(),
        "model": as_lists(tagger.model_.probabilities),
        "objectives": tagger.objectives_,
        "log_likelihood": tagger.log_likelihood_,
        "ended": [tagger.n_iter_, tagger.outcome_],
        "labels": tagger.predict(X + unlabelled),
    }


def share(split, index):
    """The places of the sentences of this process."""
    return [
        range(number) if index == 0 else range(number, count)
        for number, count in zip(SPLITS[split], (17, 11))
    ]


def stop_and_go_on(index, folder, mesh):
    """One search that stops early, and one that goes on from what one process left."""
    own = share("unequal", index)
    fit("soft", *own, mesh, max_iterations=4, checkpoint=folder / "stopped")
    return told(fit("soft", *own, mesh, checkpoint=folder / "left by one"))


@contextmanager
def ctrl_c(owner, name):
    """Inside, it is pressed in this process when that function is called for the second time."""
    ordinary, seen = getattr(owner, name), []

    def called(*arguments):
        seen.append(None)
        if len(seen) == 2:
            signal.raise_signal(signal.SIGINT)
        return ordinary(*arguments)

    setattr(owner, name, called)
    yield
    setattr(owner, name, ordinary)


def interrupted(index, mesh):
    """How EM ends in each process where Ctrl-C was pressed in the second one."""
    words, theta = draw_em("float64")
    corpus = word_corpus(words[index::2], problems.WORDS, cores=1)
    operator = EMOperator(None, corpus, mesh=mesh)
    with ctrl_c(_em, "_why_stop") if index == 1 else nullcontext():
        found = em(HMM(*theta), operator, max_iterations=9, tolerance=0.0)
    with ctrl_c(_em, "_why_stop") if index == 1 else nullcontext():
        tagger = fit("soft", *share("unequal", index), mesh)
    return [found.iterations, found.outcome.value], [tagger.n_iter_, tagger.outcome_]


CODL = {"kept": {"weights": "score"}, "pooled": {"pool": True}}
"""Ways of constraint-driven learning."""


def learn(way, own=None, others=None, mesh=None, **settings):
    """Constraint-driven learning from some of the sentences, or from all."""
    X, y, unlabelled = draw_corpus()
    given = {} if own is None else {"sentence_numbers": list(own), "mesh": mesh}
    own = range(len(X)) if own is None else own
    others = range(len(unlabelled)) if others is None else others
    rules = [Penalised(AtMostOnce(), 0.7), Penalised(WordsImply(Words(["w3", "w12"]), ["B"]), 1.3)]
    usual = {"k": 3, "cycles": 3, "progress": False, **CODL[way]}
    learner = CoDL(HMMTagger(**SETTINGS), rules, **{**usual, **settings})
    given["unlabelled"] = [unlabelled[q] for q in others]
    return learner.fit([X[q] for q in own], [y[q] for q in own], **given)


def told_of_codl(learner):
    """Words, labels, numbers and the history."""
    X, _, unlabelled = draw_corpus()
    tagger = learner.tagger_
    return {
        "words": tagger.vocabulary_.words,
        "classes": tagger.classes_.tolist(),
        "labels": learner.predict(X + unlabelled),
        "model": as_lists(tagger.model_.probabilities),
        "history": learner.history_,
        "ended": learner.outcome_,
    }


def codl(index, folder, mesh):
    """Shared out in two ways; stopped in process 1; and gone on with what one process left."""
    turns = range(index, 17, 2), range(index, 11, 2)
    found = {
        "kept": told_of_codl(learn("kept", *turns, mesh)),
        "pooled": told_of_codl(learn("pooled", *share("one has nothing", index), mesh)),
    }
    with ctrl_c(HMMLearner, "learn") if index == 1 else nullcontext():
        stopped = learn("kept", *turns, mesh, checkpoint=folder / "codl stopped")
    found["stopped"] = [len(stopped.history_), stopped.outcome_]
    again = learn("kept", *turns, mesh, checkpoint=folder / "codl left by one")
    return {**found, "gone on": told_of_codl(again)}


def codl_refused(index, mesh):
    """What is said of constraint-driven learning where one process is told something else."""
    X, y = [["a", "b"]], [["N", "V"]]

    def train(rules=(), y=y, **settings):
        learner = CoDL(HMMTagger(unknown_below=1), rules, penalty=1.0, progress=False, **settings)
        return said(lambda: learner.fit(X, y, unlabelled=X, mesh=mesh))

    return {
        "k": train(k=3 + index),
        "constraints": train([AtMostOnce()] if index else [StartsWith(["N"])]),
        "pool": train(y=[["N", None]] if index else y, pool=True),
        "rule": train([StartsWith(["X"])] if index else []),
    }


def refused(index, mesh):
    """What is said where one of the processes has something that makes no sense."""
    words, theta = draw_em("float64")
    X, y, more = [["a", "b"]], [["N", "V"]], [["a", "c"]]

    def train(settings=None, y=y, **data):
        usual = {**SETTINGS, "unknown_below": 1, **(settings or {})}
        return said(lambda: HMMTagger(**usual).fit(X, y, mesh=mesh, **data))

    def operate(**given):
        usual = {"labelled": None, "unlabelled": word_corpus(words, problems.WORDS, cores=1)}
        return said(lambda: EMOperator(**{**usual, "mesh": mesh, **given})(theta))

    known = {"labels": [w % problems.LABELS for w in words], "num_labels": problems.LABELS}
    labelled = word_corpus(words, problems.WORDS, cores=1, **known)
    larger = word_corpus(words, problems.WORDS + index, cores=1)
    return {
        "labels": train(y=y if index == 0 else [["N"]]),
        "iterations": train({"max_iterations": 3 + index}),
        "nonsense": train({"unknown_below": 0 if index else 1}),
        "unlabelled": train(unlabelled=more if index else None),
        "numbers": train(sentence_numbers=[index] * (1 + index)),
        "impossible": train({"emission_smoothing": 0.0}, unlabelled=more if index else X),
        "no labelled": operate(labelled=labelled if index == 0 else None),
        "no others": operate(labelled=labelled, unlabelled=None if index == 0 else larger),
        "words": operate(unlabelled=larger),
        "balance": operate(balance=2.0 if index else 1.0),
    }


def main(port, index, folder):
    """All of it."""
    jax.config.update("jax_enable_x64", True)
    peers = join_processes(f"127.0.0.1:{port}", 2, index)
    assert peers is not None
    mesh, found = make_mesh(), {}
    for way, splits in SHARED.items():
        for split in splits:
            own = told(fit(way, *share(split, index), mesh))
            found[f"{way}, {split}"] = peers.exchange(own)
    found["gone on"] = peers.exchange(stop_and_go_on(index, folder, mesh))
    found["interrupted"] = peers.exchange(interrupted(index, mesh))
    found["refused"] = peers.exchange(refused(index, mesh))
    found["codl"] = peers.exchange(codl(index, folder, mesh))
    found["codl refused"] = peers.exchange(codl_refused(index, mesh))
    if index == 0:
        print(json.dumps(found))
    sys.stdout.flush()
    leave_processes(peers)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
