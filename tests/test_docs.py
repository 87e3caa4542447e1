"""Every public name is documented with an example, and every example is true."""

import inspect
import operator
import subprocess
import sys
from typing import get_origin

import pytest

import jaxseq
from tests.processes import ROOT, environment


def _public(module) -> list[str]:
    """Dotted names of the functions and classes that a module offers, those loaded late too."""
    offered = getattr(module, "__all__", dir(module))
    names = (name for name in offered if not name.startswith("_"))
    found = {name: getattr(module, name) for name in names}
    prefix = module.__name__.removeprefix("jaxseq").removeprefix(".")
    return sorted(
        f"{prefix}.{name}".removeprefix(".")
        for name, value in found.items()
        if callable(value) and not inspect.ismodule(value) and get_origin(value) is None
    )


PUBLIC = [
    *_public(jaxseq),
    *_public(jaxseq.text),
    *_public(jaxseq.metrics),
    *_public(jaxseq.constraints),
]

# A process of its own: the examples show float32, which is JAX's default and not the suite's.
RUN_EXAMPLES = """
import doctest, gc, importlib, pkgutil, sys
gc.set_threshold(200_000, 20, 20)  # as in the suite: tracing makes many objects that live
import jaxseq
names = ["jaxseq", *(m.name for m in pkgutil.walk_packages(jaxseq.__path__, "jaxseq."))]
rooms = sys.argv[1:]
tried = failed = 0
for name in names:
    room = ([*name.split("."), ""])[1]
    if not name.endswith("__main__") and room in rooms:
        result = doctest.testmod(importlib.import_module(name))
        tried, failed = tried + result.attempted, failed + result.failed
print(tried, "tried")
sys.exit(failed > 0)
"""


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_has_a_docstring_with_an_example(name):
    documentation = inspect.getdoc(operator.attrgetter(name)(jaxseq)) or ""
    assert documentation.strip(), f"{name} has no docstring"
    assert ">>> " in documentation, f"the docstring of {name} has no example"


# Apart, so that they are shared among processes: most of the time goes to compiling.
ROOMS = {
    "lattices": ["", "_io", "_lazy", "_runtime", "lattice", "native", "parallel", "verify"],
    "text": ["text", "metrics", "representations", "cli"],
    "models": ["crf", "hmm", "homotopy"],
    "learners": ["taggers", "active", "expectations", "shards", "study"],
    "constraints": ["constraints"],
}


def test_every_room_has_its_examples_tried():
    there = {entry.name.removesuffix(".py") for entry in (ROOT / "jaxseq").iterdir()}
    rooms = {room for names in ROOMS.values() for room in names if room}
    assert there - {"__init__", "__main__", "__pycache__", "py.typed"} == rooms


@pytest.mark.parametrize("part", ROOMS)
def test_examples_are_true(part):
    command = [sys.executable, "-c", RUN_EXAMPLES, *ROOMS[part]]
    done = subprocess.run(command, env=environment(), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    tried = int(done.stdout.split()[-2])
    assert tried > 10, "the examples were not found"
