"""Taggers on disk: a folder with a safetensors file and a JSON file. Nothing in it is executed.

``model.json`` names the format and its version, the labels, the settings, a description of the
model and the SHA-256 of ``model.safetensors``, and ends with a checksum of itself; so that a file
that is cut off, edited or another's is noticed before anything is built from it.

What only one kind of tagger has is described and restored by its class, which `register_kind`
makes known to `load`.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from jaxseq._io import recover_folder, replacing_folder
from jaxseq._runtime import Outcome

if TYPE_CHECKING:
    from jaxseq.taggers._base import SequenceTagger

FORMAT, VERSION = "jaxseq tagger", 1
ABOUT, ARRAYS = "model.json", "model.safetensors"

UNNAMED_KIND = "crf"
"""The kind of models whose files do not name one: the first that there was."""

_HOMES = {"crf": ("jaxseq.crf", "CRFTagger"), "hmm": ("jaxseq.hmm", "HMMTagger")}
"""Where the library's own kinds are, so that `load` imports the one that a file needs."""

_KINDS: dict[str, type[SequenceTagger]] = {}

Tagger = TypeVar("Tagger", bound="type[SequenceTagger]")


def register_kind(kind: str) -> Callable[[Tagger], Tagger]:
    """Make a class of taggers known to `load`, under the name that its files are to have.

    Example:
        >>> from jaxseq.hmm import HMMTagger
        >>> @register_kind("my hmm")
        ... class MyTagger(HMMTagger):
        ...     "An HMM of mine."
        >>> MyTagger.kind
        'my hmm'
    """

    def register(tagger: Tagger) -> Tagger:
        tagger.kind = kind
        _KINDS[kind] = tagger
        return tagger

    return register


def _find_kind(kind: str) -> type[SequenceTagger]:
    if kind not in _KINDS and kind in _HOMES:
        module, name = _HOMES[kind]
        getattr(importlib.import_module(module), name)  # registers itself
    if kind not in _KINDS:
        raise ValueError(f"kind: expected one of {sorted({*_KINDS, *_HOMES})}, got {kind!r:.80}")
    return _KINDS[kind]


# ------------------------------------------------------------------------------------ saving


def save_tagger(tagger: SequenceTagger, path: str | os.PathLike[str]) -> None:
    """Write a trained tagger; see `SequenceTagger.save`."""
    from safetensors.numpy import save as to_bytes

    path = Path(path)
    check_replaceable(path)
    own, arrays = tagger._describe()
    data = to_bytes(arrays)
    about: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "labels": tagger.classes_.tolist(),
        "settings": tagger.settings_to_json(),
        "training": {
            name: _finite(getattr(tagger, attribute, None))
            for name, attribute in tagger._TRAINING.items()
        },
        **own,
        "arrays": {"file": ARRAYS, "sha256": hashlib.sha256(data).hexdigest()},
    }
    if tagger.kind != UNNAMED_KIND:
        about["kind"] = tagger.kind
    about["checksum"] = _checksum(about)
    text = json.dumps(about, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    with replacing_folder(path, old_may_be=True) as new:
        (new / ARRAYS).write_bytes(data)
        (new / ABOUT).write_text(f"{text}\n", "utf-8")


def check_replaceable(path: Path) -> None:
    """ValueError where writing would destroy something other than an older model."""
    recover_folder(path)
    if not path.exists() and not path.is_symlink():
        return
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else None
    if names is None or names - {ABOUT, ARRAYS} or (names and not _is_model(path)):
        raise ValueError(f"{path}: expected nothing, an empty folder or an older model there")


def _is_model(path: Path) -> bool:
    try:
        about = json.loads((path / ABOUT).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(about, dict) and about.get("format") == FORMAT


def _finite(value: Any) -> Any:
    """The value, or None for a number that JSON cannot hold."""
    return None if isinstance(value, float) and not np.isfinite(value) else value


def is_finite_number(value: Any) -> bool:
    """Whether a value of JSON is a number that a float can hold; True is none."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _checksum(about: dict[str, Any]) -> str:
    """Of everything but itself; without white space, which may change."""
    body = {name: value for name, value in about.items() if name != "checksum"}
    text = json.dumps(body, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


# ------------------------------------------------------------------------------------ loading


def load(path: str | os.PathLike[str]) -> Any:
    """Read a tagger that `CRFTagger.save` or `HMMTagger.save` wrote.

    Nothing in the files is executed; a file that is cut off, edited or not of this format gives a
    ValueError that says so.

    Example:
        >>> import jaxseq, os, tempfile
        >>> tagger = jaxseq.CRFTagger(templates=["word[0]"]).fit([["a", "b"]], [["X", "Y"]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     tagger.save(os.path.join(folder, "model"))
        ...     jaxseq.load(os.path.join(folder, "model")).predict([["b"]])
        [['Y']]
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

    path = Path(path)
    if not path.exists():  # a save that was killed may have moved it away
        recover_folder(path)
    about = _read_about(path)
    data = _read(path / ARRAYS)
    described = about.get("arrays")
    expected = described.get("sha256") if isinstance(described, dict) else None
    if hashlib.sha256(data).hexdigest() != expected:
        raise ValueError(
            f"{path / ARRAYS}: expected the file that {ABOUT} describes, got another: it was cut "
            "off or changed"
        )
    try:
        arrays = from_bytes(data)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path / ARRAYS}: expected safetensors, got {error}") from error
    try:
        return _build(about, arrays)
    # Checksums can be made right again after an edit: anything may be missing or of another type.
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, AttributeError) as error:
        what = str(error) if isinstance(error, ValueError) else repr(error)
        raise ValueError(f"{path}: expected a sound model of version {VERSION}: {what}") from error


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise ValueError(f"{path}: expected a file of a model there, found none")
    return path.read_bytes()


def _read_about(path: Path) -> dict[str, Any]:
    where = path / ABOUT
    data = _read(where)
    try:
        about = json.loads(data.decode())
        checksum = _checksum(about) if isinstance(about, dict) else None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: expected JSON in UTF-8, got {error}") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        kind = about.get("format") if isinstance(about, dict) else type(about).__name__
        raise ValueError(f"{where}: expected the format {FORMAT!r}, got {kind!r}")
    if about.get("version") != VERSION:
        raise ValueError(
            f"{where}: expected version {VERSION}, the one that this jaxseq reads, "
            f"got {about.get('version')!r}"
        )
    if about.get("checksum") != checksum:
        raise ValueError(f"{where}: expected the text that its checksum is of; it was changed")
    return about


def _build(about: dict[str, Any], arrays: dict[str, np.ndarray]) -> SequenceTagger:
    cls = _find_kind(about.get("kind", UNNAMED_KIND))
    tagger = cls(**cls.settings_from_json(about["settings"]))
    labels = about["labels"]
    sound = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    if not sound or not labels or labels != sorted(set(labels)):
        raise ValueError(f"labels: expected different strings, sorted, got {labels!r:.80}")
    tagger._restore(about, labels, arrays)
    for name, attribute in cls._TRAINING.items():
        value = about["training"].get(name)  # older models say less
        if name == "outcome" and value is not None:
            value = Outcome(value)  # ValueError for the text of none of its members
        elif value is not None and not is_finite_number(value):
            raise ValueError(f"{name}: expected a finite number, got {value!r:.80}")
        setattr(tagger, attribute, value)
    return tagger


def check_stored_numbers(arrays: dict[str, np.ndarray], forbidden_may_be: bool = False) -> None:
    """ValueError unless all are floats and finite, or −inf where that may be."""
    for name, array in arrays.items():
        if not np.issubdtype(array.dtype, np.floating):
            raise ValueError(f"{name}: expected floats, got {array.dtype}")
        sound = np.isfinite(array) | (np.isneginf(array) & forbidden_may_be)
        if not sound.all():
            raise ValueError(f"{name}: expected finite numbers, got {array[~sound].flat[0]}")
