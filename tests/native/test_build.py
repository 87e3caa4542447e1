"""Native kernels are a convenience: whatever is wrong with compiling them, XLA does the work."""

import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jaxseq.native import _loader as _build
from jaxseq.native import why_not

ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, jax.numpy as jnp, jaxseq
from jaxseq.native import why_not
batch = jaxseq.PaddedBatch(jnp.zeros((2, 3, 2)), jnp.zeros((2, 2)))
print(json.dumps([why_not(), jaxseq.batch_marginals(batch).edges.tolist()]))
"""
ANSWER = [[1.0, 1.0], [1.0, 1.0]]

needs_compiler = pytest.mark.skipif(why_not() is not None, reason=f"no native kernels: {why_not()}")


def ask(script: str = SCRIPT, **environment: str) -> tuple[str | None, list]:
    """Why a fresh process does without native kernels, and what it answers all the same."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True
    )
    why, answer = json.loads(done.stdout)
    return why, answer


def libraries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*"))


@needs_compiler
def test_compiled_once_and_kept(tmp_path):
    folder = tmp_path / "new" / "cache"
    assert ask(JAXSEQ_CACHE_DIR=str(folder)) == (None, ANSWER)
    (library,) = libraries(folder)
    assert library.name.startswith("lattice-")
    before = library.stat().st_mtime_ns
    assert ask(JAXSEQ_CACHE_DIR=str(folder)) == (None, ANSWER)
    assert [file.stat().st_mtime_ns for file in libraries(folder)] == [before]


@needs_compiler
def test_two_processes_at_once(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: ask(JAXSEQ_CACHE_DIR=str(tmp_path)), range(2)))
    assert found == [(None, ANSWER)] * 2
    assert len(libraries(tmp_path)) == 1  # and no temporary file


def test_switched_off():
    assert ask(JAXSEQ_NATIVE="0") == ("JAXSEQ_NATIVE=0", ANSWER)


def test_without_a_compiler(tmp_path):
    why, answer = ask(PATH=str(tmp_path), CXX="", JAXSEQ_CACHE_DIR=str(tmp_path / "cache"))
    assert "no C++ compiler" in str(why)
    assert answer == ANSWER


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 1", "does not work"),
        ('case "$*" in *-dM*) echo x;; *) echo "cannot find stdio" >&2; exit 1;; esac',
         "cannot find stdio"),
        ('case "$*" in *-dM*) echo x;; esac', "file too short"),
        ('case "$*" in *-dM*) echo x;; *) printf "bad \\377" >&2; exit 1;; esac', "bad "),
    ],
    ids=["broken", "fails", "writes nothing", "not in UTF-8"],
)  # fmt: skip
def test_with_a_compiler_that_does_not_work(tmp_path, script, said):
    compiler, cache = tmp_path / "compiler", tmp_path / "cache"
    compiler.write_text(f"#!/bin/sh\n{script}\n")
    compiler.chmod(0o755)
    why, answer = ask(CXX=str(compiler), JAXSEQ_CACHE_DIR=str(cache))
    assert why is not None
    assert said in why
    assert answer == ANSWER
    assert libraries(cache) == []


@needs_compiler
def test_a_folder_that_cannot_be_made(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    why, answer = ask(JAXSEQ_CACHE_DIR=str(blocked / "cache"))
    assert str(blocked) in str(why)
    assert answer == ANSWER
    # The usual folder has a second one behind it.
    assert ask(XDG_CACHE_HOME=str(blocked)) == (None, ANSWER)


@needs_compiler
def test_a_library_that_others_may_write_is_not_run(tmp_path):
    ask(JAXSEQ_CACHE_DIR=str(tmp_path))
    (library,) = libraries(tmp_path)
    library.chmod(library.stat().st_mode | stat.S_IWOTH)
    why, answer = ask(JAXSEQ_CACHE_DIR=str(tmp_path))
    assert "others may write" in str(why)
    assert answer == ANSWER


@needs_compiler
def test_a_file_that_is_no_library_is_not_used(tmp_path):
    ask(JAXSEQ_CACHE_DIR=str(tmp_path))
    (library,) = libraries(tmp_path)
    library.write_text("text")
    why, answer = ask(JAXSEQ_CACHE_DIR=str(tmp_path))
    assert why is not None
    assert answer == ANSWER
    assert ask(JAXSEQ_CACHE_DIR=str(tmp_path)) == (None, ANSWER)  # it is not kept


def test_without_a_home(tmp_path):
    """As in a container, for a user whom nobody has heard of."""
    script = "import pathlib; pathlib.Path.home = lambda: (_ for _ in ()).throw(RuntimeError('x'))"
    env = {"XDG_CACHE_HOME": "", "TMPDIR": str(tmp_path)}
    why, answer = ask(script + SCRIPT, **env)
    assert answer == ANSWER
    assert why is None or why_not() is not None
    assert libraries(tmp_path) == []  # cleared away


def test_what_went_in_is_in_the_name(tmp_path, monkeypatch):
    """Another compiler, flag or source is another library."""
    if why_not() is not None:
        pytest.skip(f"no native kernels: {why_not()}")
    monkeypatch.setenv(_build.FOLDER, str(tmp_path))
    _build._build("lattice", (*_build.FLAGS, "-O0"))
    _build._build("lattice", (*_build.FLAGS, "-O0", "-DREAL=double"))
    assert len(libraries(tmp_path)) == 2
