"""Native kernels are a convenience: whatever is wrong with compiling them, XLA does the work."""

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jaxseq.native import CannotBuild, _compiler, _loader, load_library, why_not

ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, jax.numpy as jnp, jaxseq
from jaxseq.native import why_not
batch = jaxseq.PaddedBatch(jnp.zeros((2, 3, 2)), jnp.zeros((2, 2)))
print(json.dumps([why_not(), jaxseq.batch_marginals(batch).edges.tolist()]))
"""
ANSWER = [[1.0, 1.0], [1.0, 1.0]]
OTHERS_ID = 54321
"""Of a user whom nobody knows."""

needs_compiler = pytest.mark.skipif(why_not() is not None, reason=f"no native kernels: {why_not()}")
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A script in a fresh process, which compiles its kernels itself."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "JAXSEQ_NATIVE": "compile", **environment}
    return subprocess.run(
        [sys.executable, "-P", "-c", script], env=env, capture_output=True, text=True, check=True
    )


def ask(script: str = SCRIPT, **environment: str) -> tuple[str | None, list]:
    """Why a fresh process does without native kernels, and what it answers all the same."""
    why, answer = json.loads(run(script, **environment).stdout)
    return why, answer


def libraries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*"))


def test_kernels_are_there_wherever_they_can_be():
    """All other tests of kernels are skipped where there are none: this one is not."""
    if os.environ.get(_loader.SWITCH) == _loader.OFF:
        pytest.skip("switched off on purpose")
    if not (os.environ.get("CXX") or any(map(shutil.which, _compiler.COMPILERS))):
        pytest.skip("no C++ compiler")
    assert why_not("float32") is None
    assert why_not("float64") is None
    assert load_library("hmm").functions.hmm_pool_begin


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


def test_a_switch_that_is_misspelt():
    why, answer = ask(JAXSEQ_NATIVE="avx1024")
    assert why == "JAXSEQ_NATIVE: expected 0, 1, compile, baseline, avx2, avx512, got 'avx1024'"
    assert answer == ANSWER


def test_without_a_compiler(tmp_path):
    why, answer = ask(PATH=str(tmp_path), CXX="", JAXSEQ_CACHE_DIR=str(tmp_path / "cache"))
    assert "no C++ compiler" in str(why)
    assert answer == ANSWER


def test_installed_without_kernels_nothing_is_compiled_unasked(tmp_path):
    """As by `pip install` where there was no compiler: there is no checkout around the package."""
    shutil.copytree(ROOT / "jaxseq", tmp_path / "jaxseq", ignore=shutil.ignore_patterns("*.pyc"))
    cache = tmp_path / "cache"
    env = {"PYTHONPATH": str(tmp_path), "JAXSEQ_NATIVE": "", "JAXSEQ_CACHE_DIR": str(cache)}
    why, answer = ask(**env)
    assert why == "jaxseq was installed without them; JAXSEQ_NATIVE=compile compiles them"
    assert answer == ANSWER
    assert not cache.exists()


WARNED = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import jax.numpy as jnp, jaxseq
    from jaxseq.hmm import find_kernels, word_corpus
    for rows in (2, 3):
        jaxseq.batch_marginals(jaxseq.PaddedBatch(jnp.zeros((rows, 3, 2)), jnp.zeros((2, 2))))
        assert find_kernels(word_corpus([[0, 1], [1]], 2), 2) is None
print(*(str(w.message) for w in caught if w.category is RuntimeWarning), sep="\\n")
"""


def test_who_loses_the_kernels_by_accident_is_told_so_once(tmp_path):
    said = run(WARNED, PATH=str(tmp_path), CXX="").stdout.split("\n")
    assert [line for line in said if line] == said[:1]
    assert "no kernels in C++" in said[0]
    assert "no C++ compiler (c++, g++, clang++, or the variable CXX)" in said[0]


@needs_compiler
def test_a_version_of_jax_that_refuses_the_kernels(tmp_path):
    """As one may do whose interface for calls no longer knows version 0.1."""
    refused = """
import jax

def refuse(*arguments, **options):
    raise ValueError("Unsupported API version: 0.1\\nand much more")

jax.ffi.register_ffi_target = refuse
"""
    reason = "XLA refuses them: Unsupported API version: 0.1"
    assert ask(refused + SCRIPT) == (reason, ANSWER)
    script = refused + WARNED.replace("assert find_kernels", "find_kernels").replace(" is None", "")
    said = run(script).stdout.splitlines()
    assert len(said) == 1
    assert reason in said[0]


def test_who_does_without_the_kernels_on_purpose_is_not_told():
    assert run(WARNED, JAXSEQ_NATIVE="0").stdout.strip() == ""


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 1", "does not work"),
        ('case "$*" in *-dM*) echo x;; *) echo "cannot find stdio" >&2; exit 1;; esac',
         "cannot find stdio"),
        ('case "$*" in *-dM*) echo x;; esac', "wrote no library"),
        ('case "$*" in *-dM*) echo x;; *) for o; do case $o in *.so) : > "$o";; esac; done;; esac',
         "file too short"),
        ('case "$*" in *-dM*) echo x;; *) printf "bad \\377" >&2; exit 1;; esac', "bad "),
    ],
    ids=["broken", "fails", "writes nothing", "writes an empty file", "not in UTF-8"],
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
def test_a_compiler_behind_a_launcher(tmp_path):
    """Such as ``ccache g++``: CXX is a command, which may have a space in its path."""
    folder = tmp_path / "with space"
    folder.mkdir()
    launcher, record = folder / "launcher", tmp_path / "record"
    launcher.write_text(f'#!/bin/sh\necho "$1" >> {record}\nexec "$@"\n')
    launcher.chmod(0o755)
    compiler = os.environ.get("CXX") or next(filter(shutil.which, _compiler.COMPILERS))
    cache = str(tmp_path / "cache")
    assert ask(CXX=f"'{launcher}' {compiler} -O1", JAXSEQ_CACHE_DIR=cache) == (None, ANSWER)
    assert set(record.read_text().split()) == {compiler.split()[0]}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-one -O2", "CXX: expected a command that can be found, got 'no-such-one'"),
        ("'g++", 'CXX: expected a command, got "\'g++": No closing quotation'),
    ],
)
def test_a_compiler_that_is_named_is_not_replaced_by_another(command, said):
    why, answer = ask(CXX=command)
    assert why == said
    assert answer == ANSWER


@needs_compiler
def test_more_flags_reach_the_compiler(kept, monkeypatch):
    monkeypatch.setenv(_compiler.MORE_FLAGS, "-O0 '-Djaxseq_best_variant=renamed'")
    library = _loader._load_compiled("processor", ((),))
    assert library.functions.renamed() >= 0
    for flags, said in (("-no-such-one", "-no-such-one"), ("'-g", "JAXSEQ_CXXFLAGS: expected")):
        monkeypatch.setenv(_compiler.MORE_FLAGS, flags)
        with pytest.raises(CannotBuild, match=said):
            _loader._load_compiled("processor", ((),))


@pytest.mark.parametrize("when", ["asked", "compiling"])
def test_a_compiler_that_hangs(tmp_path, when):
    """It is said what is waited for; what it started ends with it; and nobody waits twice."""
    compiler, children = tmp_path / "compiler", tmp_path / "children"
    quick = 'case "$*" in *-dM*) echo x; exit;; esac' if when == "compiling" else ""
    compiler.write_text(f"#!/bin/sh\n{quick}\nsleep 300 &\necho $! >> {children}\nwait\n")
    compiler.chmod(0o755)
    script = """
from jaxseq.native import _compiler
_compiler.SECONDS, _compiler.SECONDS_OF_SILENCE = 1.5, 0.5
"""
    begun = time.monotonic()
    environment = {"CXX": str(compiler), "JAXSEQ_CACHE_DIR": str(tmp_path / "cache")}
    done = run(script + WARNED, **environment)
    assert time.monotonic() - begun < 60
    waiting = [line for line in done.stderr.splitlines() if line.startswith("jaxseq: waiting for")]
    assert len(waiting) == 1
    assert str(compiler) in waiting[0]
    assert f"{compiler} did not end in 2 s" in done.stdout
    (child,) = children.read_text().split()
    deadline = time.monotonic() + 10
    while is_running(int(child)) and time.monotonic() < deadline:  # until somebody has buried it
        time.sleep(0.05)
    assert not is_running(int(child))


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@needs_compiler
def test_a_folder_that_cannot_be_made(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    why, answer = ask(JAXSEQ_CACHE_DIR=str(blocked / "cache"))
    assert str(blocked) in str(why)
    assert answer == ANSWER
    # The usual folder has a second one behind it.
    assert ask(XDG_CACHE_HOME=str(blocked), JAXSEQ_CACHE_DIR="") == (None, ANSWER)


@needs_compiler
def test_a_library_that_others_may_write_is_not_run(tmp_path):
    ask(JAXSEQ_CACHE_DIR=str(tmp_path))
    (library,) = libraries(tmp_path)
    library.chmod(library.stat().st_mode | stat.S_IWOTH)
    why, answer = ask(JAXSEQ_CACHE_DIR=str(tmp_path))
    assert "others may write" in str(why)
    assert answer == ANSWER


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A library in a folder of this test, and its name there."""
    if why_not() is not None:
        pytest.skip(f"no native kernels: {why_not()}")
    monkeypatch.setenv(_loader.FOLDER, str(tmp_path))
    _loader._load_compiled("processor", ((),))
    (library,) = libraries(tmp_path)
    return library


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_folder_that_others_may_write_is_not_used(kept, mode):
    kept.parent.chmod(mode)
    with pytest.raises(CannotBuild, match=f"^{kept.parent}: others may write it"):
        _loader._load_compiled("processor", ((),))


@needs_root
def test_a_folder_of_somebody_else_is_not_used(kept):
    os.chown(kept.parent, OTHERS_ID, OTHERS_ID)
    why, answer = ask(JAXSEQ_CACHE_DIR=str(kept.parent))
    assert f"{kept.parent}: others may write it" in str(why)
    assert answer == ANSWER


@needs_compiler
def test_the_usual_folder_in_the_hands_of_others_is_done_without(tmp_path):
    """The kernels are compiled for the process alone."""
    folder = tmp_path / "jaxseq"
    folder.mkdir()
    folder.chmod(0o777)
    assert ask(XDG_CACHE_HOME=str(tmp_path), JAXSEQ_CACHE_DIR="") == (None, ANSWER)
    assert libraries(folder) == []


def test_what_is_loaded_is_what_was_checked(kept, monkeypatch):
    """Others may exchange the file, or the folder, at any moment after the look at it."""
    digest = _loader._digest

    def exchange_and_digest(*arguments):
        kept.unlink()
        kept.write_bytes(b"code of somebody else")
        kept.parent.rename(f"{kept.parent}-moved")
        kept.parent.mkdir()
        return digest(*arguments)

    monkeypatch.setattr(_loader, "_digest", exchange_and_digest)
    with _loader._opened_folder() as folder:
        library = _loader._load_kept(folder, kept.name)
    assert library is not None
    assert library.jaxseq_best_variant() >= 0
    assert libraries(kept.parent) == []


def test_a_link_to_another_library_is_not_followed(kept, tmp_path):
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    kept.rename(elsewhere)
    kept.symlink_to(elsewhere)
    with pytest.raises(CannotBuild, match=kept.name):
        _loader._load_compiled("processor", ((),))


def test_another_library_under_its_name_is_not_taken_for_it(kept):
    other = kept.with_name("hmm-0.so")
    shutil.copy(kept, other)
    with _loader._opened_folder() as folder:
        assert _loader._load_kept(folder, kept.name) is not None
        assert _loader._load_kept(folder, other.name) is None


@pytest.mark.parametrize("damage", ["text", "half", "empty", "bit", "zeros"])
def test_a_damaged_library_is_compiled_anew(kept, damage):
    """It would end the process with a bus error, and every other process after it."""
    content = kept.read_bytes()
    middle = len(content) // 2
    kept.write_bytes(
        {
            "text": b"text",
            "half": content[:middle],
            "empty": b"",
            "bit": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "zeros": bytes(len(content)),
        }[damage]
    )
    library = _loader._load_compiled("processor", ((),))
    assert library.functions.jaxseq_best_variant() >= 0
    assert libraries(kept.parent) == [kept]
    assert kept.read_bytes() == content


def test_without_a_home(tmp_path):
    """As in a container, for a user whom nobody has heard of."""
    script = "import pathlib; pathlib.Path.home = lambda: (_ for _ in ()).throw(RuntimeError('x'))"
    env = {"XDG_CACHE_HOME": "", "JAXSEQ_CACHE_DIR": "", "TMPDIR": str(tmp_path)}
    why, answer = ask(script + SCRIPT, **env)
    assert answer == ANSWER
    assert why is None or why_not() is not None
    assert libraries(tmp_path) == []  # cleared away


def test_what_went_in_is_in_the_name(tmp_path, monkeypatch):
    """Another flag, compiler or source is another library."""
    if why_not() is not None:
        pytest.skip(f"no native kernels: {why_not()}")
    monkeypatch.setenv(_loader.FOLDER, str(tmp_path))
    sources = tmp_path / "sources"
    shutil.copytree(ROOT / "jaxseq" / "native", sources)
    monkeypatch.setattr(_compiler, "_HERE", sources)
    command = " ".join(_compiler.find_compiler())
    names = set()
    for change in ("nothing", "tuning", "command", "flags", "source"):
        tuning = ("-O1",) if change == "tuning" else ("-O0",)
        if change == "command":
            monkeypatch.setenv("CXX", f"{command} -g0")
        if change == "flags":
            monkeypatch.setenv(_compiler.MORE_FLAGS, "-fno-inline")
        if change == "source":
            (sources / "processor.cc").open("a").write("// more\n")
        names.add(_loader._load_compiled("processor", (tuning,)).identity)
    assert len(names) == 5
    assert len(list(tmp_path.glob("*.so"))) == 5
