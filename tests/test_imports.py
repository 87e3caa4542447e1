"""Importing jaxseq is quick and changes nothing.

That imports inside it go one way, and through the packages' doors, is for import-linter to say: its
contracts are in pyproject.toml.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "jaxseq"
FILES = sorted(PACKAGE.rglob("*.py"))
NAMES = [str(path.relative_to(PACKAGE)) for path in FILES]

SECONDS = 2.0


def _run(script: str) -> str:
    """The output of a fresh interpreter, with none of the suite's settings."""
    env = {name: os.environ[name] for name in os.environ if not name.startswith(("JAX_", "XLA_"))}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, env=env, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def test_import_changes_no_setting_of_jax():
    script = """
import json, jax
read = lambda: {name: repr(value) for name, value in jax.config.values.items()}
before = read()
import jaxseq
print(json.dumps([before, read()]))
"""
    before, after = json.loads(_run(script))
    assert len(before) > 50
    assert before == after


def test_import_takes_less_than_two_seconds_more_than_jax():
    script = """
import time, jax
start = time.perf_counter()
import jaxseq
print(time.perf_counter() - start)
"""
    seconds = []
    for _ in range(6):  # the machine may be busy; one quick run is proof
        seconds.append(float(_run(script)))
        if len(seconds) >= 3 and min(seconds) < SECONDS:
            break
    assert min(seconds) < SECONDS, seconds


@pytest.mark.parametrize(
    "command", ["active", "active start", "train", "train crf", "tag", "shard"]
)
def test_help_of_a_command_needs_no_jax(command):
    script = f"""
import contextlib, sys
from jaxseq.cli import main
with contextlib.suppress(SystemExit):
    main([*{command!r}.split(), "--help"])
print("jax" in sys.modules)
"""
    assert _run(script).splitlines()[-1] == "False"


# --------------------------------------------------------------------------- from the source


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def _imports(path: Path) -> set[str]:
    """Dotted names of everything that a file imports, also inside functions."""
    inside = ["jaxseq", *path.relative_to(PACKAGE).parts[:-1]]
    found = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = inside[: len(inside) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def test_the_reader_of_imports_reads():
    """It sees what it has to forbid."""
    assert "jaxtyping.Array" in _imports(PACKAGE / "lattice" / "_marginals.py")


def test_the_oracle_stands_alone():
    """NumPy and the standard library, so that agreement with it means something."""
    roots = {name.split(".")[0] for name in _imports(PACKAGE / "verify" / "_oracle.py")}
    assert roots - set(sys.stdlib_module_names) <= {"numpy"}
    assert "numpy" in roots


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_no_private_jax(path):
    assert not {name for name in _imports(path) if name.startswith("jax._src")}
    dotted = {_dotted(node) for node in ast.walk(_tree(path)) if isinstance(node, ast.Attribute)}
    assert not {name for name in dotted if "._src" in name}


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_no_nan_to_num(path):
    names = {node.attr for node in ast.walk(_tree(path)) if isinstance(node, ast.Attribute)}
    names |= {name.split(".")[-1] for name in _imports(path)}
    assert "nan_to_num" not in names


OF_JOINING = {"jax_enable_preemption_service"}
"""A setting of the service that connects processes: to join them is to choose it."""


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_settings_of_jax_are_left_alone(path):
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Call):
            named = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            if OF_JOINING.intersection(named) and path.name == "_peers.py":
                continue
            assert not _dotted(node.func).endswith("config.update"), f"line {node.lineno}"
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            for target in targets:
                assert "config." not in f"{_dotted(target)}", f"line {node.lineno}"


def _dotted(node: ast.AST | None) -> str:
    """``a.b.c`` of an attribute of an attribute of a name."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
