"""The public interface: every name behind a door of the house, with its signature.

A change here is a change for users. When it is meant, write it into CHANGELOG.md and renew the
snapshot with ``python -m tests.test_api``.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
from enum import Enum
from pathlib import Path
from types import ModuleType

import jaxseq

SNAPSHOT = Path(__file__).with_name("api.json")


def public_modules() -> list[str]:
    """jaxseq and its packages and modules whose names have no underscore."""
    names = [info.name for info in pkgutil.walk_packages(jaxseq.__path__, "jaxseq.")]
    public = (name for name in names if not any(part[0] == "_" for part in name.split(".")))
    return ["jaxseq", *sorted(public)]


def _signature(value: object) -> str:
    """The parameters with their defaults; annotations print differently across versions."""
    try:
        signature = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    plain = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]
    text = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    # Neither addresses nor the folder of this checkout are part of the interface.
    return re.sub(r" at 0x[0-9a-f]+| from '[^']*'", "", text)


def describe(value: object) -> str | dict[str, str]:
    """A signature; of a class, that of each public method as well."""
    if not inspect.isclass(value):
        return _signature(value) if callable(value) else type(value).__name__
    # How an enum is called is Python's own, and differs across its versions.
    members = {"()": "" if issubclass(value, Enum) else _signature(value)}
    for name, member in sorted(vars(value).items()):
        if not name.startswith("_"):
            plain = getattr(member, "__func__", member)
            members[name] = _signature(plain) if callable(plain) else "attribute"
    return members


def interface() -> dict[str, dict[str, str | dict[str, str]]]:
    """What `api.json` holds."""
    doors = {}
    for module_name in public_modules():
        module = importlib.import_module(module_name)
        offered = getattr(module, "__all__", dir(module))
        names = [name for name in offered if not name.startswith("_")]
        values = {name: getattr(module, name) for name in names}
        doors[module_name] = {
            name: describe(value)
            for name, value in sorted(values.items())
            if not isinstance(value, ModuleType)
        }
    return doors


def test_the_public_interface_is_as_recorded():
    recorded = json.loads(SNAPSHOT.read_text())
    assert json.loads(json.dumps(interface())) == recorded


if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps(interface(), indent=1, ensure_ascii=False) + "\n")
