"""Configurations of papers: ``config.toml``, presets and seeds."""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PRESETS = ("smoke", "default", "paper")
"""Those of every paper."""
MORE_PRESETS = ("overnight",)
"""Those of papers that have a table for them."""
ALL_PRESETS = (*PRESETS, *MORE_PRESETS)
SEEDS = "seeds"

Values = dict[str, Any]


def read_config(path: Path, preset: str, schema: type) -> tuple[Any, tuple[int, ...]]:
    """A preset's configuration and seeds.

    Args:
        path: ``config.toml`` of a paper: a table ``[default]`` with all keys, and tables
            ``[preset.smoke]``, ``[preset.paper]`` and perhaps ``[preset.overnight]`` with those
            that differ.
        preset: one of `ALL_PRESETS`.
        schema: the dataclass to build.

    Returns:
        The configuration, and the seeds of the key ``seeds`` (0 alone if it is not there).

    Raises:
        ValueError: with the file and the key, for whatever is not as above, in any preset.
    """
    if preset not in ALL_PRESETS:
        raise ValueError(f"preset: expected one of {', '.join(ALL_PRESETS)}, got {preset!r}")
    tables = _read_tables(path)
    if preset in MORE_PRESETS and preset not in tables:
        raise ValueError(f"{path}: expected a table preset.{preset}, found none")
    known = {field.name for field in dataclasses.fields(schema)} | {SEEDS}
    # Every preset is checked, not only this one: a slip in "paper" would show after days.
    for name, table in tables.items():
        for key in table:
            if key not in known:
                place = f"{path}: {'' if name == 'default' else 'preset.'}{name}.{key}"
                raise ValueError(f"{place}: expected one of {', '.join(sorted(known))}")
    values = tables["default"] | tables.get(preset, {})  # a preset replaces single keys
    seeds = as_seeds(values.pop(SEEDS, 1), f"{path}: {SEEDS}")
    return build_config(schema, values, str(path)), seeds


def build_config(schema: type, values: Mapping[str, Any], place: str) -> Any:
    """The dataclass with these values, whose types are checked.

    Args:
        schema: a dataclass; checked are bool, int, float (which takes an int), str, literals,
            unions, and tuples, lists and dicts of these.
        values: for each field that has no default, and perhaps for others.
        place: where the values are from, for the messages.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Config:
        ...     l2: float
        ...     sizes: tuple[int, ...] = (1, 2)
        >>> build_config(Config, {"l2": 1, "sizes": [4]}, "config.toml")
        Config(l2=1.0, sizes=(4,))
        >>> build_config(Config, {"l2": "much"}, "config.toml")
        Traceback (most recent call last):
        ValueError: config.toml: l2: expected float, got 'much'
    """
    hints = typing.get_type_hints(schema)
    fields = {field.name: field for field in dataclasses.fields(schema) if field.init}
    for key in values:
        if key not in fields:
            raise ValueError(f"{place}: {key}: expected one of {', '.join(sorted(fields))}")
    for name, field in fields.items():
        unset = field.default is dataclasses.MISSING
        if name not in values and unset and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{place}: expected a key {name}, found none")
    checked = {key: _checked(hints[key], values[key], f"{place}: {key}") for key in values}
    try:
        return schema(**checked)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def as_seeds(value: object, place: str) -> tuple[int, ...]:
    """Seeds from a count or a list; as text (of the command line) a list has commas.

    Example:
        >>> as_seeds(3, "seeds"), as_seeds("3", "--seeds"), as_seeds("7,5", "--seeds")
        ((0, 1, 2), (0, 1, 2), (7, 5))
        >>> as_seeds("7,", "--seeds"), as_seeds([7], "seeds")
        ((7,), (7,))
    """
    wrong = ValueError(
        f"{place}: expected a count of at least 1, or different seeds of at least 0, got {value!r}"
    )
    if isinstance(value, str):
        parts = value.strip().removesuffix(",").split(",")
        if not all(part.strip().isascii() and part.strip().isdecimal() for part in parts):
            raise wrong
        numbers = [int(part) for part in parts]
        value = numbers if "," in value else numbers[0]
    # True is an int as well, and would be one seed.
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return tuple(range(value))
    if not isinstance(value, list) or not value:
        raise wrong
    if not all(type(seed) is int and seed >= 0 for seed in value) or len({*value}) < len(value):
        raise wrong
    return tuple(value)


def _read_tables(path: Path) -> dict[str, Values]:
    """``default``, and the presets that are there."""
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except FileNotFoundError:
        raise ValueError(f"{path}: expected this file, found none") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected TOML: {error}") from None
    for key in content:
        if key not in ("default", "preset"):
            raise ValueError(f"{path}: {key}: expected the tables default and preset only")
    presets = content.get("preset", {})
    tables = {"default": content.get("default"), **(presets if isinstance(presets, dict) else {})}
    for name, table in tables.items():
        if name not in ALL_PRESETS or (name == "default" and "default" in presets):
            raise ValueError(f"{path}: preset.{name}: expected preset.smoke and preset.paper only")
        if not isinstance(table, dict):
            raise ValueError(f"{path}: {name}: expected a table, got {table!r}")
    return tables


def _checked(hint: Any, value: Any, place: str) -> Any:
    """The value as the type wants it; a type that is not known takes what comes."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    wrong = ValueError(f"{place}: expected {getattr(hint, '__name__', hint)}, got {value!r}")
    if origin in (typing.Union, types.UnionType):
        for one in arguments:  # the first that fits, in the order of the annotation
            try:
                return _checked(one, value, place)
            except ValueError:
                continue
        raise ValueError(f"{place}: expected {hint}, got {value!r}")
    if origin is typing.Literal:
        if value not in arguments:
            one_of = ", ".join(map(repr, arguments))
            raise ValueError(f"{place}: expected one of {one_of}, got {value!r}")
        return value
    if origin in (tuple, list) or hint in (tuple, list):
        return _checked_list(hint, value, place)
    if origin is dict:
        if not isinstance(value, dict):
            raise wrong
        return {key: _checked(arguments[1], one, f"{place}.{key}") for key, one in value.items()}
    if hint is float and type(value) is int:  # TOML writes 1 where 1.0 is meant
        return float(value)
    if hint in (bool, int, float, str, types.NoneType) and type(value) is not hint:
        raise wrong
    return value


def _checked_list(hint: Any, value: Any, place: str) -> Any:
    """A list of TOML as a tuple or a list."""
    make, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{place}: expected a list, got {value!r}")
    if make is tuple and arguments and arguments[-1] is not Ellipsis:
        if len(value) != len(arguments):
            raise ValueError(f"{place}: expected {len(arguments)} values, got {value!r}")
        each = arguments
    else:
        each = [arguments[0] if arguments else Any] * len(value)
    return make(
        _checked(one, item, f"{place}[{i}]") for i, (one, item) in enumerate(zip(each, value))
    )
