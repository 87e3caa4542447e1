"""``jaxseq active finish``: a model with other settings, and a run that is not touched."""

import json
import shutil

import pytest

import jaxseq
from jaxseq.cli._active_run import opened
from tests.cli.active_runs import start, write_files


def files_of(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_model_with_other_settings(run1, tmp_path, succeed):
    before, out = files_of(run1), tmp_path / "final"
    report = json.loads(succeed("active", "finish", run1, "--l2", 0.01, "--out", out, "--json"))
    assert files_of(run1) == before
    assert report["model"] == str(out)
    assert report["labelled_tokens"] == 4
    assert report["iterations"] > 0
    asking, final = jaxseq.load(run1 / "model"), jaxseq.load(out)
    assert (asking.l2, final.l2) == (0.1, 0.01)
    assert report["objective"] < asking.loss_  # the same labels, a smaller penalty
    assert 0 < report["dev_f1"] <= 1
    (tmp_path / "new").write_text("the DT\ndog NN\n")
    assert succeed("tag", "--model", out, tmp_path / "new") == "the DT B-NP\ndog NN I-NP\n\n"
    text = succeed("active", "finish", run1, "--out", out)  # which replaces the model
    assert jaxseq.load(out).l2 == 0.1
    assert f"model     {out}" in text
    assert "dev       F1 " in text
    assert text.startswith("training  ")


def test_without_dev_there_are_no_scores(tmp_path, succeed):
    write_files(tmp_path)
    argv = ["--train", tmp_path / "few", "--pool", tmp_path / "pool", "--out", tmp_path / "run"]
    argv += ["--templates", tmp_path / "templates"]
    succeed("active", "start", *argv, "--cores", 1)
    out = tmp_path / "final"
    report = json.loads(succeed("active", "finish", tmp_path / "run", "--out", out, "--json"))
    assert (report["dev_f1"], report["dev_accuracy"]) == (None, None)
    assert "dev " not in succeed("active", "finish", tmp_path / "run", "--out", out)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--l2", -1], "--l2: expected"),
        (["--l1", "nan"], "--l1: expected"),
        (["--max-iterations", 0], "--max-iterations: expected"),
        (["--cores", 0], "--cores: expected"),
    ],
)
def test_settings_that_make_no_sense_are_refused(run1, tmp_path, run, argv, message):
    out = tmp_path / "final"
    status, printed, err = run("active", "finish", run1, "--out", out, *argv)
    assert (status, printed, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not out.exists()


def test_the_run_is_not_overwritten(run1, tmp_path, run):
    before = files_of(run1)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter").write_text("dear")
    another = shutil.copytree(run1, tmp_path / "another")
    places = (run1, run1 / "model", run1 / "final", another / "model", tmp_path / "other")
    for out in places:
        status, printed, err = run("active", "finish", run1, "--out", out)
        assert (status, printed, err.count("\n")) == (2, "", 1)
        assert "expected" in err
    assert files_of(run1) == before
    assert [text for text in files_of(another).values()] == list(before.values())
    assert (tmp_path / "other" / "letter").read_text() == "dear"


def test_places_are_checked_before_training(run1, tmp_path, run, monkeypatch):
    def refit(self, **changes):
        raise AssertionError("it was trained")

    monkeypatch.setattr(jaxseq.ActiveLearner, "refit", refit)
    (tmp_path / "file").write_text("dear")
    assert run("active", "finish", run1, "--out", tmp_path / "file")[0] == 2


def test_another_process_may_be_at_work_on_the_run(run1, tmp_path, succeed):
    with opened(str(run1)):
        succeed("active", "finish", run1, "--out", tmp_path / "final")
    assert jaxseq.load(tmp_path / "final").l2 == 0.1


def test_labels_by_the_model_are_told(tmp_path, succeed):
    more = ["--strategy", "sequences", "--ask", "unsure", "--keep-sure", "model"]
    folder = start(tmp_path, succeed, *more, "--threshold", 0.3)
    succeed("active", "query", folder)
    out = tmp_path / "final"
    report = json.loads(succeed("active", "finish", folder, "--out", out, "--json"))
    status = json.loads(succeed("active", "status", folder, "--json"))
    guessed = report["guessed_tokens"]
    assert guessed == status["guessed_tokens"] > 0
    assert report["labelled_tokens"] == status["labelled_tokens"] == 4
    text = succeed("active", "finish", folder, "--out", out)
    assert f"4 labelled tokens and {guessed} tokens labelled by the model" in text


def test_without_labels_or_a_run_it_is_refused(tmp_path, run, succeed):
    folder = start(tmp_path, succeed, train=False, initial=1)
    out = tmp_path / "final"
    status, _, err = run("active", "finish", folder, "--out", out)
    assert (status, err.count("\n")) == (2, 1)
    assert (
        err == "jaxseq: error: labels: expected at least one, got none; answer some queries first\n"
    )
    status, _, err = run("active", "finish", tmp_path / "nowhere", "--out", out)
    assert (status, err.count("\n")) == (2, 1)
    assert "expected a folder of jaxseq active start" in err
    assert not out.exists()
