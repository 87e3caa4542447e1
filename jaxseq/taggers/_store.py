"""Models on disk: a folder with a safetensors file and a JSON file. Nothing in it is executed.

``model.json`` names the format and its version, the labels, the settings, the description of the
features and the SHA-256 of ``model.safetensors``, and ends with a checksum of itself; so that a
file that is cut off, edited or another's is noticed before anything is built from it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxseq._io import sync_file, sync_folder
from jaxseq._runtime import Outcome
from jaxseq.crf import CRF
from jaxseq.hmm import EVENT_AXES, HMM, HMMTagger, Multinomials, WordVocabulary, check_hmm_settings
from jaxseq.text import StringTable, Templates, extractor_from_state

if TYPE_CHECKING:
    from jaxseq.crf import CRFTagger
    from jaxseq.hmm import HMMTagger

FORMAT, VERSION = "jaxseq tagger", 1
ABOUT, ARRAYS = "model.json", "model.safetensors"
SPARSE = 0.25
"""Weights of which fewer than this part are not zero are stored as places and values."""


def save(tagger: CRFTagger | HMMTagger, path: str | os.PathLike[str]) -> None:
    """Write a trained tagger; see `CRFTagger.save` and `HMMTagger.save`."""
    from safetensors.numpy import save as to_bytes

    from jaxseq.hmm import HMMTagger

    path = Path(path)
    check_replaceable(path)
    own, arrays = describe_hmm(tagger) if isinstance(tagger, HMMTagger) else _describe_crf(tagger)
    data = to_bytes(arrays)
    about: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        **own,
        "arrays": {"file": ARRAYS, "sha256": hashlib.sha256(data).hexdigest()},
    }
    about["checksum"] = _checksum(about)
    text = json.dumps(about, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    _write_folder(path, {ARRAYS: data, ABOUT: f"{text}\n".encode()})


def _describe_crf(tagger: CRFTagger) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What to write of a CRF: entries of the JSON file, and arrays."""
    model, (features, arrays) = tagger.model_, tagger.extractor_.state()
    arrays = {f"features.{name}": np.ascontiguousarray(array) for name, array in arrays.items()}
    arrays |= _pack_weights(np.asarray(model.weights))
    for name in ("transitions", "start", "stop", "edge_weights"):
        if getattr(model, name) is not None:
            arrays[name] = np.asarray(getattr(model, name))
    about: dict[str, Any] = {
        "labels": tagger.classes_.tolist(),
        "attributes": model.num_attributes,
        "features": features,
        "settings": tagger_settings(tagger),
        "training": {
            "loss": finite(getattr(tagger, "loss_", None)),
            "outcome": getattr(tagger, "outcome_", None),
            "iterations": getattr(tagger, "n_iter_", None),
            "evaluations": getattr(tagger, "n_evaluations_", None),
        },
    }
    return about, arrays


def check_replaceable(path: Path) -> None:
    """ValueError where writing would destroy something other than an older model."""
    if not path.exists() and not path.is_symlink():
        return
    found = {entry.name for entry in path.iterdir()} if path.is_dir() else None
    if found is None or found - {ABOUT, ARRAYS} or (found and not _is_model(path)):
        raise ValueError(f"{path}: expected nothing, an empty folder or an older model there")


def _is_model(path: Path) -> bool:
    try:
        about = json.loads((path / ABOUT).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(about, dict) and about.get("format") == FORMAT


def finite(value: float | None) -> float | None:
    """The number, or None for what JSON cannot hold."""
    return value if value is not None and np.isfinite(value) else None


def _checksum(about: dict[str, Any]) -> str:
    body = {name: value for name, value in about.items() if name != "checksum"}
    text = json.dumps(body, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def settings_to_keep(tagger: CRFTagger | HMMTagger) -> dict[str, Any]:
    """The parameters of a tagger, NumPy's numbers and arrays as plain ones."""
    settings = tagger.get_params(deep=False)
    for name in ("progress", "checkpoint"):  # of one run on one machine, not of the model
        settings.pop(name)
    return {name: getattr(value, "tolist", lambda v=value: v)() for name, value in settings.items()}


def tagger_settings(tagger: CRFTagger) -> dict[str, Any]:
    settings = settings_to_keep(tagger)
    templates = settings["templates"]
    if templates is not None:
        chosen = templates if isinstance(templates, Templates) else Templates(templates)
        settings["templates"] = chosen.to_json()
    return settings


def _pack_weights(weights: np.ndarray) -> dict[str, np.ndarray]:
    places = np.flatnonzero(weights)
    if len(places) >= SPARSE * weights.size:
        return {"weights": np.ascontiguousarray(weights)}
    return {"weight_places": places.astype(np.int64), "weight_values": weights.ravel()[places]}


def _write_folder(path: Path, files: dict[str, bytes]) -> None:
    """All files, under a temporary name until they are complete."""
    path = path.absolute()  # "." has a name, too
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    old = temporary / "old"
    try:
        new = temporary / "new"
        new.mkdir(mode=0o755)
        for name, data in files.items():
            (new / name).write_bytes(data)
            sync_file(new / name)  # a name must not be on the disk before what it names
        sync_folder(new)
        if path.exists():
            os.replace(path, old)
        try:
            os.replace(new, path)
        except BaseException:
            if old.exists():
                os.replace(old, path)
            raise
        sync_folder(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


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
    about = _read_about(path)
    data = _read(path / ARRAYS)
    if hashlib.sha256(data).hexdigest() != _sha256_of_arrays(about):
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
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, AttributeError) as error:
        what = str(error) if isinstance(error, ValueError) else repr(error)
        raise ValueError(f"{path}: expected a sound model of version {VERSION}: {what}") from error


def _sha256_of_arrays(about: dict[str, Any]) -> Any:
    arrays = about.get("arrays")
    return arrays.get("sha256") if isinstance(arrays, dict) else None


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
        found = about.get("format") if isinstance(about, dict) else type(about).__name__
        raise ValueError(f"{where}: expected the format {FORMAT!r}, got {found!r}")
    if about.get("version") != VERSION:
        raise ValueError(
            f"{where}: expected version {VERSION}, the one that this jaxseq reads, "
            f"got {about.get('version')!r}"
        )
    if about.get("checksum") != checksum:
        raise ValueError(f"{where}: expected the text that its checksum is of; it was changed")
    return about


def _build(about: dict[str, Any], arrays: dict[str, np.ndarray]) -> CRFTagger | HMMTagger:

    kind = about.get("kind")
    if kind not in (None, KIND):
        raise ValueError(f"kind: expected {KIND!r}, or none for a CRF, got {kind!r:.80}")
    return _build_crf(about, arrays) if kind is None else build_hmm(about, arrays)


def _build_crf(about: dict[str, Any], arrays: dict[str, np.ndarray]) -> CRFTagger:
    from jaxseq.crf import CRFTagger

    settings = dict(about["settings"])
    if settings["templates"] is not None:
        settings["templates"] = Templates.from_json(settings["templates"])
    tagger = CRFTagger(**settings)
    prefix = "features."
    features = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
    extractor = extractor_from_state(about["features"], features)
    labels = check_stored_labels(about["labels"])
    if extractor.attribute_count != about["attributes"]:
        raise ValueError(
            f"attributes: expected {extractor.attribute_count}, as many as the features have, "
            f"got {about['attributes']!r:.80}"
        )
    weights = _unpack_weights(arrays, (extractor.attribute_count, len(labels)))
    pairs = arrays.get("edge_weights")
    if (0 if pairs is None else len(pairs)) != extractor.edge_attribute_count:
        raise ValueError(f"edge_weights: expected {extractor.edge_attribute_count} tables")
    scores = {name: arrays[name] for name in ("transitions", "start", "stop")}
    check_numbers(
        {"weights": weights} if pairs is None else {"weights": weights, "edge_weights": pairs}
    )
    check_numbers(scores, forbidden_may_be=True)
    model = CRF(weights, **scores, edge_weights=pairs)
    tagger._take(model, labels, extractor)
    training = about["training"]
    tagger.loss_, tagger.outcome_ = training["loss"], _read_outcome(training["outcome"])
    tagger.n_iter_, tagger.n_evaluations_ = training["iterations"], training["evaluations"]
    return tagger


def check_stored_labels(labels: Any) -> list[str]:
    """ValueError unless they are what `classes_` can be."""
    sound = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    if not sound or not labels or labels != sorted(set(labels)):
        raise ValueError(f"labels: expected different strings, sorted, got {labels!r:.80}")
    return labels


def check_numbers(arrays: dict[str, np.ndarray], forbidden_may_be: bool = False) -> None:
    """ValueError unless all are floats and finite, or −inf where that may be."""
    for name, array in arrays.items():
        if not np.issubdtype(array.dtype, np.floating):
            raise ValueError(f"{name}: expected floats, got {array.dtype}")
        sound = np.isfinite(array) | (np.isneginf(array) & forbidden_may_be)
        if not sound.all():
            raise ValueError(f"{name}: expected finite numbers, got {array[~sound].flat[0]}")


def _read_outcome(text: Any) -> Outcome | None:
    """The reason for the end of the training; ValueError for a text that is no member's."""
    return None if text is None else Outcome(text)


def _unpack_weights(arrays: dict[str, np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    if "weights" in arrays:
        weights = arrays["weights"]
        if weights.shape != shape:
            raise ValueError(f"weights: expected shape {list(shape)}, got {list(weights.shape)}")
        return weights
    places, values = arrays["weight_places"], arrays["weight_values"]
    weights = np.zeros(shape[0] * shape[1], values.dtype)
    if places.shape != values.shape or ((places < 0) | (places >= len(weights))).any():
        raise ValueError(f"weight_places: expected places in a table of shape {list(shape)}")
    weights[places] = values
    return weights.reshape(shape)


# -------------------------------------------------------------------------------------------------
# Hidden Markov models on disk: what this module writes of one, and makes of it.


KIND = "hmm"
WORDS = "words"
LARGEST_DEVIATION = 1e-3
"""Of the sum of probabilities from 1, in single precision and for any number of words."""


def describe_hmm(tagger: HMMTagger) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What to write: entries of the JSON file, and arrays."""
    arrays = StringTable(tagger.vocabulary_.words).to_arrays(WORDS)
    for name, family in tagger.model_.probabilities._asdict().items():
        arrays[name] = np.ascontiguousarray(family)
    settings = settings_to_keep(tagger)
    about: dict[str, Any] = {
        "kind": KIND,
        "labels": tagger.classes_.tolist(),
        "settings": {
            **settings,
            "frozen": list(settings["frozen"]),
            "classes": None if tagger.classes is None else [str(one) for one in tagger.classes],
        },
        "training": {
            "loss": finite(getattr(tagger, "loss_", None)),
            "log_likelihood": finite(getattr(tagger, "log_likelihood_", None)),
            "outcome": getattr(tagger, "outcome_", None),
            "iterations": getattr(tagger, "n_iter_", None),
        },
    }
    return about, arrays


def build_hmm(about: dict[str, Any], arrays: dict[str, np.ndarray]) -> HMMTagger:
    """The tagger; ValueError, or an error of a missing entry, where that is not one."""
    settings = dict(about["settings"])
    settings["frozen"] = tuple(settings["frozen"])
    if settings.get("classes") is not None:
        settings["classes"] = tuple(settings["classes"])
    tagger = HMMTagger(**settings)
    check_hmm_settings(tagger)
    labels = check_stored_labels(about["labels"])
    words = StringTable.from_arrays(arrays, WORDS).strings
    vocabulary = WordVocabulary([words], min_count=1)
    model = _model_of(arrays, len(labels), vocabulary)
    tagger._take(model, labels, vocabulary)
    training = about["training"]
    tagger.loss_, tagger.log_likelihood_ = training["loss"], training["log_likelihood"]
    tagger.outcome_, tagger.n_iter_ = _read_outcome(training["outcome"]), training["iterations"]
    return tagger


def _model_of(arrays: dict[str, np.ndarray], labels: int, vocabulary: WordVocabulary) -> HMM:
    shapes = Multinomials((labels,), (labels, labels), (len(vocabulary), labels))  # pyright: ignore
    found = {name: arrays[name] for name in Multinomials._fields}
    check_numbers(found)
    for (name, array), shape, axis in zip(found.items(), shapes, EVENT_AXES):
        if array.shape != shape:
            raise ValueError(f"{name}: expected shape {list(shape)}, got {list(array.shape)}")
        sums = array.sum(axis, dtype=np.float64)
        sound = (np.abs(sums - 1) < LARGEST_DEVIATION) | (sums == 0)
        if (array < 0).any() or not sound.all():
            raise ValueError(f"{name}: expected probabilities, whose sums are 1 or all of them 0")
    model = HMM(**found, unknown=vocabulary.unknown)
    # To the bit what was stored: normalising again changes last digits.
    exact = Multinomials(**{name: jnp.asarray(array) for name, array in found.items()})
    return eqx.tree_at(lambda hmm: hmm.probabilities, model, exact)
