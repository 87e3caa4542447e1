"""Checkpoints come back as they were, and what is none of ours is refused."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from jaxseq import _io
from jaxseq._io import (
    FORMAT,
    Fingerprint,
    SearchStore,
    load_checkpoint,
    locked,
    plain_text,
    recover_folder,
    replacing_folder,
    save_checkpoint,
)
from tests.limits import no_room


class Pair(NamedTuple):
    left: object
    right: object


TREE = {
    "a": Pair(jnp.arange(6, dtype=jnp.float32).reshape(2, 3), jnp.zeros((0, 4))),
    "b": [jnp.asarray(7, jnp.int32), jnp.array([True, False]), None],
}
EXTRA = {"iteration": 3, "values": [1.5, 2.0]}


@pytest.fixture
def path(tmp_path):
    """A saved checkpoint, alone in its folder."""
    path = tmp_path / "checkpoint"
    save_checkpoint(path, TREE, "this search", EXTRA)
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint"]
    return path


def blank(tree=TREE):
    return jax.tree.map(jnp.zeros_like, tree)


def test_round_trip(path):
    tree, extra = load_checkpoint(path, blank(), "this search")
    assert extra == EXTRA
    assert jax.tree.structure(tree) == jax.tree.structure(TREE)
    for got, want in zip(jax.tree.leaves(tree), jax.tree.leaves(TREE)):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def test_folders_are_made_and_files_replaced(tmp_path):
    path = tmp_path / "new" / "folder" / "checkpoint"
    for number in (1.0, 2.0):
        save_checkpoint(str(path), [jnp.array(number)], "x")
    tree, extra = load_checkpoint(str(path), [jnp.array(0.0)], "x")
    assert (float(tree[0]), extra) == (2.0, None)
    assert [file.name for file in path.parent.iterdir()] == ["checkpoint"]


def test_a_full_disk_is_an_error_that_names_the_file(path):
    """And what was there stays."""
    before = path.read_bytes()
    with no_room(), pytest.raises(OSError, match="File too large") as told:
        save_checkpoint(path, [jnp.zeros(5000)], "this search")
    assert told.value.filename == str(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["checkpoint"]


def test_a_file_is_on_the_disk_before_its_name_is(path, monkeypatch):
    done = []

    def note(name, real):
        def noted(*arguments):
            done.append((name, os.fstat(arguments[0]).st_mode if name == "fsync" else None))
            return real(*arguments)

        monkeypatch.setattr(os, name, noted)

    note("fsync", os.fsync)
    note("replace", os.replace)
    save_checkpoint(path, TREE, "this search", EXTRA)
    assert [name for name, _ in done] == ["fsync", "replace", "fsync"]
    assert stat.S_ISREG(done[0][1])
    assert stat.S_ISDIR(done[2][1])


def test_one_file_has_every_array_under_its_number(path):
    """What older files have, so that they can still be read."""
    found = load_file(path)
    assert sorted(found) == ["000", "001", "002", "003"]
    np.testing.assert_array_equal(found["000"], TREE["a"].left)
    with safe_open(path, framework="numpy") as file:
        assert file.metadata() == {
            "format": FORMAT,
            "about": "this search",
            "extra": json.dumps(EXTRA),
            "checksum": file.metadata()["checksum"],
        }


def test_a_damaged_file_is_refused_whichever_byte_it_is(path):
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match="checkpoint: expected"):
            load_checkpoint(path, blank(), "this search")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_truncated_files_are_refused(path, share):
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match="checkpoint: expected a checkpoint of jaxseq"):
        load_checkpoint(path, blank(), "this search")


@pytest.mark.parametrize("content", [b"B-NP\tI-NP\n" * 50, b"\x80\x04K\x01.", bytes(64)])
def test_foreign_files_are_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match="checkpoint: expected a checkpoint of jaxseq"):
        load_checkpoint(path, blank(), "this search")


@pytest.mark.parametrize("metadata", [None, {"format": "jaxseq checkpoint 0"}])
def test_arrays_of_others_are_refused(path, metadata):
    save_file(load_file(path), path, metadata)
    with pytest.raises(ValueError, match=f"expected '{FORMAT}', got"):
        load_checkpoint(path, blank(), "this search")


def test_broken_extra_is_refused(path):
    metadata = {"format": FORMAT, "about": "this search", "extra": json.dumps(EXTRA)[:-3]}
    save_file(load_file(path), path, metadata)
    with pytest.raises(ValueError, match="expected a checkpoint of jaxseq"):
        load_checkpoint(path, blank(), "this search")


def test_checkpoints_of_another_search_are_refused(path):
    with pytest.raises(ValueError, match="expected a checkpoint of this very search"):
        load_checkpoint(path, blank(), "that search")


@pytest.mark.parametrize(
    ("like", "message"),
    [
        ({**TREE, "a": Pair(jnp.zeros((3, 2), jnp.float32), TREE["a"].right)}, r"got float32 of"),
        ({**TREE, "a": Pair(jnp.zeros((2, 3)), TREE["a"].right)}, "expected float64 of"),
        ({**TREE, "c": jnp.zeros(1)}, "expected 5 arrays, got 4"),
        ({"a": TREE["a"]}, "expected 2 arrays, got 4"),
    ],
)
def test_trees_of_another_kind_are_refused(path, like, message):
    with pytest.raises(ValueError, match=message):
        load_checkpoint(path, like, "this search")


def test_a_file_that_is_not_there_is_an_error_of_its_own(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_checkpoint(tmp_path / "nothing", blank(), "this search")


def test_a_failing_save_leaves_the_old_file_and_no_other(path, monkeypatch):
    before = path.read_bytes()

    def full(file):
        file.write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(_io, "sync_file", full)
    with pytest.raises(OSError, match="no space"):
        save_checkpoint(path, TREE, "this search", EXTRA)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["checkpoint"]


# ------------------------------------------------------------------------------------ the store


def test_a_store_keeps_the_last_state(tmp_path):
    store = SearchStore(tmp_path / "new" / "search", Fingerprint("job"))
    assert store.load() is None
    for number in range(2):
        store.save({"number": number}, {"a": np.arange(3), "b": np.array(2.0)})
    saved = SearchStore(str(tmp_path / "new" / "search"), lambda: Fingerprint("job")).load()
    assert saved.notes == {"number": 1}
    assert saved.arrays["a"].tolist() == [0, 1, 2]
    assert saved.arrays["b"].shape == ()
    store.remove()
    assert not list((tmp_path / "new").iterdir())
    store.remove()  # nothing to do


def test_notes_without_arrays_are_kept_whatever_they_are(tmp_path):
    store = SearchStore(tmp_path / "search", "job")
    for notes in (None, [], {}, "text", [1.5, None, {"é": True}]):
        store.save(notes)
        assert store.load() == (notes, {})


def test_a_store_without_a_path_does_not_ask_which_job_it_is():
    def costly():
        raise AssertionError

    store = SearchStore(None, costly)
    store.save({"number": 1})
    assert store.load() is None
    store.remove()


def test_the_state_of_another_job_is_refused_and_kept(tmp_path):
    SearchStore(tmp_path / "search", "one").save(1)
    before = (tmp_path / "search").read_bytes()
    with pytest.raises(ValueError, match="search: expected a checkpoint of this very search"):
        SearchStore(tmp_path / "search", "other").load()
    assert (tmp_path / "search").read_bytes() == before


def test_folders_and_other_things_are_no_place_for_a_store(tmp_path):
    with pytest.raises(ValueError, match="expected a file to keep the search in, got a folder"):
        SearchStore(tmp_path, "job")
    with pytest.raises(ValueError, match="checkpoint: expected a path or None, got 3"):
        SearchStore(3, "job")


def test_the_file_of_another_job_is_not_removed(tmp_path):
    one, other = (SearchStore(tmp_path / "search", job) for job in ("one", "other"))
    one.save(1)
    other.remove()
    assert one.load().notes == 1
    (tmp_path / "search").write_text("precious")
    one.remove()
    assert (tmp_path / "search").read_text() == "precious"


# --------------------------------------------------------------------------- locks and folders


def test_one_path_is_for_one_at_a_time(tmp_path):
    path = tmp_path / "new" / "search"
    with SearchStore(path, "one").alone():
        with pytest.raises(ValueError, match="search: expected to be alone with it, found another"):
            SearchStore(path, "one").alone().__enter__()
        with locked(tmp_path / "new" / "another"):
            pass
    assert list(tmp_path.iterdir()) == []
    with locked(path):
        pass


def test_a_process_that_was_killed_keeps_nobody_out(tmp_path):
    held = (
        "import os, sys; from jaxseq._io import locked; lock = locked(sys.argv[1]); "
        "lock.__enter__(); print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", held, tmp_path / "model"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        with (
            pytest.raises(ValueError, match="model: expected to be alone"),
            locked(tmp_path / "model"),
        ):
            pass
        process.kill()
    assert [path.name for path in tmp_path.iterdir()] == [".model.lock"]
    with locked(tmp_path / "model"):
        pass
    assert list(tmp_path.iterdir()) == []


def fill(path, text):
    with replacing_folder(path, old_may_be=True) as new:
        (new / "file").write_text(text)


@pytest.mark.parametrize("system", ["exchanges", "does not"])
def test_a_folder_is_replaced(system, tmp_path, monkeypatch):
    if system == "does not":
        monkeypatch.setattr(_io, "exchange", lambda one, other: False)
    for text in ("old", "new"):
        fill(tmp_path / "model", text)
        assert (tmp_path / "model" / "file").read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    if system == "exchanges":
        with pytest.raises(OSError, match="not empty"), replacing_folder(tmp_path / "model"):
            pass
        assert (tmp_path / "model" / "file").read_text() == "new"


class Killed(BaseException):
    """Nothing is done after it, not even what has to be done in any case."""


@pytest.mark.parametrize("step", range(4))
def test_saves_that_were_killed_are_finished_and_swept(step, tmp_path, monkeypatch):
    """At every step of a system that cannot exchange folders."""
    fill(tmp_path / "model", "old")
    calls = []

    def killed(real, *arguments, **keywords):
        if len(calls) == step:
            raise Killed
        calls.append(real)
        return real(*arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(_io, "exchange", lambda one, other: False)
        for module, name in ((_io, "sync_file"), (_io, "sync_folder"), (os, "replace")):
            patch.setattr(module, name, partial(killed, getattr(module, name)))
        patch.setattr(shutil, "rmtree", lambda *arguments, **keywords: None)
        # What puts the old one back after an error does not happen to who is killed either.
        with pytest.raises(Killed):
            fill(tmp_path / "model", "new")
    recover_folder(tmp_path / "model")
    assert (tmp_path / "model" / "file").read_text() in ("old", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_folder_of_a_save_at_work_is_not_swept(tmp_path):
    (tmp_path / ".model.mine").mkdir()
    (tmp_path / ".model.12345678").mkdir()
    (tmp_path / ".model.12345678" / "precious").touch()
    with replacing_folder(tmp_path / "model") as new:
        recover_folder(tmp_path / "model")
        (new / "file").touch()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"model", ".model.mine", ".model.12345678"}


PARTS = [
    ("a",), ("b",), ("a", "b"), ("ab",), (["a"],), ({"a"},), ({"a": 1},), ({"a": "1"},), (1,),
    (1.0,), (None,), (np.zeros(2),), (np.zeros((2, 1)),), (np.zeros(2, np.float32),), (np.ones(2),),
    (np.zeros(1), np.zeros(1)), ((),),
]  # fmt: skip


def test_different_jobs_have_different_fingerprints():
    assert len({str(Fingerprint(*parts)) for parts in PARTS}) == len(PARTS)
    for parts in PARTS:
        one = Fingerprint()
        for part in parts:
            one.add(part)
        assert str(one) == str(Fingerprint(*parts))


def test_the_order_of_sentences_does_not_matter_where_it_is_said():
    tokens, lengths = np.arange(6), np.array([1, 0, 3, 2])
    order = np.array([2, 3, 0, 1])
    again = np.concatenate([np.split(tokens, np.cumsum(lengths)[:-1])[q] for q in order])
    one = Fingerprint().add_unordered(lengths, tokens, None)
    assert str(one) == str(Fingerprint().add_unordered(lengths[order], again, None))
    assert str(one) != str(Fingerprint().add_unordered(lengths[order], tokens, None))
    assert str(one) != str(Fingerprint().add_unordered(lengths, tokens, None, weights=lengths))


def test_sets_have_one_text_whatever_their_order():
    words = [f"w{number}" for number in range(50)]
    assert plain_text(set(words)) == plain_text(frozenset(words[::-1]))
