"""Compiling the C++ sources of this folder: when a wheel is built, and on first use.

Nothing of jaxseq or JAX is imported, since the build of a wheel runs this file where neither is
installed.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

LIBRARIES = {
    "lattice-float": ("lattice.cc", "-DREAL=float"),
    "lattice-float-unwatched": ("lattice.cc", "-DREAL=float", "-DUNWATCHED"),
    "lattice-double": ("lattice.cc", "-DREAL=double"),
    "lattice-double-unwatched": ("lattice.cc", "-DREAL=double", "-DUNWATCHED"),
    "hmm": ("hmm.cc",),
    "processor": ("processor.cc",),
}
"""The source of each library, and what is defined for it."""
VARIANTS = {
    "baseline": (),
    "avx2": ("-mavx2", "-mfma"),
    "avx512": ("-mavx2", "-mfma", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"),
}
"""Flags for processors that are not the compiler's own, in the order of `processor.cc`. All but the
first are for x86-64; NEON belongs to the baseline of arm64."""
COMPILERS = ("c++", "g++", "clang++")
MORE_FLAGS = "JAXSEQ_CXXFLAGS"
"""Variable for flags that come last, and so win: those of sanitizers, for instance."""
FLAGS = (
    "-std=gnu++17", "-O3", "-fPIC", "-shared", "-pthread",
    "-ffp-contract=fast",  # a·b + c in one instruction
    "-fno-math-errno", "-fno-trapping-math",
    "-Wno-psabi",  # vectors are never passed to code of another compiler
)  # fmt: skip
TUNINGS = (("-march=native",), ("-mcpu=native",), ())
"""For this processor: by the names of x86, of others, and not at all; the first that works."""
SECONDS = 60.0
"""After which a compiler is given up: ten times what a slow machine needs."""
SECONDS_OF_SILENCE = 2.0
"""After which a person who waits is told what for."""

_HERE = Path(__file__).parent
_given_up: set[str] = set()


class CannotBuild(Exception):
    """Why there is no library."""


def find_compiler() -> tuple[str, ...]:
    """The command of a C++ compiler: what CXX says, with its options, or the first found."""
    if os.name != "posix":
        raise CannotBuild("for Linux and macOS alone")
    named = _split_variable("CXX", "a command")
    for name in named[:1] or COMPILERS:
        if path := shutil.which(name):
            return path, *named[1:]
    if named:
        raise CannotBuild(f"CXX: expected a command that can be found, got {named[0]!r}")
    raise CannotBuild(f"no C++ compiler ({', '.join(COMPILERS)}, or the variable CXX)")


def _split_variable(name: str, expected: str) -> tuple[str, ...]:
    """The words of a variable, as a shell would split them."""
    try:
        return tuple(shlex.split(os.environ.get(name, "")))
    except ValueError as error:
        got = f"got {os.environ[name]!r}: {error}"
        raise CannotBuild(f"{name}: expected {expected}, {got}") from None


@cache
def identify(
    compiler: tuple[str, ...], tunings: tuple[tuple[str, ...], ...]
) -> tuple[tuple[str, ...], bytes]:
    """The first tuning that a compiler knows, and all that it then has defined."""
    for tuning in tunings:
        asked = (*compiler, *tuning, "-dM", "-E", "-x", "c++", os.devnull)
        code, output, _ = _run(asked, "say what it knows of this processor")
        if code == 0:
            return tuning, output
    raise CannotBuild(f"{shlex.join(compiler)} does not work")


def checksum(library: str, *more: bytes) -> str:
    """Of a library's sources, its flags, and what else is given."""
    content = hashlib.sha256()
    for source in (*sorted(_HERE.glob("*.h")), _HERE / LIBRARIES[library][0]):
        content.update(source.read_bytes())
    flags = (LIBRARIES[library], FLAGS, _split_variable(MORE_FLAGS, "flags"), sys.platform)
    for part in (repr(flags).encode(), *more):
        content.update(part)
    return content.hexdigest()[:24]


def compile_library(compiler: tuple[str, ...], library: str, flags: tuple[str, ...]) -> bytes:
    """The shared library.

    Raises:
        CannotBuild: with what the compiler says, in a line.
    """
    source, *defined = LIBRARIES[library]
    # In a folder that nobody else can write to, whatever the folder is in which it will be kept.
    with tempfile.TemporaryDirectory(prefix="jaxseq-") as folder:
        output = Path(folder, f"{library}.so")
        options = (*FLAGS, *flags, *defined, *_split_variable(MORE_FLAGS, "flags"))
        options = (*options, "-o", str(output), str(_HERE / source), "-lm")
        code, _, said = _run((*compiler, *options), f"compile {library}")
        if code:
            lines = [line for line in said.splitlines() if line.strip()] or ["no message"]
            line = next((line for line in lines if "error" in line), lines[0])
            raise CannotBuild(f"{shlex.join(compiler)}: {line}")
        if not output.exists():
            raise CannotBuild(f"{shlex.join(compiler)}: wrote no library")
        return output.read_bytes()


def _run(command: tuple[str, ...], task: str) -> tuple[int, bytes, str]:
    """Exit status, output and messages of a compiler, which is not waited for without a word."""
    compiler = command[0]
    too_long = f"{compiler} did not end in {SECONDS:.0f} s"
    if compiler in _given_up:  # nobody waits twice for what hangs
        raise CannotBuild(too_long)
    # In a session of its own: a compiler is several processes, and they are ended together. Since
    # Ctrl-C does not reach them there, they are ended for that, too.
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        try:
            try:
                output, said = process.communicate(timeout=SECONDS_OF_SILENCE)
            except subprocess.TimeoutExpired:
                waiting = f"jaxseq: waiting for {compiler} to {task} ({SECONDS:.0f} s at most)"
                print(waiting, file=sys.stderr, flush=True)
                output, said = process.communicate(timeout=SECONDS - SECONDS_OF_SILENCE)
        except subprocess.TimeoutExpired:
            _given_up.add(compiler)
            raise CannotBuild(too_long) from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, output, said.decode(errors="replace")


def compile_bundle(folder: Path, flags: tuple[str, ...] = ()) -> None:
    """All libraries, in all variants of the machine that they are for, as `_loader` looks for them.

    Raises:
        CannotBuild: with what the compiler says, in a line.
    """
    compiler = find_compiler()
    is_x86 = sysconfig.get_platform().endswith(("x86_64", "amd64"))
    jobs = {folder / "processor.so": ("processor", ())}
    for variant, options in VARIANTS.items() if is_x86 else [("baseline", ())]:
        for library in LIBRARIES.keys() - {"processor"}:
            jobs[folder / variant / f"{library}.so"] = library, options

    def compile_job(file: Path) -> None:
        library, options = jobs[file]
        content = compile_library(compiler, library, (*options, *flags))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_job, jobs))
