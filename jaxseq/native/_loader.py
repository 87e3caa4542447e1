"""Loading the compiled kernels: those of the wheel, or such as are compiled on first use.

XLA runs a recursion over positions as a row of small operations, each with a cost of its own; on a
CPU that is half of the time of a lattice. The same recursion in C++ has none of it. Nothing depends
on it: with ``JAXSEQ_NATIVE=0`` XLA does everything, and a library that cannot be had, loaded or
trusted is as good as none. Who loses the kernels without having asked for it is told so once.

A wheel brings libraries for every kind of processor in ``bundled``. A checkout compiles for the
processor at hand what it needs, and keeps it for the user.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import secrets
import stat
import tempfile
import threading
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from jaxseq.native._compiler import (
    TUNINGS,
    VARIANTS,
    CannotBuild,
    checksum,
    compile_library,
    find_compiler,
    identify,
)

SWITCH = "JAXSEQ_NATIVE"
"""Variable: 0 does without kernels, ``compile`` compiles them where they are used, and a key of
`VARIANTS` takes that variant."""
FOLDER = "JAXSEQ_CACHE_DIR"
"""Variable for the folder of compiled libraries."""
OFF, COMPILE = "0", "compile"
DIGEST_BYTES = 32

_HERE = Path(__file__).parent
BUNDLE = _HERE / "bundled"
_LOCK = threading.Lock()
_stay_open: list[int] = []
_warned: set[str] = set()


class Library(NamedTuple):
    """A loaded library.

    Attributes:
        functions: by name.
        identity: its name and a checksum of all that went into it, which is the same in every
            process.
    """

    functions: ctypes.CDLL
    identity: str


def load_library(name: str) -> Library:
    """A key of `jaxseq.native._compiler.LIBRARIES`.

    Raises:
        CannotBuild: with the reason, in a line.

    Cost: some ten milliseconds, once per process; a few seconds where it is compiled first.
    """
    switch = os.environ.get(SWITCH, "")
    if switch == OFF:
        raise CannotBuild(f"{SWITCH}={OFF}")
    with _LOCK:  # two threads would compile the same library
        library = _try_to_load(name, switch)
    if isinstance(library, str):
        raise CannotBuild(library)
    return library


def warn_of_loss(reason: CannotBuild) -> None:
    """Say once per process why XLA does what the kernels were meant to do."""
    if os.environ.get(SWITCH) == OFF or str(reason) in _warned:
        return
    _warned.add(str(reason))
    warnings.warn(
        f"no kernels in C++, so XLA computes the same, up to three times slower: {reason} "
        f"({SWITCH}={OFF} says that this is meant)",
        RuntimeWarning,
        stacklevel=2,
    )


@cache
def _try_to_load(name: str, switch: str) -> Library | str:
    # The reason for a failure is a result like any other, so that it is kept: nobody waits for a
    # compiler that does not work more than once per process.
    try:
        return _load(name, switch)
    except CannotBuild as error:
        return str(error)
    except (OSError, RuntimeError, ValueError) as error:
        return f"{name}: {error}"


def _load(name: str, switch: str) -> Library:
    if switch not in ("", "1", COMPILE, *VARIANTS):
        values = ", ".join((OFF, "1", COMPILE, *VARIANTS))
        raise CannotBuild(f"{SWITCH}: expected {values}, got {switch!r}")
    if BUNDLE.is_dir() and switch != COMPILE:
        return _load_bundled(name, _choose(switch, _read_bundled("processor")))
    # Beside the sources of a checkout stands the description of the build; in no installation.
    if switch != COMPILE and not (_HERE.parents[1] / "build_kernels.py").is_file():
        raise CannotBuild(f"jaxseq was installed without them; {SWITCH}={COMPILE} compiles them")
    if switch not in VARIANTS:
        return _load_compiled(name, TUNINGS)
    variant = _choose(switch, _load_compiled("processor", ((),)))[-1]
    return _load_compiled(name, (VARIANTS[variant],))


def _choose(switch: str, processor: Library) -> list[str]:
    """Variants that are to be used if they are there, the best last."""
    runnable = list(VARIANTS)[: processor.functions.jaxseq_best_variant() + 1]
    if switch not in VARIANTS:
        return runnable
    if switch not in runnable:
        raise CannotBuild(f"{SWITCH}: expected what this processor can run, got {switch!r}")
    return [switch]


def _load_bundled(name: str, variants: list[str]) -> Library:
    for variant in reversed(variants):
        if (BUNDLE / variant).is_dir():
            return _read_bundled(f"{variant}/{name}")
    raise CannotBuild(f"{BUNDLE}: expected one of {', '.join(variants)}, got none of them")


def _read_bundled(name: str) -> Library:
    file = BUNDLE / f"{name}.so"
    content = hashlib.sha256(file.read_bytes()).hexdigest()[:24]
    return Library(ctypes.CDLL(str(file)), f"{file.stem}-{content}")


def _load_compiled(name: str, tunings: tuple[tuple[str, ...], ...]) -> Library:
    compiler = find_compiler()
    tuning, known = identify(compiler, tunings)
    # The name says all that went in, so that a folder shared by several machines keeps one library
    # for each kind, and an outdated one is never taken for the new.
    identity = f"{name}-{checksum(name, repr((compiler, tuning)).encode(), known)}"
    content = b""
    try:
        with _opened_folder() as folder:
            if library := _load_kept(folder, f"{identity}.so"):
                return Library(library, identity)
            content = compile_library(compiler, name, tuning)
            return Library(_keep_and_load(folder, f"{identity}.so", content), identity)
    except (OSError, RuntimeError) as error:
        # Not writable, not ours, full, mounted with noexec, or of a user without a home.
        if os.environ.get(FOLDER):
            place = getattr(error, "filename", None) or os.environ[FOLDER]
            raise CannotBuild(f"{place}: {getattr(error, 'strerror', None) or error}") from None
    # Compiled again in every process, but compiled.
    return Library(_load_copy(content or compile_library(compiler, name, tuning)), identity)


@contextlib.contextmanager
def _opened_folder() -> Iterator[int]:
    """A descriptor of the folder of compiled libraries.

    Code that others have put there would run as if it were ours. So the folder is looked at when it
    is open, and files are opened relative to it: whatever then becomes of its name, or of those of
    the folders above, it stays the folder that was looked at.
    """
    if os.environ.get(FOLDER):
        path = Path(os.environ[FOLDER]).expanduser().absolute()
    else:
        path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "jaxseq").absolute()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _check_owner(descriptor, path)
        yield descriptor
    finally:
        os.close(descriptor)


def _check_owner(descriptor: int, path: str | Path) -> None:
    status = os.fstat(descriptor)
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OSError(errno.EPERM, "others may write it, or have written it", str(path))


def _load_kept(folder: int, file: str) -> ctypes.CDLL | None:
    """A library of the folder; None where there is none, or one that is damaged."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        _check_owner(descriptor, file)
        with open(descriptor, "rb", closefd=False) as opened:
            content = opened.read()
        code, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
        # Half a file, as a full disk or a crash leaves it, would end the process with a bus error.
        if digest == _digest(file, code):
            # What cannot be loaded is as good as damaged: other machines may share the folder.
            with contextlib.suppress(OSError):
                return _load_opened(descriptor, code)
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _keep_and_load(folder: int, file: str, code: bytes) -> ctypes.CDLL:
    # Under another name, and renamed when it is on the disk and has been loaded: other processes
    # see a whole library or none.
    temporary = f".{file}.{secrets.token_hex(8)}"
    flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    written = os.open(temporary, flags | os.O_WRONLY, 0o600, dir_fd=folder)
    try:
        with open(written, "wb") as opened:
            opened.write(code + _digest(file, code))
            opened.flush()
            os.fsync(written)
        library = _load_opened(os.open(temporary, os.O_RDONLY, dir_fd=folder), code)
        os.rename(temporary, file, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(temporary, dir_fd=folder)
        raise
    return library


def _digest(file: str, code: bytes) -> bytes:
    # With the name, so that no other library of the folder can take its place.
    return hashlib.sha256(file.encode() + b"\0" + code).digest()


def _load_opened(descriptor: int, code: bytes) -> ctypes.CDLL:
    """The library in an open file, whatever its name stands for by now."""
    path = f"/proc/self/fd/{descriptor}"
    if not os.path.exists(path):  # as on macOS
        os.close(descriptor)
        return _load_copy(code)
    library = ctypes.CDLL(path)
    # It stays open: the dynamic linker knows a library by its path, and would take what is opened
    # later under the same number for this one.
    _stay_open.append(descriptor)
    return library


def _load_copy(code: bytes) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="jaxseq-") as folder:
        path = Path(folder, "kernels.so")
        path.write_bytes(code)
        return ctypes.CDLL(str(path))
