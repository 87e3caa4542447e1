"""A second copy of the library with one line changed, beside the real one.

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
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

ORIGINAL = "jaxseq"
COPY = "jaxseq_under_test"


def read_source(module: str) -> str:
    """The source text of a module of the library, such as ``jaxseq.chain._entropy``."""
    return Path(_origin(module)).read_text(encoding="utf-8")


def replace_in_function(module: str, function: str, before: str, after: str) -> str:
    """The module's source with `before` replaced by `after` inside one function.

    Args:
        module: such as ``jaxseq.chain._entropy``.
        function: the name of a top-level function; ``f.defjvp`` means the derivative rule that is
            decorated with it.
        before: must occur in the function exactly once.
        after: what to put there.

    Raises:
        ValueError: when the function or the snippet is not there, or the result is not Python.
    """
    source = read_source(module)
    first, last = _lines_of(source, module, function)
    lines = source.splitlines(keepends=True)
    text = "".join(lines[first:last])
    if (count := text.count(before)) != 1:
        raise ValueError(
            f"the table of mutants is out of date: {module}.{function}: "
            f"expected {before!r} exactly once, found it {count} times"
        )
    changed = "".join(lines[:first]) + text.replace(before, after) + "".join(lines[last:])
    try:
        ast.parse(changed)
    except SyntaxError as error:
        raise ValueError(f"{module}.{function}: {after!r} is not Python: {error}") from error
    return changed


def replace_in_cpp(file: str, function: str, before: str, after: str) -> str:
    """As `replace_in_function`, for a function of a C++ source such as ``native/entropy.h``."""
    source = (Path(_origin(ORIGINAL)).parent / file).read_text(encoding="utf-8")
    found = re.search(rf"^\S.*\b{re.escape(function)}\(.*?^}}$", source, re.M | re.S)
    if found is None:
        raise ValueError(f"the table of mutants is out of date: {file} has no {function}")
    if (count := found[0].count(before)) != 1:
        raise ValueError(
            f"the table of mutants is out of date: {file}, {function}: "
            f"expected {before!r} exactly once, found it {count} times"
        )
    changed = found[0].replace(before, after)
    return source[: found.start()] + changed + source[found.end() :]


def _lines_of(source: str, module: str, function: str) -> tuple[int, int]:
    """First and one past the last line of a top-level function, decorators included."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            if node.name == function or function in decorators:
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                return first - 1, node.end_lineno or node.lineno
    raise ValueError(f"the table of mutants is out of date: {module} has no function {function}")


@contextmanager
def library_copy(changed: Mapping[str, str] | None = None) -> Iterator[ModuleType]:
    """A fresh copy of the library for the length of a `with` block.

    Args:
        changed: source text by module name, or by the name of a C++ file such as
            ``native/entropy.h``, in place of its own.
    """
    finder = _CopyFinder(dict(changed or {}))
    sys.meta_path.insert(0, finder)
    try:
        with tempfile.TemporaryDirectory() as folder:
            finder.lay_cpp_sources(Path(folder))
            yield importlib.import_module(COPY)
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.split(".")[0] == COPY]:
            del sys.modules[name]


class _CopyFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports ``jaxseq_under_test.x`` from the source text of ``jaxseq.x``."""

    def __init__(self, changed: dict[str, str]):
        self.changed = changed
        self.cpp_folder: Path | None = None

    def lay_cpp_sources(self, folder: Path) -> None:
        """Copies of the C++ sources, where one is changed."""
        wrong = {Path(name).name: text for name, text in self.changed.items() if "/" in name}
        if not wrong:
            return
        self.cpp_folder = folder
        for file in Path(_origin(f"{ORIGINAL}.native")).parent.iterdir():
            if file.suffix not in (".h", ".cc"):
                continue
            text = wrong.get(file.name) or file.read_text(encoding="utf-8")
            (folder / file.name).write_text(text, encoding="utf-8")

    def find_spec(self, fullname, path=None, target=None):
        if fullname.split(".")[0] != COPY:
            return None
        origin = _origin(_original_name(fullname))
        is_package = Path(origin).name == "__init__.py"
        return importlib.machinery.ModuleSpec(fullname, self, origin=origin, is_package=is_package)

    def create_module(self, spec):
        return None  # an ordinary module

    def exec_module(self, module):
        name = _original_name(module.__name__)
        module.__file__ = _origin(name)
        if self.cpp_folder and name == f"{ORIGINAL}.native._build":  # C++ sources lie beside it
            module.__file__ = str(self.cpp_folder / "_build.py")
        source = self.changed.get(name) or read_source(name)
        # Only import statements: a docstring may speak of the library by its name.
        source = re.sub(rf"^(\s*(?:from|import)) {ORIGINAL}\b", rf"\1 {COPY}", source, flags=re.M)
        exec(compile(source, f"<copy of {name}>", "exec"), module.__dict__)
        if self.cpp_folder and name == f"{ORIGINAL}.native._build":
            folder = self.cpp_folder  # nor do wrong libraries belong among the right ones
            flags = [flag.replace("-O3", "-O1") for flag in vars(module)["FLAGS"]]  # for once
            vars(module).update(_folders=lambda: [folder], FLAGS=tuple(flags))


def _original_name(copied: str) -> str:
    return ORIGINAL + copied.removeprefix(COPY)


def _origin(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ValueError(f"the table of mutants is out of date: there is no module {module}")
    return spec.origin
