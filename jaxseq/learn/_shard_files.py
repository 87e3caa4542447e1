"""Featurised parts of a corpus on disk, and the index of them. Nothing in them is executed.

A folder holds ``index.json``, ``vocabulary.safetensors`` and one safetensors file for each part.
The index has the counts, the size and the SHA-256 of every file, and the digest of the vocabulary,
which is also written into each part: a part that is cut off, changed, missing or of another
vocabulary is noticed before it is used.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxseq.text import FeatureExtractor, extractor_from_state

FORMAT, VERSION = "jaxseq shards", 1
INDEX, VOCABULARY = "index.json", "vocabulary.safetensors"
DTYPES = {"I32": np.int32, "I64": np.int64, "F32": np.float32, "BOOL": np.bool_, "U8": np.uint8}


@dataclass(frozen=True)
class ShardFile:
    """One part: its file, and what is in it. rows: packed rows of the index's width."""

    file: str
    sentences: int
    tokens: int
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class ShardIndex:
    """What there is to know of a corpus on disk without reading it.

    classes: the labels. attributes, edge_attributes: how many there are. columns: attributes of a
    token, at most. longest: tokens of a sentence, at most; width: slots of a packed row. weighted,
    partial: whether any part has values of attributes, or labels that are not known for sure.
    features: the extractor's description. vocabulary: the digest of it.
    """

    classes: list[str]
    attributes: int
    edge_attributes: int
    columns: int
    longest: int
    width: int
    weighted: bool
    partial: bool
    features: dict[str, Any]
    vocabulary: str
    vocabulary_sha256: str
    shards: list[ShardFile]

    @property
    def sentences(self) -> int:
        """Of all parts."""
        return sum(shard.sentences for shard in self.shards)

    @property
    def tokens(self) -> int:
        """Of all parts."""
        return sum(shard.tokens for shard in self.shards)

    @property
    def rows(self) -> int:
        """Of all parts."""
        return sum(shard.rows for shard in self.shards)


def digest_of(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Says which vocabulary this is, from an extractor's state."""
    digest = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(name.encode() + b"\0")
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


# ---------------------------------------------------------------------------------- writing


def to_bytes(arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> bytes:
    """Arrays as safetensors."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(a) for name, a in arrays.items()}, metadata)


def write_index(folder: Path, index: ShardIndex) -> None:
    """Last of all files, so that a folder with an index is complete."""
    body = {"format": FORMAT, "version": VERSION, **asdict(index)}
    body["checksum"] = _checksum(body)
    text = json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    (folder / INDEX).write_text(text + "\n", encoding="utf-8")


def _checksum(body: dict[str, Any]) -> str:
    rest = {name: value for name, value in body.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


# ---------------------------------------------------------------------------------- reading


def read_index(folder: Path) -> ShardIndex:
    """The index of a folder; ValueError for what is none."""
    where = folder / INDEX
    if not where.is_file():
        raise ValueError(f"{where}: expected the index of a corpus of shards, there is none")
    try:
        body = json.loads(where.read_bytes())
        sound = body["format"] == FORMAT and body["checksum"] == _checksum(body)
        version = body["version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{where}: expected {FORMAT}, got {error!r:.80}") from error
    if not sound:
        raise ValueError(f"{where}: expected the text that its checksum is of; it was changed")
    if version != VERSION:
        raise ValueError(f"{where}: expected version {VERSION}, got {version!r}")
    names = set(ShardIndex.__dataclass_fields__)
    fields = {name: value for name, value in body.items() if name in names}
    fields["shards"] = [ShardFile(**shard) for shard in body["shards"]]
    return ShardIndex(**fields)


def read_extractor(folder: Path, index: ShardIndex) -> FeatureExtractor:
    """The extractor that the corpus was featurised by."""
    where = folder / VOCABULARY
    if not where.is_file():
        raise ValueError(f"{where}: expected the vocabulary of the shards, there is none")
    check_digest(where, index.vocabulary_sha256)
    plain = {name: np.array(array) for name, array in map_arrays(where).items()}
    if digest_of(index.features, plain) != index.vocabulary:
        raise ValueError(f"{where}: expected the vocabulary of the index, got another")
    return extractor_from_state(index.features, plain)


def check_digest(where: Path, sha256: str) -> None:
    """ValueError unless a file has the content that the index says."""
    with open(where, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(f"{where}: expected the file that {INDEX} describes; it was changed")


def check_shard(folder: Path, index: ShardIndex, shard: ShardFile) -> Path:
    """The path of a part's file; ValueError where it is missing, another's or cut off."""
    where = folder / shard.file
    if not where.is_file():
        raise ValueError(f"{where}: expected a shard of the corpus there, found none")
    size = where.stat().st_size
    try:
        vocabulary = _read_header(where, size)[0].get("__metadata__", {}).get("vocabulary")
    except ValueError:
        vocabulary = index.vocabulary  # there is no telling; the size will be another
    if vocabulary != index.vocabulary:
        raise ValueError(
            f"{where}: expected a shard of the vocabulary {index.vocabulary[:12]}…, got one of "
            f"another, {str(vocabulary)[:12]}…"
        )
    if size != shard.bytes:
        raise ValueError(f"{where}: expected {shard.bytes} bytes, got {size}: it was cut off")
    return where


def map_shard(folder: Path, index: ShardIndex, shard: ShardFile) -> dict[str, np.ndarray]:
    """The arrays of a part, mapped; ValueError where they are not those of the index."""
    where = check_shard(folder, index, shard)
    arrays = map_arrays(where)
    shapes = {"ids": shard.tokens, "gold": shard.tokens, "lengths": shard.sentences}
    for name, length in shapes.items():
        if name not in arrays or len(arrays[name]) != length:
            raise ValueError(f"{where}: {name}: expected {length} rows, got another number")
    return arrays


def map_arrays(where: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, mapped: a page is read when it is looked at."""
    size = where.stat().st_size
    header, start = _read_header(where, size)
    header.pop("__metadata__", None)
    try:
        return {name: _map(where, size, start, entry) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{where}: expected safetensors, got {error!r:.100}") from error


def _read_header(where: Path, size: int) -> tuple[dict[str, Any], int]:
    """What a safetensors file says of itself, and where its arrays begin."""
    with open(where, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        text = file.read(length) if length <= size else b""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: expected safetensors, got {error!r:.100}") from error
    if not isinstance(header, dict):
        raise ValueError(f"{where}: expected safetensors, got {header!r:.60}")
    return header, 8 + length


def _map(where: Path, size: int, start: int, entry: dict[str, Any]) -> np.ndarray:
    dtype, shape = np.dtype(DTYPES[entry["dtype"]]), tuple(entry["shape"])
    first, end = entry["data_offsets"]
    if end - first != math.prod(shape) * dtype.itemsize or start + end > size:
        raise ValueError("arrays that reach beyond the end of the file")
    if first == end:
        return np.zeros(shape, dtype)
    return np.memmap(where, dtype, "r", start + first, shape)
