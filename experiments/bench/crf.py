"""The tagger against CRFsuite on the corpora of Wanvarie et al. 2011."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from experiments.bench._report import Report

C2 = 0.5
"""CRFsuite's penalty is c2 ‖w‖², the tagger's l2 ‖w‖² / 2: this c2 is the tagger's l2 = 1."""

MEASURED_ON: dict[str, Any] = {
    "corpus": "CoNLL-2000 train",
    "templates": "Wanvarie et al. 2011, table 2",
    "l2": 1,
}


def run(report: Report, out: Path) -> None:
    """All figures of ``python -m experiments bench crf``."""
    if not _corpus("conll2000/train.txt").is_file():
        report.figure(
            "training on CoNLL-2000", None, at_least=1, needs="the corpora, by JAXSEQ_DATA"
        )
        return
    ours = _in_a_fresh_process("train_ours")
    theirs = _in_a_fresh_process("train_crfsuite")
    _training(report, ours, theirs)
    _tagging(report, ours, theirs)
    _profile(report, ours)
    for name, bar in (("np", 93.9), ("conll2003", 81.9)):
        found = _in_a_fresh_process("train_ours", name)
        report.figure(
            f"test F1, {TASKS[name]['title']}",
            found["f1"],
            at_least=bar,
            l2=1,
            weights=found["weights"],
            iterations=found["iterations"],
            seconds=found["seconds"]["all"],
        )


def _training(report: Report, ours: dict[str, Any], theirs: dict[str, Any] | None) -> None:
    needs: dict[str, Any] = {} if theirs else {"needs": "the extra jaxseq[bench]"}
    report.figure(
        "seconds of an L-BFGS iteration, line search included: CRFsuite / jaxseq",
        theirs["iteration_seconds"] / ours["iteration_seconds"] if theirs else None,
        at_least=3,
        **MEASURED_ON,
        **needs,
        jaxseq_seconds=ours["iteration_seconds"],
        crfsuite_seconds=theirs and theirs["iteration_seconds"],
    )
    report.figure(
        "seconds of training, features and compiling included: CRFsuite / jaxseq",
        theirs["seconds"]["all"] / ours["seconds"]["all"] if theirs else None,
        at_least=2,
        **MEASURED_ON,
        **needs,
        jaxseq_seconds=ours["seconds"]["all"],
        crfsuite_seconds=theirs and theirs["seconds"]["all"],
        iterations=[ours["iterations"], theirs and theirs["iterations"]],
    )
    report.figure(
        "test F1, jaxseq less CRFsuite",
        ours["f1"] - theirs["f1"] if theirs else None,
        at_least=0,
        **MEASURED_ON,
        **needs,
        crfsuite=theirs and theirs["f1"],
    )
    report.figure(
        f"test F1, {TASKS['conll2000']['title']}",
        ours["f1"],
        at_least=93.6,
        l2=1,
        weights=ours["weights"],
        iterations=ours["iterations"],
    )
    report.figure(
        "peak memory of the training process, GB",
        ours["peak_bytes"] / 1e9,
        at_most=3,
        **MEASURED_ON,
    )


def _tagging(report: Report, ours: dict[str, Any], theirs: dict[str, Any] | None) -> None:
    report.figure(
        "tokens tagged a second, features included: jaxseq / CRFsuite",
        ours["tokens_per_second"] / theirs["tokens_per_second"] if theirs else None,
        at_least=1,
        corpus="CoNLL-2000 test",
        jaxseq=ours["tokens_per_second"],
        crfsuite=theirs and theirs["tokens_per_second"],
    )
    report.figure(
        "the same, for the first call of a process, compiling included",
        ours["first_tokens_per_second"] / theirs["tokens_per_second"] if theirs else None,
        corpus="CoNLL-2000 test",
    )


def _profile(report: Report, ours: dict[str, Any]) -> None:
    """Share of the time of `fit` by what it was spent on."""
    seconds = dict(ours["seconds"])
    whole, evaluations = seconds.pop("all"), seconds.pop("evaluations")
    parts = ("gather", "lattice", "scatter")
    seconds["other of an evaluation"] = evaluations - sum(seconds[part] for part in parts)
    seconds["labels, layout, the rest"] = whole - sum(seconds.values())
    for name, value in seconds.items():
        report.figure(f"share of training: {name}", value / whole, **MEASURED_ON, seconds=value)


# ------------------------------------------------------------------------- corpora and tasks


def _corpus(name: str) -> Path:
    return Path(os.environ.get("JAXSEQ_DATA", "data")) / name


def _only_np(label: str) -> str:
    return label if label.endswith("-NP") else "O"


CHUNKS = ("word", "pos", "chunk")
TASKS: dict[str, dict[str, Any]] = {
    "conll2000": {
        "title": "CoNLL-2000 chunking",
        "files": ("conll2000/train.txt", "conll2000/test.txt"),
        "read": {"columns": CHUNKS},
        "label": "chunk",
        "templates": "CONLL2000",
    },
    "np": {
        "title": "NP chunking (CoNLL-2000, other chunks O)",
        "files": ("conll2000/train.txt", "conll2000/test.txt"),
        "read": {"columns": CHUNKS},
        "label": "chunk",
        "change": _only_np,
        "templates": "CONLL2000",
    },
    "conll2003": {
        "title": "CoNLL-2003 named entities, testb",
        "files": ("conll2003/eng.train", "conll2003/eng.testb"),
        "read": {
            "columns": (*CHUNKS, "entity"),
            "scheme_from": "IOB1",
            "scheme_to": "IOB2",
        },
        "label": "entity",
        "templates": "CONLL2003",
    },
}


def _load(task: dict[str, Any]) -> list[tuple[list[Any], list[list[str]]]]:
    """(sentences without their labels, labels) of the training and of the test part."""
    from jaxseq.text import read_conll

    change: Callable[[str], str] = task.get("change", str)
    parts = []
    for name in task["files"]:
        sentences = read_conll(_corpus(name), **task["read"])
        labels = [[change(label) for label in sentence[task["label"]]] for sentence in sentences]
        parts.append(([sentence.without(task["label"]) for sentence in sentences], labels))
    return parts


def _in_a_fresh_process(function: str, *arguments: str) -> Any:
    """What a function of this module prints, of a process with nothing else in its memory."""
    call = f"{function}({', '.join(map(repr, arguments))})"
    code = f"from experiments.bench import crf; crf.{call}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{call} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def _peak_bytes() -> int:
    resource = importlib.import_module("resource")  # not on every system
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _f1(gold: list[list[str]], predicted: list[list[str]]) -> float:
    from jaxseq.metrics import span_scores

    return 100 * span_scores(gold, predicted).overall.f1


# ----------------------------------------------------------------------- in their own process


def train_ours(name: str = "conll2000", weights: str = "mixed") -> None:
    """Train and test the tagger; print what was measured."""
    import jaxseq

    task = TASKS[name]
    (X, y), (test_X, test_y) = _load(task)
    templates = getattr(jaxseq.text, task["templates"])
    tagger = jaxseq.CRFTagger(templates=templates, l2=1.0, weights=cast(Any, weights))
    tagger.fit(X, y)
    peak = _peak_bytes()
    iterating = tagger.seconds_["evaluations"] + tagger.seconds_["optimiser"]
    tokens = sum(map(len, test_y))

    def tag() -> tuple[float, list[list[str]]]:
        began = time.perf_counter()
        predicted = tagger.predict(test_X)
        return tokens / (time.perf_counter() - began), predicted

    first, predicted = tag()
    found = {
        "f1": _f1(test_y, predicted),
        "weights": weights,
        "iterations": tagger.n_iter_,
        "evaluations": tagger.n_evaluations_,
        "iteration_seconds": iterating / tagger.n_iter_,
        "seconds": tagger.seconds_,
        "loss": tagger.loss_,
        "outcome": tagger.outcome_,
        "peak_bytes": peak,
        "first_tokens_per_second": first,
        "tokens_per_second": max(tag()[0] for _ in range(5)),
    }
    print(json.dumps(found))


def train_crfsuite(name: str = "conll2000") -> None:
    """Train and test CRFsuite on the same features; print what was measured."""
    try:  # by name: the extra is for these figures, and no type checker should ask for it
        crfsuite = importlib.import_module("pycrfsuite")
    except ImportError:
        print("null")
        return
    (X, y), (test_X, test_y) = _load(TASKS[name])
    began = time.perf_counter()
    trainer = crfsuite.Trainer(algorithm="lbfgs", verbose=False)
    trainer.set_params({"c1": 0.0, "c2": C2, "max_iterations": 500})
    for sentence, labels in zip(X, y):
        trainer.append(crfsuite.ItemSequence(list(_strings(sentence))), labels)
    features = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "model")
        training = time.perf_counter()
        trainer.train(file)
        ended = time.perf_counter()
        tagger = crfsuite.Tagger()
        tagger.open(file)
        iterations = trainer.logparser.last_iteration["num"]

        def tag() -> tuple[float, list[list[str]]]:
            began = time.perf_counter()
            predicted = [tagger.tag(list(_strings(sentence))) for sentence in test_X]
            return sum(map(len, test_y)) / (time.perf_counter() - began), predicted

        speed, predicted = max(tag() for _ in range(3))
        tagger.close()
    found = {
        "f1": _f1(test_y, predicted),
        "iterations": iterations,
        "iteration_seconds": (ended - training) / iterations,
        "seconds": {"features": features, "all": ended - began},
        "loss": trainer.logparser.last_iteration["loss"],
        "tokens_per_second": speed,
    }
    print(json.dumps(found))


def _strings(sentence: Any) -> Iterator[list[str]]:
    """The paper's templates for CoNLL-2000 by hand, as a user of CRFsuite writes them."""
    words, tags = sentence["word"], sentence["pos"]
    n = len(words)

    def at(column: tuple[str, ...], t: int) -> str:
        if t < 0:
            return f"_B{t}"
        return column[t] if t < n else f"_B+{t - n + 1}"

    for t in range(n):
        w = [at(words, t + offset) for offset in range(-2, 3)]
        p = [at(tags, t + offset) for offset in range(-2, 3)]
        yield [
            *(f"w[{k - 2}]={w[k]}" for k in range(5)),
            f"w[-1]|w[0]={w[1]}|{w[2]}",
            f"w[0]|w[1]={w[2]}|{w[3]}",
            *(f"p[{k - 2}]={p[k]}" for k in range(5)),
            *(f"p[{k - 2}]|p[{k - 1}]={p[k]}|{p[k + 1]}" for k in range(4)),
            *(f"p[{k - 2}]|p[{k - 1}]|p[{k}]={p[k]}|{p[k + 1]}|{p[k + 2]}" for k in range(3)),
        ]
