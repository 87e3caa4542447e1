"""What was learnt of words from unlabelled text: clusters, Brown paths and states, on disk too."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from jaxseq._io import replacing
from jaxseq.representations._lexicon import Lexicon
from jaxseq.representations._states import StateModel
from jaxseq.text import Column, StringTable

FORMAT, VERSION = "jaxseq representation", 1
BROWN_LENGTHS = (4, 6, 10, 20)
"""Lengths of the paths that the default templates cut, as is usual since Miller et al. 2004."""
AROUND = (-1, 0, 1)
"""Words whose clusters the default templates look at."""


@dataclass(frozen=True, eq=False)
class Representation:
    """Features of words that were learnt from text without labels.

    Of `learn_representation` or `representation_from_vectors`; given to a tagger as
    ``CRFTagger(representation=…)``. Templates may call it: ``cluster(word[0], 64)`` is the cluster
    of a word among 64, ``brown(word[0], 6)`` the first six bits of its Brown path, and
    ``state(word[0])``, or ``state(0)`` for short, the state of the token in its sentence.

    Args:
        lexicon: words, and classes of rare words by their spelling.
        clusters: size → int32 [rows], the cluster of each row, −1 for none.
        brown: int32 [rows], the Brown class of each row, and the path of each class; or None.
        state_model: or None.
        column: of sentences, that the words are in.
        about: how it was learnt; anything that JSON can hold.

    Example:
        >>> from jaxseq.representations import learn_representation
        >>> text = [["the", "dog", "barks"], ["the", "cat", "sleeps"], ["a", "dog", "sleeps"]] * 9
        >>> words = learn_representation(text, sizes=(3,), seed=0)
        >>> words.cluster("dog", 3) == words.cluster("cat", 3) != words.cluster("the", 3)
        True
    """

    lexicon: Lexicon
    clusters: Mapping[int, np.ndarray] = field(default_factory=dict)
    brown: tuple[np.ndarray, tuple[str, ...]] | None = None
    state_model: StateModel | None = None
    column: str = "word"
    about: Mapping[str, Any] = field(default_factory=dict)

    # ------------------------------------------------------------------------------ features

    def cluster(self, word: str, size: int) -> str | None:
        """The number of a word's cluster among so many, as a string; None for an unknown word."""
        return self.function("cluster", size)(word)

    def brown_path(self, word: str, length: int) -> str | None:
        """The first bits of a word's Brown path; None for an unknown word."""
        return self.function("brown", length)(word)

    def function(self, name: str, argument: int | str | None) -> Callable[[str], str | None]:
        """What a template calls by this name, as a function of one word.

        Raises:
            ValueError: where the representation has no such clusters or paths.
        """
        rows = self.lexicon.rows
        if name == "brown":
            if self.brown is None:
                raise ValueError(f"brown: expected a representation with them, got {self}")
            classes, paths = self.brown
            cut = [path[: int(argument or 0)] for path in paths]
            values = [cut[number] if number >= 0 else None for number in classes.tolist()]
        else:
            if argument not in self.clusters:
                raise ValueError(
                    f"cluster: expected one of the sizes {sorted(self.clusters)}, got {argument}"
                )
            numbers = self.clusters[argument].tolist()  # pyright: ignore[reportArgumentType]
            values = [str(number) if number >= 0 else None for number in numbers]
        values.append(None)  # for row −1
        return lambda word: values[int(rows([word])[0])]

    def states(self, words: Column, lengths: np.ndarray) -> Column:
        """The state of each token, given all words of its sentence.

        Raises:
            ValueError: where the representation has no states.
        """
        if self.state_model is None:
            raise ValueError(f"state: expected a representation with states, got {self}")
        rows = self.lexicon.rows(words.strings)[words.codes]
        names = [str(state) for state in range(len(self.state_model.initial))]
        return Column(names, self.state_model.states(rows, lengths).astype(np.int64))

    def templates(self) -> list[str]:
        """Templates that make good use of it: of the word and its neighbours, at each size."""
        cells = [f"{self.column}[{offset}]" for offset in AROUND]
        calls = [f"cluster(#, {size})" for size in sorted(self.clusters)]
        if self.brown is not None:
            longest = max(map(len, self.brown[1]), default=0)
            calls += [f"brown(#, {length})" for length in BROWN_LENGTHS if length < longest + 4]
        if self.state_model is not None:
            calls.append("state(#)")
        return [call.replace("#", cell) for call in calls for cell in cells]

    def coverage(self, words: Sequence[str]) -> float:
        """The share of words that are known themselves, and not by their spelling alone."""
        if not len(words):
            return 1.0
        rows = self.lexicon.rows(words)
        return float(((rows >= 0) & (rows < len(self.lexicon.words))).mean())

    def __repr__(self) -> str:
        parts = [f"{len(self.lexicon.words)} words"]
        if self.clusters:
            parts.append(f"clusters {', '.join(map(str, sorted(self.clusters)))}")
        if self.brown is not None:
            parts.append(f"Brown {len(self.brown[1])}")
        if self.state_model is not None:
            parts.append(f"{len(self.state_model.initial)} states")
        return f"<Representation: {'; '.join(parts)}>"

    def __deepcopy__(self, memo: Any) -> Representation:
        return self  # nothing in it changes: scikit-learn's clones share it

    # ------------------------------------------------------------------------------- storage

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that it holds: two with the same digest give the same features."""
        return _digest(*self.to_state())

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What JSON can hold, and named arrays."""
        normalisation, arrays = self.lexicon.to_state("lexicon")
        for size, clusters in self.clusters.items():
            arrays[f"clusters.{size}"] = clusters
        if self.brown is not None:
            arrays["brown.classes"] = self.brown[0]
            arrays |= StringTable(self.brown[1]).to_arrays("brown.paths")
        if self.state_model is not None:
            for name, family in vars(self.state_model).items():
                arrays[f"states.{name}"] = family
        meta = {
            "version": VERSION,
            "normalisation": normalisation,
            "sizes": sorted(self.clusters),
            "column": self.column,
            "about": dict(self.about),
        }
        return meta, arrays

    @classmethod
    def from_state(cls, meta: Any, arrays: Mapping[str, Any]) -> Representation:
        """The representation that `to_state` described; ValueError where it is not sound."""
        keys = {"version", "normalisation", "sizes", "column", "about"}
        if not isinstance(meta, Mapping) or set(meta) != keys:
            raise ValueError(f"representation: expected a dict of {sorted(keys)}, got {meta!r:.80}")
        if meta["version"] != VERSION:
            raise ValueError(
                f"representation, version: expected {VERSION}, the one that this jaxseq reads, "
                f"got {meta['version']!r:.80}"
            )
        if not isinstance(meta["column"], str) or not isinstance(meta["about"], Mapping):
            raise ValueError(
                f"representation: expected a column's name, got {meta['column']!r:.80}"
            )
        sizes = meta["sizes"]
        if not isinstance(sizes, list) or not all(type(size) is int for size in sizes):
            raise ValueError(f"representation, sizes: expected whole numbers, got {sizes!r:.80}")
        lexicon = Lexicon.from_state(meta["normalisation"], arrays, "lexicon")
        rows = len(lexicon)
        clusters = {
            size: _take(arrays, f"clusters.{size}", np.int32, (rows,), size) for size in sizes
        }
        brown = states = None
        if "brown.classes" in arrays:
            paths = tuple(StringTable.from_arrays(arrays, "brown.paths").strings)
            brown = _take(arrays, "brown.classes", np.int32, (rows,), len(paths)), paths
        if "states.initial" in arrays:
            size = np.size(arrays["states.initial"])
            shapes = {"initial": (size,), "transition": (size, size), "emission": (rows, size)}
            states = StateModel(
                **{
                    name: _take(arrays, f"states.{name}", np.float32, shape)
                    for name, shape in shapes.items()
                }
            )
        made = cls(lexicon, clusters, brown, states, meta["column"], meta["about"])
        extra = set(arrays) - set(made.to_state()[1])
        if extra:
            raise ValueError(f"representation: expected no other arrays, got {sorted(extra)}")
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, which appears complete or not at all; `load_representation`.

        The same representation gives the same bytes.
        """
        from safetensors.numpy import save as to_bytes

        meta, arrays = self.to_state()
        # One entry: safetensors writes several in another order each time.
        metadata = {FORMAT: _as_json({"sha256": self.digest, "about": meta})}
        with replacing(path) as temporary:
            in_rows = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
            temporary.write_bytes(to_bytes(in_rows, metadata))


def load_representation(path: str | os.PathLike[str]) -> Representation:
    """Read what `Representation.save` wrote; nothing in it is executed.

    Raises:
        ValueError: for a file that is cut off, changed, of another version or of another kind.

    Example:
        >>> import os, tempfile
        >>> from jaxseq.representations import learn_representation
        >>> words = learn_representation([["a", "b"]] * 5, sizes=(2,))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     words.save(os.path.join(folder, "words"))
        ...     load_representation(os.path.join(folder, "words")).digest == words.digest
        True
    """
    from safetensors import SafetensorError, safe_open

    if not os.path.isfile(path):
        raise ValueError(f"{os.fspath(path)}: expected a file of a representation, found none")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if FORMAT not in metadata:
            raise ValueError(f"expected a {FORMAT}, got another file of safetensors")
        entry = json.loads(metadata[FORMAT])
        sound = isinstance(entry, dict) and set(entry) == {"sha256", "about"}
        if not sound or _digest(entry["about"], arrays) != entry["sha256"]:
            raise ValueError("expected the contents that its checksum is of; they were changed")
        return Representation.from_state(entry["about"], arrays)
    except (SafetensorError, ValueError, RecursionError) as error:
        raise ValueError(f"{os.fspath(path)}: expected a sound representation: {error}") from error


def _as_json(meta: Any) -> str:
    return json.dumps(meta, sort_keys=True, ensure_ascii=False)


def _digest(meta: Any, arrays: Mapping[str, np.ndarray]) -> str:
    content = hashlib.sha256(_as_json(meta).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        content.update(f"{name} {array.dtype} {array.shape}".encode())
        content.update(array.tobytes())
    return content.hexdigest()


def _take(
    arrays: Mapping[str, Any],
    name: str,
    dtype: type[np.generic],
    shape: tuple[int, ...],
    below: int | None = None,
) -> np.ndarray:
    """An array of that dtype and shape; numbers of clusters in range, probabilities sound."""
    array = arrays.get(name)
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
        got = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else "none"
        raise ValueError(f"{name}: expected {np.dtype(dtype)} {shape}, got {got}")
    if below is not None and array.size and not -1 <= array.min() <= array.max() < below:
        raise ValueError(f"{name}: expected numbers from -1 to {below - 1}, got others")
    if below is None and not ((array > 0) & np.isfinite(array)).all():
        raise ValueError(f"{name}: expected finite numbers above 0, got others")
    return array
