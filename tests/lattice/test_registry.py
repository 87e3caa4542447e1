"""The registry is complete: no public function on one chain escapes the laws."""

import inspect

import jaxseq
from jaxseq import lattice as library
from tests.lattice.registry import ENTRIES


def _public(module) -> dict[str, object]:
    """What is offered for one chain: batches have laws of their own."""
    values = {name: getattr(module, name) for name in module.__all__}
    of_batches = ("jaxseq.lattice._batch", "jaxseq.lattice._layout")
    return {
        name: value
        for name, value in values.items()
        if name != "Batch" and getattr(value, "__module__", None) not in of_batches
    }


def _takes_a_chain(function) -> bool:
    annotations = (parameter.annotation for parameter in _parameters(function))
    return any(annotation in ("Chain", library.Chain) for annotation in annotations)


def _parameters(function):
    return inspect.signature(function).parameters.values()


def test_every_public_function_on_a_chain_is_registered():
    functions = {name: f for name, f in _public(library).items() if inspect.isfunction(f)}
    on_chains = {name for name, function in functions.items() if _takes_a_chain(function)}
    assert on_chains == {entry.name for entry in ENTRIES}
    assert on_chains == set(functions), "a public function that takes no chain needs its own laws"


def test_registered_functions_are_the_exported_ones():
    for entry in ENTRIES:
        assert getattr(jaxseq, entry.name) is entry.function
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)


def test_chain_names_are_exported_at_the_top():
    missing = {name for name, value in _public(library).items() if not hasattr(jaxseq, name)}
    assert not missing
