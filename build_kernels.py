"""A hook of hatchling's: wheels bring the compiled kernels, so that users need no compiler."""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SWITCH = "JAXSEQ_BUILD_KERNELS"
"""Variable: 0 builds a wheel without kernels; 1 fails where they cannot be compiled. By default,
what cannot be compiled is left out, so that jaxseq can be installed from source everywhere."""
NATIVE = Path("jaxseq", "native")


class KernelsHook(BuildHookInterface):
    """Compiles the kernels into a temporary folder, from which the wheel takes them."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        switch = os.environ.get(SWITCH)
        # An editable installation is a checkout, which compiles what it uses for its own processor.
        if version == "editable" or switch == "0":
            return
        compiler = _load_compiler(Path(self.root))
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        # The architectures that tools for macOS ask for.
        flags = shlex.split(os.environ.get("ARCHFLAGS", "")) if sys.platform == "darwin" else []
        try:
            compiler.compile_bundle(folder, tuple(flags))
        except compiler.CannotBuild as error:
            if switch == "1":
                raise
            self.app.display_warning(f"The wheel has no kernels in C++: {error}")
            return
        for file in sorted(folder.rglob("*.so")):
            place = NATIVE / "bundled" / file.relative_to(folder)
            build_data["force_include"][str(file)] = place.as_posix()
        # For one platform, but for any Python: nothing in them knows of Python, or of a version of
        # JAX.
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform_tag()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if folder := getattr(self, "_folder", None):
            folder.cleanup()


def _load_compiler(root: Path) -> Any:
    # By its path: importing jaxseq would need JAX, which is not there when a wheel is built.
    spec = importlib.util.spec_from_file_location("_compiler", root / NATIVE / "_compiler.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _platform_tag() -> str:
    # A Python for two architectures compiles for the one it runs on, unless told otherwise.
    name = sysconfig.get_platform().replace("universal2", platform.machine())
    return name.replace("-", "_").replace(".", "_")
