"""Notes of a long job: whole or not there, and of this job alone."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxseq
from jaxseq._io import Fingerprint, SearchStore
from jaxseq.taggers import fresh, settings_of, text_of
from jaxseq.text import Sentence, Templates

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


class Notes(SearchStore):
    """A store of values without arrays."""

    def __init__(self, path, job):
        super().__init__(path, lambda: Fingerprint(*job))

    def load(self):
        saved = super().load()
        return None if saved is None else saved.notes


@given(value=JSON)
def test_what_is_saved_is_loaded(value, tmp_path_factory):
    file = tmp_path_factory.mktemp("notes") / "deeper" / "notes"
    Notes(file, ["job"]).save(value)
    assert Notes(str(file), ["job"]).load() == value
    assert [entry.name for entry in file.parent.iterdir()] == ["notes"]  # nothing temporary


def test_the_last_save_counts_and_a_job_that_is_done_leaves_nothing(tmp_path):
    notes = Notes(tmp_path / "notes", ["job"])
    assert notes.load() is None
    for value in (1, [2]):
        notes.save(value)
    assert notes.load() == [2]
    notes.remove()
    notes.remove()
    assert notes.load() is None
    assert not list(tmp_path.iterdir())


def test_without_a_path_nothing_is_kept():
    notes = Notes(None, iter([object()]))
    notes.save({"a": 1})
    assert notes.load() is None
    notes.remove()


def test_a_save_that_fails_leaves_the_old_notes(tmp_path):
    notes = Notes(tmp_path / "notes", ["job"])
    notes.save("old")
    with pytest.raises(TypeError):
        notes.save(object())
    assert notes.load() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes"]


def test_notes_of_another_job_are_refused(tmp_path):
    file = tmp_path / "notes"
    Notes(file, ["job", [["a"]]]).save(1)
    for other in (["job"], ["job", [["b"]]], ["job", ["a"]], ["job", [["a"]], None]):
        with pytest.raises(ValueError, match="notes: expected a checkpoint of this very search"):
            Notes(file, other).load()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"mine",
        b"\xff\x00",
        b"5",
        b"[]",
        b"{}",
        b'{"format": "jaxseq notes 0", "about": "", "value": 1}',
        b'{"format": "jaxseq notes 1", "about": ""}',
        b"[" * 100_000,
    ],
)
def test_a_file_that_is_something_else_is_refused_and_kept(content, tmp_path):
    file = tmp_path / "notes"
    file.write_bytes(content)
    with pytest.raises(ValueError, match="notes: expected a checkpoint of jaxseq, got"):
        Notes(file, ["job"]).load()
    assert file.read_bytes() == content


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected a file to keep the search in, got a folder"):
        Notes(tmp_path, ["job"])


def test_cut_off_notes_are_refused(tmp_path):
    file = tmp_path / "notes"
    Notes(file, ["job"]).save({"long": list(range(50))})
    whole = file.read_bytes()
    for size in (1, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="notes: expected"):
            Notes(file, ["job"]).load()


@given(words=st.sets(st.text(), max_size=6))
def test_sets_have_one_text_whatever_their_order(words):
    listed = sorted(words)
    assert text_of(set(listed)) == text_of(set(listed[::-1])) == text_of(frozenset(words))


@given(left=JSON, right=JSON)
def test_different_data_have_different_texts(left, right):
    same = json.dumps(left) == json.dumps(right)
    assert (text_of(left) == text_of(right)) == same


def test_texts_say_all_of_a_sentence():
    one = [Sentence({"word": ["a", "b"], "pos": ["D", "N"]})]
    other = [Sentence({"word": ["a", "b"], "pos": ["D", "V"]})]
    assert text_of(one) == text_of([Sentence({"word": ["a", "b"], "pos": ["D", "N"]})])
    assert text_of(one) != text_of(other)
    assert text_of([Templates(["word[0]"])]) == text_of([Templates(["word[0]"])])
    assert text_of([Templates(["word[0]"])]) != text_of([Templates(["word[1]"])])


def test_a_fresh_copy_shows_and_keeps_nothing(tmp_path):
    estimator = jaxseq.CRFTagger(l2=0.5, progress=True, checkpoint=tmp_path / "search")
    copy = fresh(estimator)
    assert (copy.l2, copy.progress, copy.checkpoint) == (0.5, False, None)
    assert estimator.progress is True


def test_settings_are_what_bears_on_the_result(tmp_path):
    one = jaxseq.CRFTagger(["word[0]"], l2=0.5)
    shown = jaxseq.CRFTagger(["word[0]"], l2=0.5, progress=True, checkpoint=tmp_path / "search")
    assert settings_of(one) == settings_of(shown)
    assert settings_of(one) != settings_of(jaxseq.CRFTagger(["word[0]"], l2=0.25))
    assert settings_of(one) != settings_of(jaxseq.SelfTraining(one))
    assert np.isclose(settings_of(one)["l2"], 0.5)
