"""Damage to files: to bytes, to lines, and to JSON whose checksums are then made right again."""

from __future__ import annotations

import hashlib
import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

ODD_TEXTS = (
    "", " ", "\t", "\n", "\r\n", "\0", "-", "--", "#", "=", "[", "]]", "{", '"', "'", "\\", "%s",
    "é", "\u2028", "\ufeff", "\U0001f40c", "ß", "-DOCSTART-", "-X-", "O", "B-", "I-NP", "B-NP",
    "nan", "inf", "-1", "1e999", "99999999999999999999", "null", "../x", "word[0]", "label[0]",
    "%x[0,0]", "word[99999999]", "X" * 500,
)  # fmt: skip
ODD_BYTES = (
    b"\xff", b"\x80", b"\xef\xbb\xbf", b"\0" * 9, b"\x1f\x8b", b"PK\x03\x04", b"\xed\xa0\x80",
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3.5, 1e308, 2**31, 2**63, 10**30, float("nan"), float("inf"),
    "", "x", "O", [], [[]], {}, {"a": 1}, ["O"], [None], "é\ud800",
)  # fmt: skip


def damage(data: bytes, rng: random.Random) -> bytes:
    """A few changes of bytes or of lines."""
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        place = rng.randrange(len(data) + 1)
        end = min(len(data), place + rng.choice((1, 2, 10, 100)))
        lines = data.split(b"\n")
        one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        kind = rng.randrange(9)
        if kind == 0:
            data = data[:place]
        elif kind == 1:
            data = data[:place] + data[end:]
        elif kind == 2:
            data = data[:place] + data[place:end] * rng.choice((2, 3, 50)) + data[end:]
        elif kind == 3 and data:
            place = rng.randrange(len(data))
            data = data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]
        elif kind == 4:
            data = data[:place] + rng.choice(ODD_BYTES) + data[place:]
        elif kind == 5:
            odd = rng.choice(ODD_TEXTS).encode("utf-8", "surrogatepass")
            data = data[:place] + odd + data[place:]
        elif kind == 6:
            lines[one], lines[other] = lines[other], lines[one]
            data = b"\n".join(lines)
        elif kind == 7:
            cells = lines[one].split(b" ")
            cells[rng.randrange(len(cells))] = rng.choice(ODD_TEXTS).encode()
            lines[one] = b" ".join(cells)
            data = b"\n".join(lines)
        elif kind == 8:
            data = b"\n".join([*lines[:one], *lines[one + 1 :]])
    return data


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a JSON value, with every key of it."""
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    places = [(value, key) for key in keys]
    for _, key in list(places):
        if isinstance(value[key], dict | list):
            places += _places(value[key])
    return places


def disturb(value: Any, rng: random.Random) -> Any:
    """Other values, or none, at one or two places of a JSON value, which is changed itself."""
    for _ in range(rng.choice((1, 1, 2))):
        places = _places(value) if isinstance(value, dict | list) else []
        if not places or rng.random() < 0.02:
            return rng.choice(ODD_VALUES)
        holder, key = rng.choice(places)
        kind = rng.randrange(5)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, list):
            holder.insert(key, rng.choice([*ODD_VALUES, holder[key]]))
        elif kind == 2 and isinstance(holder, dict):
            holder[rng.choice(("x", "name", "kind"))] = holder.pop(key)
        elif kind == 3 and isinstance(holder[key], str):
            holder[key] += rng.choice(ODD_TEXTS)
        else:
            holder[key] = rng.choice(ODD_VALUES)
    return value


def digest_of_json(body: dict[str, Any], **how: Any) -> str:
    """As models and shards have it: of everything but the checksum."""
    checked = {name: value for name, value in body.items() if name != "checksum"}
    text = json.dumps(checked, sort_keys=True, **how)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), "utf-8")


def forge_model(folder: Path, rng: random.Random) -> None:
    """Other settings or arrays in a model, with checksums that are right."""
    about = json.loads((folder / "model.json").read_text("utf-8"))
    if rng.random() < 0.4:
        data = forge_arrays((folder / "model.safetensors").read_bytes(), rng)
        (folder / "model.safetensors").write_bytes(data)
        about["arrays"]["sha256"] = hashlib.sha256(data).hexdigest()
    else:
        about = disturb(about, rng)
    if isinstance(about, dict):
        about["checksum"] = digest_of_json(about, ensure_ascii=False)
    write_json(folder / "model.json", about)


def forge_arrays(data: bytes, rng: random.Random) -> bytes:
    """Another shape, type, value or name of one array of safetensors; the metadata are kept."""
    try:
        arrays = dict(load(data))
    except SafetensorError:
        return data
    length = int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8 : 8 + length]).get("__metadata__")
    name = rng.choice(sorted(arrays))
    array = arrays[name].copy()
    kind = rng.randrange(6)
    if kind == 0:
        del arrays[name]
    elif kind == 1:
        arrays["other"] = arrays.pop(name)
    elif kind == 2:
        arrays[name] = array.reshape(-1)[: array.size // 2]
    elif kind == 3:
        arrays[name] = array.astype(rng.choice(("float64", "int8", "uint8", "float16", "bool")))
    elif kind == 4:
        arrays[name] = array[None]
    elif array.size:
        limits = np.iinfo(array.dtype) if array.dtype.kind in "iu" else np.finfo(np.float32)
        odd = [limits.min, limits.max, 0]
        odd += [float("nan"), float("-inf")] if array.dtype.kind == "f" else []
        array.reshape(-1)[rng.randrange(array.size)] = rng.choice(odd)
        arrays[name] = array
    return save(arrays, metadata)


def forge_shards(folder: Path, rng: random.Random) -> None:
    """Other arrays or counts in a folder of shards, with checksums that are right."""
    body = json.loads((folder / "index.json").read_text("utf-8"))
    if rng.random() < 0.5:
        entry = rng.choice(body["shards"])
        data = forge_arrays((folder / entry["file"]).read_bytes(), rng)
        (folder / entry["file"]).write_bytes(data)
        entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    else:
        body = disturb(body, rng)
    if isinstance(body, dict):
        body["checksum"] = digest_of_json(body)
    write_json(folder / "index.json", body)


def forge_run(folder: Path, rng: random.Random) -> None:
    """Odd values in the database of a run of active learning, or in its header."""
    with closing(sqlite3.connect(folder / "run.sqlite", isolation_level=None)) as database:
        kind = rng.randrange(8)
        if kind == 0:
            name = rng.choice(("application_id", "user_version"))
            database.execute(f"PRAGMA {name} = {rng.choice((0, 1, 2, -1))}")
        elif kind == 1:
            database.execute(f"DROP TABLE {rng.choice(('settings', 'events'))}")
        elif kind == 2:
            table = rng.choice(("settings", "events"))
            database.execute(f"DELETE FROM {table} WHERE rowid = 1 + abs(random()) % 3")
        elif kind == 3:
            database.execute("UPDATE events SET number = 9 - number")
        else:
            table = rng.choice(("settings", "events"))
            rows = database.execute(f"SELECT rowid, text FROM {table}").fetchall()
            number, text = rng.choice(rows)
            changed = json.dumps(disturb(json.loads(text), rng))
            if rng.random() < 0.1:
                changed = rng.choice((b"\xff", 3, 2.5, "", "{", "[" * 50_000))
            database.execute(f"UPDATE {table} SET text = ? WHERE rowid = ?", (changed, number))
