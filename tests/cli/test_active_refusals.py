"""Active learning by the command line: what it refuses, and that nothing changes then."""

import json
import shutil

import pytest

from tests.cli.active_runs import (
    POOL,
    queries_in,
    start,
    write_files,
    write_lines,
)
from tests.cli.conftest import columns_of

# -------------------------------------------------------------------------------------- refusals

GOOD = {"round": 1, "sentence": 1, "position": 0, "label": "O"}
LONG = {"round": 1, "sentence": 1, "start": 0, "labels": ["O"]}
LINES = {
    "stale round": ({**GOOD, "round": 0}, "expected an answer of round 1, the one under way, got"),
    "next round": ({**GOOD, "round": 2}, "expected an answer of round 1"),
    "no round": ({**GOOD, "round": None}, "expected 'round', a whole number"),
    "unknown label": ({**GOOD, "label": "VP"}, "expected a label, one of B-NP, B-VP, I-NP, O; got"),
    "no label": ({**GOOD, "label": None}, "expected a label, or a list of some"),
    "no labels": ({**GOOD, "label": []}, "expected a label, or a list of some"),
    "unknown in a list": ({**GOOD, "label": ["O", "VP"]}, "expected a label, one of B-NP"),
    "sentence": ({**GOOD, "sentence": 99}, "expected 'sentence', a whole number, 0 … 7, got 99"),
    "position": ({**GOOD, "position": 4}, "expected 'position', a whole number, 0 … 3, got 4"),
    "negative": ({**GOOD, "position": -1}, "expected 'position'"),
    "true": ({**GOOD, "position": True}, "expected 'position'"),
    "too many": ({**LONG, "labels": ["O"] * 5}, "expected labels for tokens 0 … 4 − 1"),
    "too few": ({**LONG, "stop": 3}, "expected labels for tokens 0 … 3 − 1"),
    "words": ({**LONG, "words": ["cat"]}, "expected the words of sentence 1 from 0 on, 'the'"),
    "labels": ({**LONG, "labels": "O"}, "expected 'labels', a list"),
    "both": ({**LONG, "label": "O"}, "expected 'label' or 'labels', got both"),
    "misspelt": ({"round": 1, "sentence": 1, "lable": "O"}, "expected 'label' with 'position'"),
    "no object": (["O"], "expected a JSON object"),
}  # fmt: skip


def refused(run, folder, file, message):
    before = (folder / "run.sqlite").read_bytes()
    status, out, err = run("active", "answer", folder, file)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert (folder / "run.sqlite").read_bytes() == before


@pytest.mark.parametrize("name", LINES)
def test_bad_lines_are_refused_with_their_place(name, run1, tmp_path, run):
    row, message = LINES[name]
    file = write_lines(tmp_path / "answers", [GOOD, GOOD, row])
    refused(run, run1, file, f"{file}:3: {message}")


def test_all_bad_lines_are_told_at_once(run1, tmp_path, run):
    rows = [{**GOOD, "label": f"X{n}"} for n in range(13)]
    file = write_lines(tmp_path / "answers", [GOOD, *rows])
    before = (run1 / "run.sqlite").read_bytes()
    status, out, err = run("active", "answer", run1, file)
    assert (status, out) == (2, "")
    assert (run1 / "run.sqlite").read_bytes() == before
    assert f"{file}: expected legal answers, got 13 entries that are not" in err
    assert [f"'X{n}'" in err for n in range(13)] == [True] * 10 + [False] * 3
    assert "\nand 3 more\n" in err
    assert err.count("\n") == 12
    assert "jaxseq active labels --add" in err


def test_all_bad_tasks_are_told_at_once(run1, tmp_path, run):
    tasks = json.loads((run1 / "round-001" / "tasks.json").read_text())
    for task in tasks:
        value = {"start": 0, "end": 1, "labels": ["X"]}
        task["annotations"] = [{"result": [{"type": "labels", "value": value}]}]
    file = tmp_path / "export.json"
    file.write_text(json.dumps(tasks))
    status, _, err = run("active", "answer", run1, file)
    assert status == 2
    assert f"got {len(tasks)} entries that are not" in err
    assert err.count("got 'X'") == len(tasks)


def test_what_is_no_answer_at_all_is_refused(run1, tmp_path, run):
    file = tmp_path / "answers"
    cases = {
        '{"round": 1,': f"{file}:1: expected a JSON object",
        '[\n{"id": 1}, ': f"{file}:2: expected JSON",
        "[3]": f"{file}, entry 1: expected a task",
        "[]": f"{file}: expected at least one answer, found nothing",
        "": f"{file}: expected at least one answer, found nothing",
        "\n".join(json.dumps(query) for query in queries_in(run1, 1)): "found 3 entries without",
        "[" * 100_000: f"{file}: expected",
    }
    for text, message in cases.items():
        file.write_text(text)
        refused(run, run1, file, message)
    file.write_bytes(b"\xff\n")
    refused(run, run1, file, f"{file}:1: expected text encoded as utf-8")
    refused(run, run1, tmp_path / "nowhere", "nowhere: expected a file, there is none")


def test_labels_that_the_scheme_forbids_are_refused(tmp_path, succeed, run):
    folder = start(tmp_path, succeed, "--scheme", "IOB2", train=False, initial=1)
    rows = [{**GOOD, "round": 0}, {**GOOD, "round": 0, "position": 1, "label": "I-NP"}]
    refused(
        run, folder, write_lines(tmp_path / "rows", rows), "rows: answers: expected labels that"
    )


def test_folders_that_are_no_run_are_refused(run1, tmp_path, run):
    (tmp_path / "empty").mkdir()
    cases = [(tmp_path / "nowhere", "expected a folder of jaxseq active start, there is none")]
    cases += [(tmp_path / "empty", "expected a folder of jaxseq active start, found no corpora")]
    changed = shutil.copytree(run1, tmp_path / "changed")
    text = (changed / "pool.jsonl").read_text()
    (changed / "pool.jsonl").write_text(text.replace("cat", "cow"))
    cases += [(changed, "pool.jsonl: expected the file that jaxseq active start wrote")]
    about = shutil.copytree(run1, tmp_path / "about")
    (about / "corpora.json").write_text("{}")
    cases += [(about, "corpora.json: expected JSON of the format")]
    no_model = shutil.copytree(run1, tmp_path / "no_model")
    shutil.rmtree(no_model / "model")
    cases += [(no_model, "model: expected the model that the journal names last")]
    for folder, message in cases:
        for command in ("status", "query", "annotate", "train"):
            status, out, err = run("active", command, folder)
            assert (status, out, err.count("\n")) == (2, "", 1)
            assert message in err


STARTS = {
    "no labels": ([], "--labels: expected the labels that may be given, since --train is not"),
    "labels": (["--labels", "A,,B"], "expected different labels separated by commas"),
    "width": (["--train", "few", "--width", "2"], "--width: expected along with --strategy spans"),
    "by": (["--train", "few", "--by", "entropy"], "--by: expected along with --strategy sequences"),
    "count": (["--train", "few", "--count", "0"], "count: expected a whole number, 1 or more"),
    "threshold": (["--train", "few", "--threshold", "2"], "--threshold: expected a number above 0"),
    "budget": (["--train", "few", "--budget", "0"], "--budget: expected 1 or more"),
    "between": (["--train", "few", "--between", "0"], "--between: expected 1 or more"),
    "initial": (["--train", "few", "--initial", "0"], "initial: expected"),
    "l2": (["--train", "few", "--l2", "-1"], "l2: expected a finite number"),
    "no file": (["--train", "nowhere"], "nowhere: expected a file, there is none"),
    "dev": (["--train", "few", "--dev", "pool2"], "pool2: expected a file"),
    "plain": (["--train", "few", "--pool-format", "plain"], "pool: expected a column 'pos'"),
    "out": (["--train", "few", "--out", "full"], "full: expected nothing or an empty folder"),
    "out is a file": (["--train", "few", "--out", "few"], "few: expected nothing or an empty"),
    "templates": (["--train", "few", "--templates", "none"], "--templates: expected a file or one"),
    "scheme": (["--train", "illegal", "--scheme", "IOB2"], "illegal:1: "),
    "pool": (["--train", "few", "--pool", "empty"], "empty: expected at least one sentence"),
    "out is here": (["--train", "few", "--out", "."], "--out: expected a folder to make, got '.'"),
    "out is above": (["--train", "few", "--out", ".."], "--out: expected a folder to make"),
    "labels in the pool": (["--labels", "B-NP,B-VP,O", "--pool", "dev"], "dev: expected no labels "
                           "in column 3, 'chunk', found 'B-NP' (--columns"),
    "peek": (["--labels", "DT,NN,VBZ,.", "--pool", "two"], "two:1: expected the column 'pos'"),
}  # fmt: skip


@pytest.mark.parametrize("name", STARTS)
def test_a_start_that_makes_no_sense_writes_nothing(name, tmp_path, run, monkeypatch):
    more, message = STARTS[name]
    write_files(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").touch()
    (tmp_path / "empty").touch()
    (tmp_path / "illegal").write_text("the DT I-NP\n")
    (tmp_path / "two").write_text(columns_of(POOL, width=2))
    monkeypatch.chdir(tmp_path)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    argv = ["--pool", "pool", "--templates", "templates", "--out", "run", *more]
    status, out, err = run("active", "start", *argv)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_help_shows_the_whole_loop(run):
    status, out, _ = run("active", "--help")
    assert status == 0
    for name in ("start", "query", "answer", "status", "annotate", "train"):
        assert f"jaxseq active {name}" in out or f"\n    {name} " in out
