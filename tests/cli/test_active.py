"""Active learning by the command line: the whole loop on a folder, and a process killed in it."""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jaxseq.active import ActiveLearner, Answer
from jaxseq.cli import _active_run
from jaxseq.cli._active_run import ActiveRun, looked_at, opened, read_corpora, report_lines
from tests.cli.active_runs import (
    ALL,
    LABELS,
    POOL,
    TRAIN,
    answers_in,
    gold,
    journal,
    queries_in,
    solved,
    start,
    write_files,
    write_lines,
)

ROOT = Path(__file__).parents[2]


# ------------------------------------------------------------------------------------- the loop


def test_to_the_end_by_files(tmp_path, succeed):
    folder = start(tmp_path, succeed)
    for name in ("few", "pool", "dev", "templates"):
        (tmp_path / name).unlink()  # the folder is all that is needed
    seen = set()
    for number in range(1, 12):
        report = json.loads(succeed("active", "query", folder, "--json"))
        if not report["queries"]:
            break
        queries = queries_in(folder, number)
        assert report["tokens"] == len(queries) <= 3
        for query in queries:
            assert query["tokens"] == ALL[query["sentence"]]
            assert query["sentence"] >= len(TRAIN)
            tokens = {(query["sentence"], t) for t in range(query["start"], query["stop"])}
            assert not tokens & seen  # nothing is asked twice
            seen |= tokens
        answers = write_lines(tmp_path / "answers", solved(queries))
        status = json.loads(succeed("active", "answer", folder, answers, "--json"))
        assert status["round"] == number + 1
        assert status["labelled_tokens"] == len(TRAIN[0].split()) + len(seen)
    assert report["stop"]
    status = json.loads(succeed("active", "status", folder, "--json"))
    assert status["stop"]
    assert status["dev_f1"] == 1.0
    assert "stop      yes: " in succeed("active", "status", folder)
    (tmp_path / "new").write_text("the DT\ndog NN\n")
    assert succeed("tag", "--model", folder / "model", tmp_path / "new") == (
        "the DT B-NP\ndog NN I-NP\n\n"
    )
    assert "POISON" not in "".join(p.read_text() for p in folder.rglob("*.json*"))


def test_labels_come_by_label_studio_in_both_forms(run1, tmp_path, succeed):
    tasks = json.loads((run1 / "round-001" / "tasks.json").read_text())
    exports = {}
    for index, task in enumerate(tasks):
        data = task["data"]
        start_, stop = data["start"], data["stop"]
        begin = len(" ".join([*data["tokens"][:start_], ""]))
        word = data["tokens"][start_]
        assert stop == start_ + 1
        value = {"start": begin, "end": begin + len(word), "text": word, "labels": [gold(word)]}
        result = [{"type": "labels", "from_name": "label", "to_name": "text", "value": value}]
        full = {"id": index, **task, "annotations": [{"result": result, "was_cancelled": False}]}
        short = {"id": index, **data, "label": [value], "annotator": 1}
        exports.setdefault("full", []).append(full)
        exports.setdefault("min", []).append(short)
    exports["full"][0]["annotations"][0]["was_cancelled"] = True  # some is enough
    del exports["min"][0]["label"]
    statuses = []
    for form, export in exports.items():
        folder = shutil.copytree(run1, tmp_path / form)
        (tmp_path / "export").write_text(json.dumps(export, indent=2))
        status = json.loads(succeed("active", "answer", folder, tmp_path / "export", "--json"))
        assert (status["answers"], status["without_answer"]) == (2, 1)
        statuses.append({name: status[name] for name in ("round", "labelled_tokens", "objective")})
    assert statuses[0] == statuses[1]
    assert statuses[0]["labelled_tokens"] == len(TRAIN[0].split()) + 2


def test_asking_twice_gives_the_same_files(run1, succeed):
    before = {path.name: path.read_bytes() for path in (run1 / "round-001").iterdir()}
    assert set(before) == {"tasks.json", "labels.xml", "queries.jsonl"}
    out = succeed("active", "query", run1)
    assert str(run1 / "round-001" / "tasks.json") in out
    assert {path.name: path.read_bytes() for path in (run1 / "round-001").iterdir()} == before
    succeed("active", "query", run1, "--count", 1)
    assert len(queries_in(run1, 1)) == 1
    assert queries_in(run1, 1)[0] == json.loads(before["queries.jsonl"].split(b"\n")[0])


def test_without_labels_whole_sentences_are_asked_first(tmp_path, succeed):
    write_files(tmp_path)
    (tmp_path / "pool").write_text("\n".join(POOL))
    (tmp_path / "templates").write_text("word[0]\n")
    argv = ["--pool", tmp_path / "pool", "--pool-format", "plain", "--out", tmp_path / "run"]
    argv += ["--templates", tmp_path / "templates", "--labels", ",".join(LABELS), "--initial", 2]
    report = json.loads(succeed("active", "start", *argv, "--initial-how", "shortest", "--json"))
    assert (report["round"], report["labelled_tokens"], report["dev_f1"]) == (0, 0, None)
    succeed("active", "query", tmp_path / "run")
    queries = queries_in(tmp_path / "run", 0)
    assert [query["words"] for query in queries] == [POOL[1].split(), POOL[4].split()]
    assert queries[0]["guess"] == [None] * len(queries[0]["words"])
    rows = [
        {"round": 0, "sentence": q["sentence"], "position": t, "label": gold(word)}
        for q in queries
        for t, word in enumerate(q["words"])
    ]
    rows[0]["label"] = [rows[0]["label"], "O"]  # one of the two
    write_lines(tmp_path / "rows", [rows[1], *rows])  # a token twice is one token
    out = succeed("active", "answer", tmp_path / "run", tmp_path / "rows", "--no-train")
    assert f"answers   {len(rows)} tokens" in out
    assert "round     0" in out
    assert [label for *_, label in answers_in(tmp_path / "run")][1:3] == [
        sorted(rows[0]["label"]),
        rows[1]["label"],
    ]


def test_taken_in_without_training_the_round_goes_on(run1, tmp_path, succeed):
    rows = solved(queries_in(run1, 1))
    write_lines(tmp_path / "first", [rows[0], queries_in(run1, 1)[1]])
    out = succeed("active", "answer", run1, tmp_path / "first", "--no-train")
    assert "1 tokens, 1 without an answer" in out
    assert "2 queries of this round have no answer" in out
    succeed("active", "query", run1)
    assert queries_in(run1, 1) == [{k: v for k, v in r.items() if k != "labels"} for r in rows[1:]]
    write_lines(tmp_path / "rest", rows[1:])
    succeed("active", "answer", run1, tmp_path / "rest", "--no-train")
    assert "all queries of round 1 are answered: training" in succeed("active", "query", run1)
    assert (run1 / "round-002" / "tasks.json").exists()
    out = succeed("active", "train", run1)  # a round may end before it is answered
    assert "round     3" in out


@pytest.mark.parametrize("more", [["--strategy", "tokens", "--per-form", 1],
                                  ["--strategy", "groups", "--alike", "word[0]|word[1]"],
                                  ["--strategy", "spans", "--width", 2],
                                  ["--strategy", "sequences"],
                                  ["--strategy", "sequences", "--ask", "unsure"]])  # fmt: skip
def test_other_strategies(more, tmp_path, succeed):
    folder = start(tmp_path, succeed, *more, count=2)
    report = json.loads(succeed("active", "query", folder, "--json"))
    queries = queries_in(folder, 1)
    assert len(queries) == report["queries"] > 0
    if more[1] == "spans":
        assert sum(query["stop"] - query["start"] for query in queries) <= 2
    else:
        assert len({query["sentence"] for query in queries}) <= 2
    answers = write_lines(tmp_path / "answers", solved(queries))
    assert json.loads(succeed("active", "answer", folder, answers, "--json"))["round"] == 2


def test_trainings_may_be_short_between_rounds_and_whole_when_asked_for(tmp_path, succeed):
    folder = start(tmp_path, succeed, "--between", 1)
    succeed("active", "query", folder)
    answers = write_lines(tmp_path / "answers", solved(queries_in(folder, 1)))
    assert "1 iterations, cut short on" in succeed("active", "answer", folder, answers)
    assert "cut short" not in succeed("active", "train", folder)
    lines = [line for line in journal(folder) if line["kind"] == "trained"]
    assert [line["short"] for line in lines] == [False, True, False]
    assert lines[1]["iterations"] == 1 < lines[2]["iterations"]


def test_a_model_that_would_be_the_last_is_rechecked(run1, succeed, monkeypatch):
    rechecked = []
    monkeypatch.setattr(ActiveLearner, "recheck", lambda learner: rechecked.append(learner))
    succeed("active", "train", run1)
    assert rechecked == []
    stopped = dataclasses.replace(
        ActiveLearner.resume(run1, read_corpora(run1).pool).status(), stop=True
    )
    monkeypatch.setattr(ActiveLearner, "status", lambda learner: stopped)
    succeed("active", "train", run1)
    assert len(rechecked) == 1


# ----------------------------------------------------------------------------------------- killed


def test_killed_in_the_middle_no_answer_is_lost(tmp_path, succeed):
    folder = start(tmp_path, succeed, train=False, initial=2)
    code = f"from jaxseq.cli import main; main(['active', 'annotate', {str(folder)!r}])"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=env
    )
    try:
        assert process.stdin is not None
        process.stdin.write(b"B-NP\nI-NP\n")
        process.stdin.flush()
        while len(answers_in(folder)) < 2:
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    status = json.loads(succeed("active", "status", folder, "--json"))
    assert status["labelled_tokens"] == 2
    succeed("active", "query", folder)
    rows = solved(queries_in(folder, 0))
    succeed("active", "answer", folder, write_lines(tmp_path / "rows", rows))
    assert len([line for line in journal(folder) if line["kind"] == "trained"]) == 1


def test_two_commands_at_once_are_refused(run1, run):
    with opened(str(run1)):
        for argv in (["train", run1], ["query", run1], ["annotate", run1]):
            status, out, err = run("active", *argv)
            assert (status, out) == (2, "")
            assert "another jaxseq active command is at work on it" in err
    assert run("active", "status", run1)[0] == 0


def test_status_looks_on_while_others_work_and_changes_nothing(run1, succeed):
    def files():
        return {path: path.read_bytes() for path in run1.rglob("*") if path.is_file()}

    with opened(str(run1)) as at_work:
        at_work.learner.answer([Answer(1, 0, "O")])
        labelled = at_work.learner.status().labelled_tokens
        database = sqlite3.connect(run1 / "run.sqlite", isolation_level=None)
        with contextlib.closing(database):
            database.execute("BEGIN IMMEDIATE")  # the other one is writing
            event = '{"kind": "answers", "round": 1, "answers": [[1, 1, "O"]]}'
            database.execute("INSERT INTO events (text) VALUES (?)", [event])
            (run1 / ".next").mkdir()  # and saving
            before = files()
            status = json.loads(succeed("active", "status", run1, "--json"))
            assert (status["labelled_tokens"], status["round"]) == (labelled, 1)
            assert files() == before
            assert (run1 / ".next").is_dir()


def test_a_look_on_waits_for_a_model_that_is_being_replaced(run1, succeed, monkeypatch):
    real, tries = _active_run.time.sleep, []

    def put_in_place(seconds):
        tries.append(seconds)
        (run1 / "elsewhere").rename(run1 / "model")
        real(0)

    (run1 / "model").rename(run1 / "elsewhere")
    monkeypatch.setattr(_active_run.time, "sleep", put_in_place)
    assert json.loads(succeed("active", "status", run1, "--json"))["round"] == 1
    assert len(tries) == 1


def test_a_learner_that_only_looks_refuses_to_write(run1):
    learner = looked_at(str(run1)).learner
    labelled = learner.status().labelled_tokens
    with pytest.raises(ValueError, match="expected only to be read"):
        learner.answer([Answer(1, 0, "O")])
    assert learner.status().labelled_tokens == labelled


def test_a_label_that_was_not_thought_of_is_added(run1, succeed, run, tmp_path):
    rows = solved(queries_in(run1, 1))
    rows[0]["labels"] = ["B-ADJP"] * len(rows[0]["labels"])
    file = write_lines(tmp_path / "rows", rows)
    status, _, err = run("active", "answer", run1, file)
    assert status == 2
    assert "jaxseq active labels --add" in err
    before = json.loads(succeed("active", "status", run1, "--json"))
    succeed("active", "labels", run1, "--add", "B-ADJP", "I-ADJP")
    labels = sorted([*LABELS, "B-ADJP", "I-ADJP"])
    assert json.loads(succeed("active", "labels", run1, "--json"))["labels"] == labels
    assert succeed("active", "labels", run1).split() == labels
    assert json.loads(succeed("active", "status", run1, "--json")) == before
    report = json.loads(succeed("active", "answer", run1, file, "--json"))
    assert report["round"] == 2
    learner = ActiveLearner.resume(run1, read_corpora(run1).pool)
    assert learner.tagger_.classes_.tolist() == labels
    assert "B-ADJP" in (succeed("active", "query", run1) and
                        (run1 / "round-002" / "labels.xml").read_text())  # fmt: skip
    for wrong in ("B-ADJP", ""):
        assert run("active", "labels", run1, "--add", wrong)[0] == 2


def test_labels_of_no_phrases_have_no_f1():
    """An F1 of 0 beside an accuracy of 1 would be taken for a failure."""
    learner = SimpleNamespace(
        status=lambda: SimpleNamespace(as_dict=dict),
        tagger_=SimpleNamespace(predict=lambda sentences: [["D", "N"]]),
    )
    corpora = SimpleNamespace(dev=[["the", "dog"]], dev_labels=[["D", "N"]])
    run: Any = SimpleNamespace(folder="run", learner=learner, corpora=corpora, has_model=True)
    run.scores = lambda tagger: ActiveRun.scores(run, tagger)
    report = ActiveRun.report(run)
    assert (report["dev_f1"], report["dev_accuracy"]) == (None, 1.0)
    nothing = dict.fromkeys(("guessed_tokens", "kappa", "informative", "waiting"))
    shares = {"labelled_share": 1.0, "sentence_share": 1.0}
    counts = dict.fromkeys(
        ("round", "labelled_tokens", "tokens", "labelled_sentences", "sentences"), 1
    )
    whole = {**report, **nothing, **counts, **shares, "stop": False, "why": "no"}
    assert "dev       accuracy 100.00%" in report_lines(whole)
    assert "dev       F1 50.00%, accuracy 100.00%" in report_lines({**whole, "dev_f1": 0.5})
