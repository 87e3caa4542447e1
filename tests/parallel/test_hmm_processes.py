"""Two processes train the hidden Markov model that one trains."""

import json
from argparse import Namespace

import jax
import numpy as np
import pytest

import jaxseq
from jaxseq.cli import main
from jaxseq.cli._train import check_process_options
from jaxseq.constraints import HMMLearner
from tests.parallel import hmm_in_processes
from tests.parallel.hmm_in_processes import SHARED, draw_corpus, fit, told, told_of_codl
from tests.parallel.test_processes import finish, free_port, start, start_pair, write_corpus


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hmm")


def leave_codl(file):
    """Notes of the first cycle, by one process that was interrupted in the second."""
    learn = HMMLearner.learn

    def until_the_second(self, *arguments):
        if file.exists():
            raise KeyboardInterrupt
        return learn(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HMMLearner, "learn", until_the_second)
        assert len(hmm_in_processes.learn("kept", checkpoint=file).history_) == 1


@pytest.fixture(scope="module")
def found(folder):
    with jax.enable_x64(True):
        fit("soft", max_iterations=4, checkpoint=folder / "left by one")
        leave_codl(folder / "codl left by one")
    port, module = free_port(), hmm_in_processes.__name__
    ended = finish([start([port, index, folder], module) for index in range(2)])
    assert [status for status, *_ in ended] == [0, 0], ended[0][2][-3000:] + ended[1][2][-3000:]
    return json.loads(ended[0][1].splitlines()[-1])


def check_same(expected, other):
    """Words in the same order, the same labels, and numbers to 1e-9."""
    for name in ("words", "classes", "labels", "ended"):
        assert other[name] == expected[name]
    numbers = [[*each["objectives"], each["log_likelihood"] or 0.0] for each in (expected, other)]
    np.testing.assert_allclose(*numbers, rtol=1e-9)
    for one, another in zip(expected["model"], other["model"], strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, another, rtol=0, atol=1e-9)


@pytest.mark.parametrize("way", SHARED)
def test_training_agrees(found, way):
    with jax.enable_x64(True):
        expected = told(fit(way))
    assert len(expected["words"]) > 5
    for split in SHARED[way]:
        for other in found[f"{way}, {split}"]:
            check_same(expected, other)


def test_a_search_goes_from_two_to_one_and_from_one_to_two(found, folder):
    kept = folder / "stopped"
    assert kept.exists()
    with jax.enable_x64(True):
        expected = told(fit("soft"))
        check_same(expected, told(fit("soft", checkpoint=kept)))
        with pytest.raises(ValueError, match="another"):
            fit("soft", checkpoint=kept, transition_smoothing=0.3)
    for other in found["gone on"]:
        check_same(expected, other)


def test_ctrl_c_in_one_process_ends_em_in_all(found):
    first, second = found["interrupted"]
    assert first == second
    for iterations, outcome in first:
        assert iterations == 2
        assert outcome.startswith("interrupted")


ALIKE = {
    "iterations": "settings: expected the same in all processes, got {'max_iterations': '3'} in",
    "unlabelled": "settings: expected the same in all processes, got {'unlabelled': 'none'} in",
    "no labelled": "labelled: expected a corpus in all processes or in none, where one without "
    "sequences has a corpus of none, got None in process 1 and a corpus in process 0",
    "no others": "unlabelled: expected a corpus in all processes or in none, where one without "
    "sequences has a corpus of none, got None in process 0 and a corpus in process 1",
    "words": "unlabelled: words and labels: expected the same in all processes, got [11, None] in",
}
TOLD = {
    "labels": "y[0]: expected 2 labels, one per token, got 1 labels",
    "nonsense": "unknown_below: expected a finite number, 1 or more, got 0",
    "numbers": "sentence_numbers: expected 1, one per sentence, got [2]",
    "impossible": "unlabelled[0]: expected sentences that the supervised model holds possible",
    "balance": "balance: expected 0 … 1, got 2.0",
}


@pytest.mark.parametrize("case", ALIKE)
def test_what_differs_is_refused_by_all(found, case):
    for each in found["refused"]:
        assert each[case].startswith(f"own ValueError: {ALIKE[case]}")


@pytest.mark.parametrize("case", TOLD)
def test_an_error_of_one_is_told_to_all(found, case):
    other, own = (each[case] for each in found["refused"])
    assert own.startswith(f"own ValueError: {TOLD[case]}")
    assert other.startswith(f"other: process 1: {TOLD[case]}")


# ------------------------------------------------------------------ constraint-driven learning


def check_same_codl(expected, other):
    """The same labels and history, and numbers to 1e-9."""
    for name in ("words", "classes", "labels", "ended"):
        assert other[name] == expected[name]
    for one, another in zip(expected["history"], other["history"], strict=True):
        assert one["mean_score"] == pytest.approx(another["mean_score"], rel=1e-9)
        assert {**one, "mean_score": 0} == {**another, "mean_score": 0}
    for one, another in zip(expected["model"], other["model"], strict=True):
        np.testing.assert_allclose(one, another, rtol=0, atol=1e-9)


@pytest.mark.parametrize("way", hmm_in_processes.CODL)
def test_codl_agrees(found, way):
    with jax.enable_x64(True):
        expected = told_of_codl(hmm_in_processes.learn(way))
    assert len(expected["history"]) > 1
    assert all(expected["history"][0]["violated"].values())
    for other in found["codl"]:
        check_same_codl(expected, other[way])


def test_codl_goes_from_two_to_one_and_from_one_to_two(found, folder):
    """Ctrl-C in one process ended both after a cycle."""
    kept, left = folder / "codl stopped", folder / "codl left by one"
    for other in found["codl"]:
        cycles, outcome = other["stopped"]
        assert cycles == 1
        assert outcome.startswith("interrupted")
    with jax.enable_x64(True):
        expected = told_of_codl(hmm_in_processes.learn("kept"))
        assert kept.exists()
        gone_on = hmm_in_processes.learn("kept", checkpoint=kept)
        check_same_codl(expected, told_of_codl(gone_on))
    assert kept.exists()
    gone_on.save(folder / "codl gone on")
    assert not kept.exists()
    assert left.exists()  # nobody has saved its model
    for other in found["codl"]:
        check_same_codl(expected, other["gone on"])


def test_codl_is_refused_by_all(found):
    first, second = found["codl refused"]
    for each in (first, second):
        same = "expected the same in all processes, got"
        assert each["k"].startswith(f"own ValueError: settings: {same} {{'k': '3'}} in process 0")
        assert each["constraints"].startswith(f"own ValueError: constraints: {same}")
        wrong = "y: expected the label of every token, since labelled sentences and labellings"
        assert each["pool"].startswith(f"own ValueError: {wrong}")
    wrong = second["rule"].removeprefix("own ValueError: ")
    assert "'X'" in wrong
    assert first["rule"] == f"other: process 1: {wrong}"


# ------------------------------------------------------------------------------- command line


def test_what_several_processes_do_not_do_is_refused():
    usual = {"method": "crf", "algorithm": "lbfgs", "choose_entropy_weight": None, "shards": None}
    for method in ("crf", "hmm", "codl hmm"):
        check_process_options(Namespace(**{**usual, "method": method}))
    alone = "expected in a run of one process only"
    for change, wrong in (
        ({"method": "codl crf"}, f"train codl crf: {alone}, or train codl hmm$"),
        ({"method": "self crf"}, f"train self crf: {alone}$"),
        ({"method": "self hmm"}, f"train self hmm: {alone}$"),
        ({"choose_entropy_weight": True}, f"--choose-entropy-weight: {alone}$"),
        ({"algorithm": "sgd"}, "--algorithm: expected lbfgs with several processes"),
    ):
        with pytest.raises(ValueError, match=wrong):
            check_process_options(Namespace(**{**usual, **change}))


RAN = {"em": (8, None), "codl": (0, 2)}
"""Iterations of EM, and cycles."""


@pytest.mark.parametrize("way", RAN)
def test_command_line_gives_the_same_model(folder, way):
    """Every other sentence of one file, and of another without labels."""
    X, y, more = draw_corpus()
    write_corpus(folder / "train.txt", X, y)
    write_corpus(folder / "more.txt", more, more)
    method = ["hmm"] if way == "em" else ["codl", "hmm"]
    usual = ["train", *method, "--train", folder / "train.txt", "--unknown-below", 2]
    usual += ["--unlabelled", folder / "more.txt", "--json"]
    if way == "em":
        usual += ["--max-iterations", 8, "--dev", folder / "train.txt"]
    else:
        rule = '[[constraint]]\nkind = "starts_with"\nlabels = ["A"]\npenalty = 1.5\n'
        (folder / "rules.toml").write_text(rule)
        usual += ["--constraints", folder / "rules.toml", "--top-k", 3, "--cycles", 2]
    pair = start_pair([*usual, "--out", folder / f"many {way}"])
    with jax.enable_x64(False):
        assert main([*map(str, usual), "--out", str(folder / f"one {way}")]) == 0
    (status, output, errors), (other, silent, _) = finish(pair)
    assert (status, other) == (0, 0), errors
    report = json.loads(output)
    assert report["sentences"] == sum(map(bool, X))
    assert report["unlabelled"]["sentences"] == sum(map(bool, more))
    assert (report["iterations"], report["unlabelled"].get("cycles")) == RAN[way]
    assert silent == ""
    one, many = (jaxseq.load(folder / f"{name} {way}") for name in ("one", "many"))
    assert one.vocabulary_.words == many.vocabulary_.words
    assert one.classes_.tolist() == many.classes_.tolist()
    for ours, theirs in zip(one.model_.probabilities, many.model_.probabilities):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
