"""Names of a package that are loaded on first use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package (PEP 562).

    Args:
        package: its name, ``__name__``.
        modules: the module that each name is taken from. A module whose last part is the name is
            itself the value.

    Example:
        >>> get, _ = lazy_names("collections", {"log2": "math"})
        >>> get("log2")(8)
        3.0
    """

    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(modules[name])
        return module if modules[name].endswith(f".{name}") else getattr(module, name)

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return __getattr__, __dir__
