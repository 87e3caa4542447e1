"""Hidden Markov models on disk: the same bytes, the same answers, and nothing else is taken."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load as from_bytes

import jaxseq
from jaxseq.hmm import HMMTagger
from tests.hmm.toys import MORE, X, Y, tagger
from tests.taggers.test_storage import contents, resign

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def fitted():
    one = tagger(weight=0.4, frozen=("transition",), max_iterations=3, decoding="max_marginal")
    return one.fit([*X, ["ü", "\udc80"]], [*Y, ["A", "B"]], unlabelled=MORE)


@pytest.fixture
def saved(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


def test_a_loaded_model_answers_exactly_as_before(fitted, saved):
    loaded = jaxseq.load(saved)
    assert type(loaded) is HMMTagger
    unseen = [list("uvq"), ["ü"], ["\udc80", "u"], []]
    assert loaded.predict(unseen) == fitted.predict(unseen)
    assert loaded.predict_k_best(unseen, 3) == fitted.predict_k_best(unseen, 3)
    for a, b in zip(loaded.predict_proba(unseen), fitted.predict_proba(unseen)):
        np.testing.assert_array_equal(a, b)
    assert loaded.get_params() == fitted.get_params()
    assert loaded.classes_.tolist() == fitted.classes_.tolist()
    assert loaded.vocabulary_.words == fitted.vocabulary_.words
    for name in ("loss_", "log_likelihood_", "outcome_", "n_iter_"):
        assert getattr(loaded, name) == getattr(fitted, name)


def test_saving_a_loaded_model_gives_the_same_bytes(saved, tmp_path):
    jaxseq.load(saved).save(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(saved)


def test_either_kind_of_model_may_replace_the_other(saved):
    crf = jaxseq.CRFTagger(templates=["word[0]"], max_iterations=2, cores=1).fit(X, Y)
    crf.save(saved)
    assert type(jaxseq.load(saved)) is jaxseq.CRFTagger
    names = {"format", "version", "labels", "attributes", "features", "settings", "training"}
    names |= {"arrays", "checksum"}  # as before there were two kinds: older models have no more
    assert set(json.loads((saved / "model.json").read_text())) == names
    tagger().fit(X, Y).save(saved)
    assert type(jaxseq.load(saved)) is HMMTagger


def test_probabilities_are_stored_as_they_are(fitted, saved):
    stored = from_bytes((saved / "model.safetensors").read_bytes())
    for name, family in fitted.model_.probabilities._asdict().items():
        np.testing.assert_array_equal(stored[name], family)


def negative(arrays):
    arrays["emission"][0] *= -1


def not_finite(arrays):
    arrays["transition"][0, 0] = np.nan


def not_normalised(arrays):
    arrays["initial"] *= 2


def fewer_words(arrays):
    arrays["emission"] = arrays["emission"][:-1]


def another_name(arrays):
    arrays["start"] = arrays.pop("initial")


def no_floats(arrays):
    arrays["initial"] = arrays["initial"].astype(np.int64)


@pytest.mark.parametrize(
    "change", [negative, not_finite, not_normalised, fewer_words, another_name, no_floats]
)
def test_arrays_that_are_no_model_are_refused(change, saved):
    resign(saved, arrays=change)
    with pytest.raises(ValueError, match=r"model: expected a sound model of version 1: "):
        jaxseq.load(saved)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "svm"},
        {"kind": None},
        {"labels": ["A", "A", "B"]},
        {"labels": ["A", "B"]},
        {"settings": {}},
        {"settings": {"decoding": "x", "frozen": []}},
        {"settings": {"frozen": ["x"]}},
        {"settings": {"templates": None, "frozen": []}},
        {"training": None},
    ],
)
def test_descriptions_that_are_of_no_model_are_refused(change, saved):
    resign(saved, change=lambda about: about.update(change))
    with pytest.raises(ValueError, match=r"model: expected a sound model of version 1: "):
        jaxseq.load(saved)


def test_a_changed_or_cut_file_is_noticed(saved):
    before = contents(saved)
    for name, data in before.items():
        for broken in (data[:-3], data.replace(b"A", b"B", 1) + b" "):
            (saved / name).write_bytes(broken)
            with pytest.raises(ValueError, match=f"{name}: expected"):
                jaxseq.load(saved)
        (saved / name).write_bytes(data)
    assert type(jaxseq.load(saved)) is HMMTagger


PROGRAM = """
import sys
from tests.hmm.toys import MORE, X, Y, tagger
y = [[{"A", "B", "C"} - {label} for label in labels] for labels in Y]
tagger(max_iterations=3).fit(X + X, Y + y, unlabelled=MORE).save(sys.argv[1])
"""


def test_a_process_with_other_hashes_writes_the_same_bytes(tmp_path):
    environment = {**os.environ, "PYTHONHASHSEED": "1", "JAX_ENABLE_X64": "1"}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "there")]
    subprocess.run(command, env=environment, check=True, cwd=ROOT)
    y = [[{"A", "B", "C"} - {label} for label in labels] for labels in Y]
    tagger(max_iterations=3).fit(X + X, Y + y, unlabelled=MORE).save(tmp_path / "here")
    assert contents(tmp_path / "here") == contents(tmp_path / "there")
