"""Compiling the C++ sources of this folder, once per machine, and loading them.

XLA runs a recursion over positions as a row of small operations, each with a cost of its own; on a
CPU that is half of the time of a lattice. The same recursion in C++ has none of it. Nothing depends
on it: without a compiler, or with ``JAXSEQ_NATIVE=0``, XLA does everything, and a library that
cannot be built, loaded or trusted is as good as none.

A library's name has a checksum of all that went into it: the source, the compiler and what it knows
of the processor, and the interface of XLA.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import jax

SWITCH = "JAXSEQ_NATIVE"
"""Variable that is set to 0 to do without."""
FOLDER = "JAXSEQ_CACHE_DIR"
"""Variable for the folder of compiled libraries."""
COMPILERS = ("c++", "g++", "clang++")
FLAGS = (
    "-std=gnu++17", "-O3", "-fPIC", "-shared", "-pthread",
    "-ffp-contract=fast",  # a·b + c in one instruction
    "-fno-math-errno", "-fno-trapping-math",
)  # fmt: skip
TUNED = (("-march=native",), ("-mcpu=native",), ())
"""For this processor: by the names of x86, of others, and not at all; the first that works."""
SECONDS = 120.0  # after which a compiler is given up

_HERE = Path(__file__).parent
_LOCK = threading.Lock()


class CannotBuild(Exception):
    """Why there is no library."""


def load_library(name: str, *defined: str) -> ctypes.CDLL:
    """The library of ``name.cc`` in this folder, compiled if it is not yet.

    Args:
        name: of the source, without its ending.
        defined: macros to define, such as ``"REAL=float"``.

    Raises:
        CannotBuild: with the reason, in a line.

    Cost: a second or two the first time on a machine, then some ten milliseconds, once per process.
    """
    if os.environ.get(SWITCH) == "0":
        raise CannotBuild(f"{SWITCH}=0")
    with _LOCK:  # two threads would compile the same library
        library = _load(name, defined)
    if isinstance(library, str):
        raise CannotBuild(library)
    return library


@cache
def _load(name: str, defined: tuple[str, ...]) -> ctypes.CDLL | str:
    # The reason for a failure is a result like any other, so that it is kept: nobody waits for a
    # compiler that does not work more than once per process.
    try:
        return _build(name, (*FLAGS, *(f"-D{each}" for each in defined)))
    except CannotBuild as error:
        return str(error)
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        return f"{name}.cc: {error}"


def _build(name: str, flags: tuple[str, ...]) -> ctypes.CDLL:
    compiler = _find_compiler()
    tuning, known = _identify(compiler)
    include = jax.ffi.include_dir()
    # Sources are compiled for the processor they run on. The name says all that went in, so that a
    # folder shared by several machines keeps one library for each kind, and an outdated one is
    # never taken for the new.
    content = hashlib.sha256()
    for part in (*sorted(_HERE.glob("*.h")), _HERE / f"{name}.cc", _interface(include)):
        content.update(part.read_bytes())
    content.update(repr((compiler, flags, tuning, sys.platform)).encode() + known)
    file = f"{name}-{content.hexdigest()[:24]}.so"
    reasons = []
    for folder in _folders():
        library = folder / file
        try:
            if not library.exists():
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                _compile(compiler, (*flags, *tuning, f"-I{include}"), name, library)
            # After compiling too: the folder may be one that others can write to.
            if _is_ours(library):
                return _open(library)
            reasons.append(f"{library}: others may write it, or have written it")
        except OSError as error:  # not writable, or mounted with noexec
            reasons.append(f"{folder}: {error.strerror or error}")
    raise CannotBuild("; ".join(reasons))


def _open(library: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(library))
    except OSError:  # a file that cannot be loaded now never can: make room for a new one
        library.unlink(missing_ok=True)
        raise


def _interface(include: str) -> Path:
    return Path(include, "xla", "ffi", "api", "c_api.h")


def _folders() -> Iterator[Path]:
    """Where libraries are kept, and a place for those of this process alone if they cannot be."""
    if os.environ.get(FOLDER):
        yield Path(os.environ[FOLDER]).expanduser().absolute()
        return
    with contextlib.suppress(RuntimeError):  # of a user without a home
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        yield Path(base).absolute() / "jaxseq"
    yield _own_folder()  # compiled again in every process, but compiled


@cache
def _own_folder() -> Path:
    import atexit

    folder = Path(tempfile.mkdtemp(prefix="jaxseq-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _is_ours(library: Path) -> bool:
    """Whether nobody else can have written a file, whose code is about to run."""
    if not hasattr(os, "getuid"):
        return True
    status = library.stat()  # 0o022: writable by the group, or by everybody
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _find_compiler() -> str:
    for name in (os.environ.get("CXX"), *COMPILERS):
        if name and (path := shutil.which(name)):
            return path
    raise CannotBuild(f"no C++ compiler ({', '.join(COMPILERS)}, or the variable CXX)")


@cache
def _identify(compiler: str) -> tuple[tuple[str, ...], bytes]:
    """Flags that tune for this processor, and all that the compiler then has defined."""
    for tuning in TUNED:
        asked = [compiler, *tuning, "-dM", "-E", "-x", "c++", os.devnull]
        done = subprocess.run(asked, capture_output=True, timeout=SECONDS)
        if done.returncode == 0:
            return tuning, done.stdout
    raise CannotBuild(f"{compiler} does not work")


def _compile(compiler: str, flags: tuple[str, ...], name: str, library: Path) -> None:
    # Compiled under another name and renamed: another process sees a whole library or none.
    number, temporary = tempfile.mkstemp(prefix=f".{name}-", suffix=".so", dir=library.parent)
    os.close(number)
    try:
        command = [compiler, *flags, "-o", temporary, str(_HERE / f"{name}.cc"), "-lm"]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=SECONDS
        )
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
            said = next((line for line in lines if "error" in line), lines[0])
            raise CannotBuild(f"{compiler}: {said}")
        os.chmod(temporary, 0o700)  # before it has its name, under which it may be loaded at once
        with open(temporary, "rb+") as file:  # half a library would bring a process down
            os.fsync(file.fileno())
        os.replace(temporary, library)
    except subprocess.TimeoutExpired:
        raise CannotBuild(f"{compiler} did not end in {SECONDS:.0f} s") from None
    finally:
        Path(temporary).unlink(missing_ok=True)
