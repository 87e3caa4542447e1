"""Models on disk: the same bytes, the same answers, and nothing else is taken for one."""

import hashlib
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load as from_bytes
from safetensors.numpy import save as to_bytes

import jaxseq
from jaxseq import _io
from tests.taggers.toys import toy_corpus

X, Y = toy_corpus(0)
FILES = {"model.json", "model.safetensors"}


@pytest.fixture(scope="module")
def fitted():
    return jaxseq.CRFTagger(cores=1, max_iterations=10, weights="dense").fit(X, Y)


@pytest.fixture
def saved(fitted, tmp_path):
    path = tmp_path / "model"
    fitted.save(path)
    return path


def contents(path: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}


def resign(path: Path, change=lambda about: None, arrays=lambda arrays: None) -> None:
    """Edit a model and make all its checksums right again, as someone with bad intent would."""
    found = from_bytes((path / "model.safetensors").read_bytes())
    arrays(found)
    data = to_bytes(found)
    (path / "model.safetensors").write_bytes(data)
    sign(path, change, data)


def sign(path: Path, change, data: bytes) -> None:
    about = json.loads((path / "model.json").read_text())
    about["arrays"]["sha256"] = hashlib.sha256(data).hexdigest()
    change(about)
    body = {name: value for name, value in about.items() if name != "checksum"}
    text = json.dumps(body, sort_keys=True, ensure_ascii=False)
    about["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    (path / "model.json").write_text(json.dumps(about))


# ---------------------------------------------------------------------------------- round trip


def test_a_loaded_model_answers_exactly_as_before(fitted, saved):
    loaded = jaxseq.load(saved)
    unseen, _ = toy_corpus(9)
    assert loaded.predict(unseen) == fitted.predict(unseen)
    assert loaded.predict_k_best(unseen, 3) == fitted.predict_k_best(unseen, 3)
    for a, b in zip(loaded.predict_proba(unseen), fitted.predict_proba(unseen)):
        np.testing.assert_array_equal(a, b)
    assert loaded.get_params() == fitted.get_params()
    assert loaded.classes_.tolist() == fitted.classes_.tolist()
    assert loaded.top_features("A") == fitted.top_features("A")
    for name in ("loss_", "outcome_", "n_iter_", "n_evaluations_"):
        assert getattr(loaded, name) == getattr(fitted, name)


def test_saving_a_loaded_model_gives_the_same_bytes(saved, tmp_path):
    jaxseq.load(saved).save(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(saved)


def test_templates_pairs_and_forbidden_transitions_are_kept(tmp_path):
    templates = jaxseq.text.Templates.parse("U00:%x[0,0]\nB01:%x[0,0]\nB", columns=["word"])
    words, labels = [["u", "v", "ü"], ["v"]], [["B-X", "I-X", "O"], ["O"]]
    one = jaxseq.CRFTagger(templates, cores=1, scheme="IOB2", max_iterations=5).fit(words, labels)
    one.save(tmp_path / "model")
    other = jaxseq.load(tmp_path / "model")
    assert other.templates == templates
    assert other.scheme == "IOB2"
    assert np.isneginf(np.asarray(other.model_.transitions)).any()
    np.testing.assert_array_equal(other.model_.edge_weights, one.model_.edge_weights)
    assert other.predict(words) == one.predict(words)


@pytest.mark.parametrize("l1", [0.0, 1.0])
def test_weights_are_the_same_stored_densely_and_sparsely(l1, tmp_path):
    one = jaxseq.CRFTagger(cores=1, max_iterations=8, l1=l1, weights="dense").fit(X, Y)
    one.save(tmp_path / "model")
    stored = from_bytes((tmp_path / "model" / "model.safetensors").read_bytes())
    zeros = float((np.asarray(one.model_.weights) == 0).mean())
    assert ("weights" in stored) == (zeros <= 0.75)
    np.testing.assert_array_equal(
        jaxseq.load(tmp_path / "model").model_.weights, one.model_.weights
    )


PROGRAM = """
import sys, jaxseq
X = [[{"w": w, "set": {"p", "q", w}, "n": 0.5} for w in s] for s in ("uvw", "vx", "u", "xw")]
y = [["A", "B", "C"], ["B", {"A", "C"}], ["A"], [None, "C"]]
jaxseq.CRFTagger(cores=2, max_iterations=4, seed=3).fit(X, y).save(sys.argv[1])
"""


def test_fresh_processes_write_the_same_bytes(tmp_path):
    found = []
    for seed in ("1", "2"):
        path = tmp_path / seed
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", PROGRAM, path], env=environment, check=True)
        found.append(contents(path))
    assert found[0] == found[1]
    assert set(found[0]) == FILES


# ------------------------------------------------------------------------------------- writing


def test_saving_leaves_two_files_and_nothing_else(saved):
    assert set(contents(saved)) == FILES
    assert list(saved.parent.iterdir()) == [saved]


def test_saving_makes_the_folders_above(fitted, tmp_path):
    fitted.save(tmp_path / "a" / "b" / "model")
    assert set(contents(tmp_path / "a" / "b" / "model")) == FILES


def test_saving_replaces_an_older_model_and_fills_an_empty_folder(fitted, saved):
    other = jaxseq.CRFTagger(cores=1, max_iterations=2, weights="dense").fit(X, Y)
    other.save(saved)
    assert jaxseq.load(saved).n_iter_ == 2
    assert list(saved.parent.iterdir()) == [saved]
    empty = saved.parent / "empty"
    empty.mkdir()
    other.save(empty)
    assert contents(empty) == contents(saved)


def foreign_file(path):
    path.write_text("mine")


def foreign_folder(path):
    path.mkdir()
    (path / "thesis.tex").write_text("mine")


def foreign_model(path):
    path.mkdir()
    (path / "model.json").write_text('{"format": "another program"}')


def model_with_notes(path):
    jaxseq.CRFTagger(cores=1, max_iterations=2, weights="dense").fit(X, Y).save(path)
    (path / "notes.txt").write_text("mine")


@pytest.mark.parametrize("make", [foreign_file, foreign_folder, foreign_model, model_with_notes])
def test_saving_never_replaces_what_is_not_a_model(make, fitted, tmp_path):
    path = tmp_path / "there"
    make(path)
    before = contents(path) if path.is_dir() else path.read_bytes()
    with pytest.raises(ValueError, match="there: expected nothing, an empty folder or an older"):
        fitted.save(path)
    assert (contents(path) if path.is_dir() else path.read_bytes()) == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("place", ["fsync", "exchange", "replace"])
def test_a_failure_while_writing_keeps_the_old_model(place, saved, monkeypatch):
    before = contents(saved)
    other = jaxseq.CRFTagger(cores=1, max_iterations=2, weights="dense").fit(X, Y)
    real, calls = os.replace, []

    def fail(*args):
        calls.append(args)
        if place == "replace" and len(calls) != 2:  # the second puts the new model in place
            return real(*args)
        raise OSError("no space left on device")

    if place == "replace":
        monkeypatch.setattr(_io, "exchange", lambda one, other: False)
        monkeypatch.setattr(os, "replace", fail)
    elif place == "exchange":
        monkeypatch.setattr(_io, "exchange", fail)
    else:
        monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        other.save(saved)
    monkeypatch.undo()
    assert contents(saved) == before
    assert list(saved.parent.iterdir()) == [saved]


# ------------------------------------------------------------------------------------- loading


@pytest.mark.parametrize("name", sorted(FILES))
@pytest.mark.parametrize("part", [0, 1, 100, -2])
def test_a_file_that_is_cut_off_is_refused(name, part, saved):
    data = (saved / name).read_bytes()
    (saved / name).write_bytes(data[:part])
    with pytest.raises(ValueError, match=name):
        jaxseq.load(saved)


def says_the_same(one: bytearray, other: bytearray) -> bool:
    if bytes(one).split() == bytes(other).split():
        return True
    try:
        return json.loads(one) == json.loads(other)
    except ValueError:
        return False


@pytest.mark.parametrize("name", sorted(FILES))
def test_any_changed_byte_is_noticed(name, saved):
    data = bytearray((saved / name).read_bytes())
    for place in np.linspace(0, len(data) - 2, 40).astype(int).tolist():
        changed = data.copy()
        changed[place] ^= 1
        (saved / name).write_bytes(bytes(changed))
        if name == "model.json" and says_the_same(changed, data):
            continue  # white space, or a digit past the precision of its number
        with pytest.raises(ValueError, match="model"):
            jaxseq.load(saved)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_missing_file_is_named(name, saved):
    (saved / name).unlink()
    with pytest.raises(ValueError, match=f"{name}: expected a file of a model there, found none"):
        jaxseq.load(saved)


def test_a_missing_folder_and_a_plain_file_are_refused(tmp_path):
    (tmp_path / "file").write_text("{}")
    for name in ("nothing", "file"):
        with pytest.raises(ValueError, match=f"{name}.*: expected a file of a model there"):
            jaxseq.load(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "expected the format 'jaxseq tagger', got 'list'"),
        ("{}", "expected the format 'jaxseq tagger', got None"),
        ('{"format": "other"}', "expected the format 'jaxseq tagger', got 'other'"),
        ('{"format": "jaxseq tagger", "version": 2}', "expected version 1, .* got 2"),
        ('{"format": "jaxseq tagger", "version": "1"}', "expected version 1, .* got '1'"),
        ('{"format": "jaxseq tagger", "version": 1}', "its checksum"),
        ("nonsense", "expected JSON"),
        ("[" * 100_000, "expected JSON"),
        ('{"a": ' + "1" * 5000 + "}", "expected JSON"),
        ('{"a": "\\ud800"}', "expected JSON"),
    ],
)
def test_foreign_and_future_files_are_refused(text, says, saved):
    (saved / "model.json").write_text(text)
    with pytest.raises(ValueError, match=f"model.json: .*{says}"):
        jaxseq.load(saved)


class Trap:
    """Unpickling it would leave a mark."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return (Path.touch, (self.mark,))


def test_a_pickle_in_place_of_a_file_is_not_executed(saved, tmp_path):
    trap = pickle.dumps(Trap(tmp_path / "mark"))
    pickle.loads(trap)
    assert (tmp_path / "mark").exists()
    (tmp_path / "mark").unlink()
    (saved / "model.safetensors").write_bytes(trap)
    with pytest.raises(ValueError, match="cut off or changed"):
        jaxseq.load(saved)
    sign(saved, lambda about: None, trap)
    with pytest.raises(ValueError, match="expected safetensors"):
        jaxseq.load(saved)
    (saved / "model.json").write_bytes(trap)
    with pytest.raises(ValueError, match="expected JSON"):
        jaxseq.load(saved)
    assert not (tmp_path / "mark").exists()


def drop(name):
    return lambda about: about.pop(name)


def put(name, value):
    return lambda about: about.__setitem__(name, value)


def nothing(_):
    return None


def setting(name, value):
    return lambda about: about["settings"].__setitem__(name, value)


def spoil(name, value):
    def change(arrays):
        arrays[name] = arrays[name].copy()
        arrays[name].flat[0] = value

    return change


def dense(value):
    """The weights as a whole table, of this value."""

    def change(arrays):
        arrays.pop("weight_places", None)
        arrays.pop("weight_values", None)
        arrays["weights"] = value

    return change


def sparse(places, values):
    def change(arrays):
        arrays.pop("weights", None)
        arrays["weight_places"], arrays["weight_values"] = np.array(places), np.array(values)

    return change


@pytest.mark.parametrize(
    ("change", "arrays"),
    [
        (drop("labels"), nothing),
        (drop("features"), nothing),
        (drop("settings"), nothing),
        (drop("training"), nothing),
        (drop("attributes"), nothing),
        (drop("arrays"), nothing),
        (put("arrays", "model.safetensors"), nothing),
        (put("labels", "ABC"), nothing),
        (put("labels", ["A", "B"]), nothing),
        (put("labels", ["A", "B", "B"]), nothing),
        (put("labels", ["A", "B", 3]), nothing),
        (put("labels", []), nothing),
        (put("attributes", 10**15), nothing),
        (put("attributes", -1), nothing),
        (put("attributes", float("inf")), nothing),
        (put("attributes", None), nothing),
        (put("features", {"kind": "os.system", "version": 1}), nothing),
        (put("features", []), nothing),
        (put("settings", []), nothing),
        (put("settings", None), nothing),
        (setting("command", "rm"), nothing),
        (setting("templates", "word[0]"), nothing),
        (put("training", []), nothing),
        (nothing, lambda arrays: arrays.pop("transitions")),
        (nothing, lambda arrays: arrays.pop("start")),
        (nothing, lambda arrays: arrays.__setitem__("stop", np.zeros(4, np.float32))),
        (nothing, lambda arrays: arrays.__setitem__("start", np.zeros(3, np.int32))),
        (nothing, lambda arrays: arrays.__setitem__("transitions", np.zeros(9, np.float32))),
        (nothing, lambda arrays: arrays.__setitem__("edge_weights", np.zeros((1, 3, 3)))),
        (nothing, spoil("transitions", np.nan)),
        (nothing, spoil("transitions", np.inf)),
        (nothing, spoil("start", np.nan)),
        (nothing, dense(np.full((6, 3), np.nan, np.float32))),
        (nothing, dense(np.full((6, 3), np.inf, np.float32))),
        (nothing, dense(np.zeros((6, 4), np.float32))),
        (nothing, dense(np.zeros((6, 3), np.int32))),
        (nothing, sparse([10**12], [1.0])),
        (nothing, sparse([-1], [1.0])),
        (nothing, sparse([0, 1], [1.0])),
        (nothing, sparse([0.5], [1.0])),
        (nothing, sparse([0], [np.nan])),
        (nothing, spoil("features.attributes.ends", 10**12)),
        (nothing, spoil("features.attributes.bytes", 255)),
        (nothing, lambda arrays: arrays.pop("features.attributes.ends")),
        (lambda about: about["training"].update(loss="x"), nothing),
        (lambda about: about["training"].update(loss=10**400), nothing),
        (lambda about: about["training"].update(iterations=[1]), nothing),
    ],
)
def test_edited_models_with_right_checksums_are_refused(change, arrays, saved):
    assert jaxseq.load(saved).extractor_.attribute_count == 6
    resign(saved, change, arrays)
    with pytest.raises(ValueError, match="model"):
        jaxseq.load(saved)


def test_an_edit_that_is_sound_is_loaded(saved):
    """The refusals above are not because of how the test signs."""
    resign(saved, put("labels", ["A", "B", "D"]), spoil("start", 0.25))
    loaded = jaxseq.load(saved)
    assert loaded.classes_.tolist() == ["A", "B", "D"]
    assert float(loaded.model_.start[0]) == 0.25


def test_words_of_any_kind_survive(tmp_path):
    strange = ["", " ", "\n", "\x00", "ü𝄞", "\udc80", "a=b|c", "__class__"]
    one = jaxseq.CRFTagger(cores=1, max_iterations=2)
    one.fit([[{"w": word} for word in strange]], [["A", "B"] * 4]).save(tmp_path / "model")
    names = jaxseq.load(tmp_path / "model").extractor_.attribute_names()
    assert names == [f"w:{word}" for word in strange]


def test_saving_in_the_current_folder(tmp_path, monkeypatch):
    fitted = jaxseq.CRFTagger(["word[0]"], progress=False).fit([["a"]], [["P"]])
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    fitted.save(".")
    assert jaxseq.load(place).predict([["a"]]) == [["P"]]
    assert [entry.name for entry in tmp_path.iterdir()] == ["here"]
