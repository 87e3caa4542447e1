"""Files of the corpora and their checksums."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from experiments.data._catalogue import corpus_named

REGISTRY = Path(__file__).with_name("registry.txt")
OPTIONAL = frozenset({"NOTICE"})
"""Files that no reader needs; they are checked if they are there."""


def locate(corpus: str, folder: Path) -> dict[str, Path]:
    """Files of a corpus, whose content is that of the registry.

    Args:
        corpus: a name of `experiments.data.CORPORA`.
        folder: the data folder, which holds a folder for each corpus.

    Returns:
        File, such as ``conll2000/train.txt`` → where it is.

    Raises:
        ValueError: for a file that is missing, with where to get it, and for one with another
            sha256.

    Example:
        >>> locate("bc2gm", Path("nowhere"))
        Traceback (most recent call last):
        ValueError: nowhere: expected a folder with the corpora, found none
    """
    wanted = checksums(corpus)
    if not folder.is_dir():
        raise ValueError(f"{folder}: expected a folder with the corpora, found none")
    found = {name: folder / name for name in wanted if (folder / name).is_file()}
    missing = [name for name in wanted if name not in found and Path(name).name not in OPTIONAL]
    if missing:
        raise ValueError(
            f"{folder}: expected {', '.join(missing)}, found none; get {corpus} from "
            f"{corpus_named(corpus).where} ({corpus_named(corpus).licence})"
        )
    for name, path in found.items():
        _check(path, wanted[name])
    return found


def is_missing(corpus: str, folder: Path) -> bool:
    """Whether a data folder holds nothing of a corpus."""
    return not any((folder / name).exists() for name in checksums(corpus))


def checksums(corpus: str) -> dict[str, str]:
    """File of a corpus → its sha256.

    Example:
        >>> [name for name in checksums("conll2000")]
        ['conll2000/test.txt', 'conll2000/train.txt']
    """
    corpus_named(corpus)
    return {name: sha for name, sha in _registry().items() if name.startswith(f"{corpus}/")}


@functools.cache
def _registry() -> Mapping[str, str]:
    """The registry as pooch reads it, without the algorithm's name."""
    registry = _pooch().create(path=REGISTRY.parent, base_url="")  # the path is not used
    registry.load_registry(REGISTRY)
    return {name: known.removeprefix("sha256:") for name, known in registry.registry.items()}


def _check(path: Path, sha256: str) -> None:
    """ValueError if the file has other content."""
    status = path.stat()
    found = _sha256(path, status.st_size, status.st_mtime_ns)
    if found != sha256:
        raise ValueError(f"{path}: expected sha256 {sha256}, got {found}")


@functools.cache
def _sha256(path: Path, size: int, modified: int) -> str:
    """Checksum of a file; size and time are in the key, so that a changed file is read again."""
    return _pooch().file_hash(str(path), alg="sha256")


def _pooch():
    try:
        import pooch
    except ImportError:
        raise ValueError(
            "the corpora need pooch, which is not installed: pip install 'jaxseq[experiments]'"
        ) from None
    return pooch
