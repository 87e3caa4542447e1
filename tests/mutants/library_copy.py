"""A second copy of the library with one snippet changed, beside the real one.

The copy is a package of its own, imported from the library's source text under another name. Its
modules see each other and not the originals, so a changed function reaches everything built on it,
and the real library, with all that JAX has cached for it, is never touched.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from unittest import mock

import jax

ORIGINAL = "jaxseq"
COPY = "jaxseq_under_test"
NATIVE = f"{ORIGINAL}.native"
OUT_OF_DATE = "the table of mutants is out of date"


def replace_in_function(module: str, function: str, before: str, after: str) -> str:
    """The module's source with `before` replaced by `after` inside one function.

    Args:
        module: such as ``jaxseq.lattice._entropy``.
        function: the name of a top-level function; ``f.defjvp`` means the derivative rule that is
            decorated with it.
        before: must occur in the function exactly once.
        after: what to put there.

    Raises:
        ValueError: when the function or the snippet is not there, or the result is not Python.
    """
    source = read_source(module)
    lines = source.splitlines(keepends=True)
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            if node.name == function or function in decorators:
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
                last = node.end_lineno
                break
    else:
        raise ValueError(f"{OUT_OF_DATE}: {module} has no function {function}")
    changed = _replace_once(f"{module}.{function}", "".join(lines[first:last]), before, after)
    changed = "".join([*lines[:first], changed, *lines[last:]])
    try:
        ast.parse(changed)
    except SyntaxError as error:
        raise ValueError(f"{module}.{function}: {after!r} is not Python: {error}") from error
    return changed


def replace_in_cpp(file: str, function: str, before: str, after: str) -> str:
    """As `replace_in_function`, for a function of a C++ source such as ``native/entropy.h``."""
    source = (_find(ORIGINAL).parent / file).read_text(encoding="utf-8")
    # clang-format puts a function's closing brace, and nothing else, at the start of a line.
    body = re.search(rf"^\S.*\b{re.escape(function)}\(.*?^}}$", source, re.M | re.S)
    if body is None:
        raise ValueError(f"{OUT_OF_DATE}: {file} has no {function}")
    changed = _replace_once(f"{file}, {function}", body[0], before, after)
    return source[: body.start()] + changed + source[body.end() :]


def _replace_once(place: str, text: str, before: str, after: str) -> str:
    if (count := text.count(before)) != 1:
        raise ValueError(
            f"{OUT_OF_DATE}: {place}: expected {before!r} exactly once, found it {count} times"
        )
    return text.replace(before, after)


def read_source(module: str) -> str:
    """The source text of a module of the library, such as ``jaxseq.lattice._entropy``."""
    return _find(module).read_text(encoding="utf-8")


def _find(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ValueError(f"{OUT_OF_DATE}: there is no module {module}")
    return Path(spec.origin)


@contextmanager
def library_copy(changed: Mapping[str, str] | None = None) -> Iterator[ModuleType]:
    """A fresh copy of the library for the length of a `with` block.

    Args:
        changed: source text by module name, or by the name of a C++ file such as
            ``native/entropy.h``, in place of its own.
    """
    with tempfile.TemporaryDirectory() as folder:
        finder = _CopyFinder(dict(changed or {}), Path(folder))
        # Wrong libraries do not belong among the right ones that the machine keeps.
        cache = {"JAXSEQ_CACHE_DIR": folder, "JAXSEQ_NATIVE": "compile"}
        cache = cache if finder.cpp_folder else {}
        sys.meta_path.insert(0, finder)
        try:
            with mock.patch.dict(os.environ, cache):
                yield importlib.import_module(COPY)
        finally:
            sys.meta_path.remove(finder)
            for name in [name for name in sys.modules if name.split(".")[0] == COPY]:
                del sys.modules[name]


class _CopyFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports ``jaxseq_under_test.x`` from the source text of ``jaxseq.x``."""

    def __init__(self, changed: dict[str, str], folder: Path):
        self.changed = changed
        in_cpp = {Path(name).name: text for name, text in changed.items() if "/" in name}
        self.cpp_folder = folder if in_cpp else None
        if in_cpp:
            for file in _find(NATIVE).parent.iterdir():
                if file.suffix in (".h", ".cc"):
                    text = in_cpp.get(file.name) or file.read_text(encoding="utf-8")
                    (folder / file.name).write_text(text, encoding="utf-8")

    def find_spec(self, fullname, path=None, target=None):
        if fullname.split(".")[0] != COPY:
            return None
        origin = _find(_original_name(fullname))
        return importlib.machinery.ModuleSpec(
            fullname, self, origin=str(origin), is_package=origin.name == "__init__.py"
        )

    def create_module(self, spec):
        return None  # an ordinary module

    def exec_module(self, module):
        name = _original_name(module.__name__)
        source, file = self.changed.get(name) or read_source(name), _find(name)
        if self.cpp_folder and name.startswith(NATIVE):
            # Whichever module of the package compiles, it looks for C++ beside itself.
            file = self.cpp_folder / file.name
        module.__file__ = str(file)
        # Only import statements: a docstring may speak of the library by its name.
        source = re.sub(rf"^(\s*(?:from|import)) {ORIGINAL}\b", rf"\1 {COPY}", source, flags=re.M)
        # And names of modules that are imported when they are needed: else the copy would put its
        # own classes into the registries of the library.
        source = re.sub(rf'"{ORIGINAL}\.([a-z_.]+)"', rf'"{COPY}.\1"', source)
        exec(compile(source, f"<copy of {name}>", "exec"), module.__dict__)


def _original_name(copied: str) -> str:
    return ORIGINAL + copied.removeprefix(COPY)


@contextmanager
def recorded_kernels() -> Iterator[set[str]]:
    """The C++ kernels that run inside the block, and are not only traced, by their FFI targets.

    A target has a checksum of the C++ sources in its name, so it says which version has run. This
    matters: a kernel that cannot be had makes the library fall back to XLA without a word, and a
    copy that finds the wrong folder compiles the sources that nobody has changed. Either way a
    mutant would give the right answers without having been tried.
    """
    targets: set[str] = set()
    ffi_call = jax.ffi.ffi_call

    def recording_call(target, *args, **options):
        call = ffi_call(target, *args, **options)

        def run(*arrays, **attributes):
            if not any(isinstance(array, jax.core.Tracer) for array in arrays):
                targets.add(target)
            return call(*arrays, **attributes)

        return run

    with mock.patch.object(jax.ffi, "ffi_call", recording_call):
        yield targets
