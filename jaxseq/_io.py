"""Files and folders that are whole or not there, locks, and the store of unfinished work.

A search, a cross-validation, a path: whatever takes long keeps its state in a `SearchStore`, to go
on from later exactly where it stopped.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

# JAX is imported where it is needed: readers of text use this module, and so does --help.

try:
    import fcntl
except ImportError:  # not on every system; there nobody is kept out
    fcntl = None


# ------------------------------------------------------------------------------------- locks


@contextmanager
def holding(path: str | os.PathLike[str], *, make: bool = False) -> Iterator[bool]:
    """Hold the lock of a file or folder, and say whether it could be had.

    The operating system gives it back when the process ends, however it ends.

    Args:
        path: of what to lock.
        make: an empty file, where there is nothing.
    """
    if fcntl is None:
        yield True
        return
    descriptor = os.open(path, os.O_RDONLY | (os.O_CREAT if make else 0), 0o666)
    try:
        free = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            free = False
        except OSError:
            pass  # some file systems have no locks
        # Whoever had the lock may have removed the file meanwhile: such a lock keeps nobody out.
        yield free and _has_name(descriptor, path)
    finally:
        os.close(descriptor)


def _has_name(descriptor: int, path: str | os.PathLike[str]) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


@contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Keep other threads and processes, that ask for it too, from a path which need not exist.

    The lock is that of a file ``.NAME.lock`` beside the path. One that was left behind by a process
    that was killed keeps nobody out. Folders that are missing are made, and removed at the end if
    they are still empty.

    Raises:
        ValueError: where another has the lock.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder, locked(f"{folder}/model"):
        ...     os.listdir(folder)
        ['.model.lock']
    """
    absolute = Path(os.path.abspath(path))
    lock = absolute.with_name(f".{absolute.name}.lock")
    with ExitStack() as at_the_end:
        with naming(path):
            for folder in [folder for folder in absolute.parents if not folder.exists()][::-1]:
                folder.mkdir(exist_ok=True)
                at_the_end.callback(_remove_if_empty, folder)
            # Twice, since at the first time it may just have been given back.
            free = any(at_the_end.enter_context(holding(lock, make=True)) for _ in range(2))
        if not free:
            raise ValueError(
                f"{path}: expected to be alone with it, found another jaxseq at work on it"
            )
        if fcntl is not None:
            at_the_end.callback(_unlink, lock)  # while it is held
        yield


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of the operating system name the path that was asked for, and no other."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # of a library, with a message of its own
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


# ------------------------------------------------------------------------- files and folders


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary file beside `path`, to be written inside, which then takes its place.

    Whenever a process is killed or the power fails, the old file is there or the new one is, and
    whole. On an error the old one stays. Folders that are missing are made.

    Raises:
        OSError: where that cannot be, with the path that was asked for.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with replacing(f"{folder}/new/file") as temporary:
        ...         _ = temporary.write_text("text")
        ...     Path(folder, "new", "file").read_text()
        'text'
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            # Contents first: a name that is on the disk before them could be that of an empty file.
            sync_file(temporary)
            os.replace(temporary, path)
            sync_folder(path.parent)  # and now the name
    finally:
        _unlink(temporary)  # what went wrong before matters more


NEW, OLD = "new", "old"
"""In the temporary folder of a save: what takes the place, and what was there before."""


@contextmanager
def replacing_folder(path: str | os.PathLike[str], *, old_may_be: bool = False) -> Iterator[Path]:
    """A new folder beside `path`, to be filled inside, which then takes its place.

    Whenever a process is killed or the power fails, what was there before is there, or what is new,
    and whole; where the operating system cannot exchange two folders, after the next `load`, save
    or `recover_folder`. On an error the old one stays. Folders that are missing are made.

    Args:
        path: where there may be an empty folder.
        old_may_be: whether there may be another one, which is then removed.

    Raises:
        OSError: where that cannot be, with the path that was asked for.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with replacing_folder(f"{folder}/model") as new:
        ...         _ = (new / "file").write_text("text")
        ...     os.listdir(folder), os.listdir(f"{folder}/model")
        (['model'], ['file'])
    """
    place = Path(os.path.abspath(path))  # "." has a name, too
    with ExitStack() as at_the_end, naming(path):
        place.parent.mkdir(parents=True, exist_ok=True)
        recover_folder(place)
        # Beside its place, not in /tmp: only within one file system is a rename atomic.
        temporary = _temporary_beside(place, at_the_end)
        new = temporary / NEW
        new.mkdir(mode=0o755)  # mkdtemp's own folder is closed to everyone else
        yield new
        for file in new.iterdir():  # a name must not be on the disk before what it names
            sync_file(file)
        sync_folder(new)
        if not (old_may_be and place.exists()):
            os.replace(new, place)  # also onto an empty folder
        elif not exchange(new, place):
            _replace_in_two_steps(new, place, temporary / OLD)
        sync_folder(place.parent)


def _temporary_beside(place: Path, at_the_end: ExitStack) -> Path:
    """A folder of this process alone until the end; its lock says that it is in use."""
    while True:
        temporary = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
        at_the_end.callback(shutil.rmtree, temporary, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            if at_the_end.enter_context(holding(temporary)):
                return temporary
        # Another save has taken it for one that was left behind, before it was locked.


def _replace_in_two_steps(new: Path, place: Path, old: Path) -> None:
    os.replace(place, old)
    try:
        os.replace(new, place)
    except BaseException:
        os.replace(old, place)
        raise


def recover_folder(path: str | os.PathLike[str]) -> None:
    """Finish what saves to a folder left behind when they were killed, and remove the remains."""
    place = Path(os.path.abspath(path))
    if fcntl is None:  # nothing says whether a save is still at work
        return
    for temporary in place.parent.glob(f".{glob.escape(place.name)}.????????"):
        # What cannot be opened any more has been removed by another process.
        with contextlib.suppress(OSError), holding(temporary) as is_left_behind:
            if not is_left_behind or not {*os.listdir(temporary)} <= {NEW, OLD}:
                continue
            # The old one was moved away when the new one was whole and on the disk.
            if (temporary / OLD).exists() and not os.path.lexists(place):
                os.replace(temporary / (NEW if (temporary / NEW).exists() else OLD), place)
            shutil.rmtree(temporary, ignore_errors=True)


AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""Of Linux: paths are relative to the working folder; two names change places."""


def exchange(one: Path, other: Path) -> bool:
    """Let two folders change places in one step; False where the system cannot do that."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    names = os.fsencode(one), os.fsencode(other)
    if not rename(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE):
        return True
    number = ctypes.get_errno()
    # Of old kernels, and of file systems that cannot.
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), os.fspath(other))


def sync_file(path: Path) -> None:
    """Return when what was written to a file is on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Return when the names in a folder are on the disk; at once where that cannot be asked for."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # some file systems refuse
            os.fsync(number)
    finally:
        os.close(number)


Tree = TypeVar("Tree")

FORMAT = "jaxseq checkpoint 2"
"""Of the files of a `SearchStore`; in their metadata, so that others are not taken for ours."""

MODULUS = 1 << 256
"""Sums of digests are taken modulo this, so that they are as long as one digest."""


class Fingerprint:
    """Says which job this is: a hash of everything that its results depend on.

    Args:
        parts: as of `add`.

    Example:
        >>> one = Fingerprint("training", {"l2": 1.0, "labels": {"N", "V"}}, np.zeros(3))
        >>> str(one) == str(Fingerprint("training").add({"labels": {"V", "N"}, "l2": 1.0}))
        False
        >>> len(str(one))
        64
    """

    def __init__(self, *parts: Any):
        self._digest = hashlib.sha256()
        self.add(*parts)

    def add(self, *parts: Any) -> Fingerprint:
        """Take in arrays by their type, shape and bytes, and all else by its text.

        Sets have no order, and dictionaries that of their entries. What has a text with an address
        in memory is not for this.
        """
        import jax

        for part in parts:
            if isinstance(part, np.ndarray | jax.Array):
                # The same bytes may be another array: of another type, or another shape.
                array = np.asarray(part)
                self._update(f"{array.dtype.str}{array.shape}".encode())
                self._update(np.ascontiguousarray(array).tobytes())
            else:
                self._update(plain_text(part).encode("utf-8", "surrogatepass"))
        return self

    def add_unordered(
        self,
        lengths: np.ndarray,
        *columns: np.ndarray | None,
        weights: np.ndarray | None = None,
        devices: Agreement | None = None,
    ) -> Fingerprint:
        """Take in sentences, of all processes, in a way that their order does not change.

        Args:
            lengths: tokens of each.
            columns: arrays [tokens, …] of all sentences, one after another.
            weights: how much each sentence counts; None for 1.
            devices: the processes, which call this together.
        """
        weights = np.ones(len(lengths)) if weights is None else np.asarray(weights, float)
        total = 0
        for end, length, weight in zip(np.cumsum(lengths).tolist(), lengths.tolist(), weights):
            digest = hashlib.sha256(repr((length, float(weight))).encode())
            for column in columns:
                digest.update(b"-" if column is None else column[end - length : end].tobytes())
            total += int.from_bytes(digest.digest(), "big")
        # Modulo a digest's size, so that it is as long whatever the number of sentences.
        total = (_Alone() if devices is None else devices).total(total % MODULUS) % MODULUS
        return self.add(f"{total:x}")

    def _update(self, data: bytes) -> None:
        # With its length, so that the end of one part is not taken for the start of the next.
        self._digest.update(len(data).to_bytes(8, "big"))
        self._digest.update(data)

    def __int__(self) -> int:
        """For sums of the fingerprints of many things, which their order does not change."""
        return int.from_bytes(self._digest.digest(), "big")

    def __str__(self) -> str:
        return self._digest.hexdigest()


def plain_text(part: Any) -> str:
    """Data and settings as text, the same in every process.

    Example:
        >>> plain_text({"scheme": None, "labels": {"V", "N"}})
        "{'scheme':None,'labels':set('N','V')}"
    """
    if isinstance(part, set | frozenset):  # whose order depends on the process
        return "set(" + ",".join(sorted(map(plain_text, part))) + ")"
    if isinstance(part, list | tuple):
        return "[" + ",".join(map(plain_text, part)) + "]"
    if isinstance(part, dict):
        return "{" + ",".join(f"{key!r}:{plain_text(part[key])}" for key in part) + "}"
    return repr(part)


class Saved(NamedTuple):
    """What was last saved: notes (anything that JSON can hold), and arrays by their names."""

    notes: Any
    arrays: dict[str, np.ndarray]


@runtime_checkable
class Agreement(Protocol):
    """How the processes of a job agree, as `jaxseq.parallel.Devices` has it."""

    @property
    def is_first(self) -> bool: ...

    def agreeing(self) -> AbstractContextManager[Any]: ...

    def total(self, number: int) -> int: ...

    def share_first(self, notes: Any, arrays: dict[str, np.ndarray]) -> tuple[Any, dict]: ...


class _Alone:
    """One process, which agrees with itself."""

    is_first = True

    def agreeing(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def total(self, number: int) -> int:
        return number

    def share_first(self, notes: Any, arrays: dict[str, np.ndarray]) -> tuple[Any, dict]:
        return notes, arrays


class SearchStore:
    """The state of one job in one file of safetensors; nothing is kept without a path.

    A file appears whole or not at all, and belongs to one job: that of another is refused, and
    stays. It has a checksum, so that one which was damaged is refused too. Where several processes
    share the job, all call the methods together; the first one alone reads and writes.

    Args:
        path: the file, or None.
        fingerprint: says which job this is; a string or a `Fingerprint`. Where that is costly to
            find out, a function that gives it; it is not called without a path.
        devices: the processes, if there are several.

    Raises:
        ValueError: where the path is not one, or a folder.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = SearchStore(f"{folder}/search", Fingerprint("counting", 10))
        ...     store.save({"iteration": 3}, {"weights": np.arange(2)})
        ...     saved = store.load()
        ...     store.remove()
        ...     saved.notes, saved.arrays["weights"].tolist(), store.load()
        ({'iteration': 3}, [0, 1], None)
    """

    def __init__(self, path: Any, fingerprint: Any, devices: Agreement | None = None):
        if not isinstance(path, str | os.PathLike | None):
            raise ValueError(f"checkpoint: expected a path or None, got {path!r:.60}")
        self.path = None if path is None else Path(path)
        self._devices: Agreement = _Alone() if devices is None else devices
        self._fingerprint = ""
        if self.path is None:
            return
        with self._devices.agreeing():
            if self.is_first and self.path.is_dir():
                raise ValueError(f"{path}: expected a file to keep the search in, got a folder")
            self._fingerprint = str(fingerprint() if callable(fingerprint) else fingerprint)

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that reads and writes the file."""
        return self._devices.is_first

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other jobs from the file meanwhile; ValueError where one is at work on it."""
        with ExitStack() as at_the_end:
            if self.path is not None:
                with self._devices.agreeing():
                    if self.is_first:
                        at_the_end.enter_context(locked(self.path))
            yield

    def load(self) -> Saved | None:
        """The last state saved; None where there is none.

        Raises:
            ValueError: for a file of another job, and for one that is no checkpoint or not whole.
        """
        if self.path is None:
            return None
        notes, arrays = None, {}
        with self._devices.agreeing():
            # By the first process alone: others may be on machines that do not see the file.
            if self.is_first and self.path.exists():
                notes, arrays = read_checkpoint(self.path, self._fingerprint)
                notes = [notes]  # notes that are None are still there
            notes, arrays = self._devices.share_first(notes, arrays)
        return None if notes is None else Saved(notes[0], arrays)

    def save(self, notes: Any, arrays: dict[str, Any] | None = None) -> None:
        """Replace the state.

        Args:
            notes: anything that JSON can hold.
            arrays: by their names. Those of a pytree are named by `named_leaves`.
        """
        if self.path is None:
            return
        with self._devices.agreeing():
            if self.is_first:
                write_checkpoint(self.path, self._fingerprint, notes, arrays or {})

    def remove(self) -> None:
        """The job is done. The file of another, which has taken its place meanwhile, stays."""
        if self.path is None:
            return
        with self._devices.agreeing():
            if self.is_first and _job_of(self.path) == self._fingerprint:
                self.path.unlink(missing_ok=True)

    def of_one_process(self) -> SearchStore:
        """The same file and job without the other processes, for who has it to himself."""
        return SearchStore(self.path, self._fingerprint)


ARRAY_FIELDS = ("parameters", "gradient", "memory")
"""Fields of a search's state that are pytrees of arrays; all others are numbers."""

State = TypeVar("State", bound=Any)


class Before(NamedTuple):
    """Iterations and evaluations of the stages before the one that is running."""

    iterations: int = 0
    evaluations: int = 0


class Stages:
    """A search in several stages, one after another, in one store.

    Args:
        store: where the state is kept. If it has one, the search goes on from there.

    Attributes:
        first: the stage to go on with.
        outcome: why the search ended, if the store has its end; then no stage is to be run.

    Example:
        >>> import jax.numpy as jnp
        >>> class Count(NamedTuple):
        ...     parameters: Any
        ...     iteration: int
        >>> stages = Stages(SearchStore(None, ""))
        >>> stages.first, stages.resume(0, Count(jnp.zeros(2), 0), Before())[1]
        (0, Before(iterations=0, evaluations=0))
    """

    def __init__(self, store: SearchStore):
        self._store = store
        self._saved = store.load()
        self.first: int = 0
        self.outcome: str | None = None
        if self._saved is not None:
            self.first = self._saved.notes["stage"]
            self.outcome = self._saved.notes["outcome"]

    def resume(self, stage: int, begun: State, before: Before) -> tuple[State, Before]:
        """The state on disk, and what was done before its stage; else those given."""
        saved, self._saved = self._saved, None  # read once, and then no longer in memory
        # A file of an earlier stage of the same search is over, and only waits to be replaced.
        if saved is None or saved.notes["stage"] != stage:
            return begun, before
        tree = leaves_like(saved.arrays, _array_fields(begun), self._store.path)
        numbers = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in saved.notes["state"].items()
        }
        return begun._replace(**tree, **numbers), Before(*saved.notes["before"])

    def keep(self, stage: int, state: Any, before: Before) -> None:
        """Write a state."""
        _keep(self._store, stage, state, before, None)

    def finish(
        self, stage: int, state: Any, before: Before, over: str | None, *, exact: bool = True
    ) -> SearchStore | None:
        """Keep the state that a stage ended with.

        Also that of a search which is over: until its model is saved, this file is all that a full
        disk or a kill leaves of it.

        Args:
            stage: its number.
            state: at its end.
            before: iterations and evaluations of the stages before.
            over: why the whole search ended; None if it may go on.
            exact: whether to go on from here is as good as from the state on disk.

        Returns:
            The store, to be removed when the model is saved, if the search is over.
        """
        if over is None:
            if exact:
                self.keep(stage, state, before)
            return None
        own = self._store.of_one_process()
        if self.outcome is None and self._store.is_first:
            # The model is in memory: not to have this file as well is no reason to lose that.
            with contextlib.suppress(OSError):
                _keep(own, stage, state, before, over)
        return own


def _keep(store: SearchStore, stage: int, state: Any, before: Before, outcome: str | None) -> None:
    if store.path is None:
        return
    arrays = named_leaves(_array_fields(state))
    numbers = {k: v for k, v in state._asdict().items() if k not in ARRAY_FIELDS}
    notes = {"stage": stage, "before": before, "state": numbers, "outcome": outcome}
    store.save(notes, arrays)


def _array_fields(state: Any) -> dict[str, Any]:
    return {name: getattr(state, name) for name in ARRAY_FIELDS if hasattr(state, name)}


def write_checkpoint(
    path: str | os.PathLike[str], about: str, notes: Any, arrays: dict[str, Any]
) -> None:
    """Write a file of a `SearchStore`, at once or not at all; OSError where that cannot be."""
    from safetensors.numpy import save as to_bytes

    # safetensors writes the memory that is there, whatever the strides say.
    in_rows = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    metadata = {"format": FORMAT, "about": about, "extra": json.dumps(notes)}
    metadata["checksum"] = _checksum(metadata, in_rows)
    with replacing(path) as temporary:
        # Not by `save_file`, which leaves a temporary file of its own behind when it is killed.
        temporary.write_bytes(to_bytes(in_rows, metadata))


def read_checkpoint(path: str | os.PathLike[str], about: str) -> Saved:
    """Notes and arrays of a file.

    Raises:
        ValueError: if it is none of ours, not whole, or of another search.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = {"format": None, "about": "", "extra": "null", **(file.metadata() or {})}
            # Into memory, since the file may be replaced while the search goes on.
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            notes = json.loads(metadata["extra"])
    # A damaged header may ask for anything.
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: expected a checkpoint of jaxseq, got {error}") from error
    if metadata["format"] != FORMAT:
        raise ValueError(f"{path}: expected {FORMAT!r}, got {metadata['format']!r}")
    if metadata.get("checksum") != _checksum(metadata, arrays):
        raise ValueError(
            f"{path}: expected the checkpoint that its checksum is of; it was damaged or changed, "
            "and nothing can go on from it"
        )
    if metadata.get("about") != about:
        raise ValueError(
            f"{path}: expected a checkpoint of this very search (same data and settings), got one "
            "of another; delete it or name another file"
        )
    return Saved(notes, arrays)


def _checksum(metadata: dict[str, str], arrays: dict[str, np.ndarray]) -> str:
    parts = [part for name in sorted(arrays) for part in (name, arrays[name])]
    return str(Fingerprint(*(metadata[name] for name in ("about", "extra")), *parts))


def _job_of(path: Path) -> str | None:
    """The fingerprint in a file of `write_checkpoint`; None where there is no such file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return (file.metadata() or {}).get("about")
    except (OSError, SafetensorError):
        return None


def save_checkpoint(path: str | os.PathLike[str], tree: Any, about: str, extra: Any = None) -> None:
    """Write the arrays of a pytree, with notes, without a store.

    Args:
        path: the file.
        tree: a pytree of arrays.
        about: says which search this is; `load_checkpoint` wants the same.
        extra: anything that JSON can hold.
    """
    write_checkpoint(path, about, extra, named_leaves(tree))


def load_checkpoint(path: str | os.PathLike[str], like: Tree, about: str) -> tuple[Tree, Any]:
    """The pytree and the notes of `save_checkpoint`; ValueError if the file is another's.

    Args:
        path: the file.
        like: a pytree of the same structure, shapes and dtypes.
        about: as when saved.
    """
    saved = read_checkpoint(path, about)
    return leaves_like(saved.arrays, like, path), saved.notes


def named_leaves(tree: Any) -> dict[str, Any]:
    """The leaves of a pytree under the names that they have in files."""
    import jax

    return {f"{i:03d}": leaf for i, leaf in enumerate(jax.tree.leaves(tree))}


def leaves_like(arrays: dict[str, np.ndarray], like: Tree, where: Any = "checkpoint") -> Tree:
    """The pytree of `named_leaves`, on the devices where another one is.

    Args:
        arrays: of a `Saved`.
        like: a pytree of the same structure, shapes and dtypes.
        where: the file, for messages.

    Raises:
        ValueError: where structure, shapes or dtypes differ.
    """
    import jax

    leaves = named_leaves(like)
    if sorted(arrays) != sorted(leaves):
        raise ValueError(f"{where}: expected {len(leaves)} arrays, got {len(arrays)}")
    for name, leaf in leaves.items():
        new, old = arrays[name], leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
        if new.shape != old.shape or new.dtype != old.dtype:
            raise ValueError(
                f"{where}: array {name}: expected {old.dtype} of shape {list(old.shape)}, "
                f"got {new.dtype} of shape {list(new.shape)}"
            )
    placed = [_place_like(arrays[name], leaf) for name, leaf in leaves.items()]
    return jax.tree.unflatten(jax.tree.structure(like), placed)


def _place_like(array: np.ndarray, leaf: Any) -> Any:
    """On the devices of a mesh where the leaf is on one."""
    import jax

    # Every process has the whole array, and gives its devices the parts that they ask for.
    sharding = getattr(leaf, "sharding", None)
    if not isinstance(sharding, jax.sharding.NamedSharding):
        return jax.numpy.asarray(array)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])
