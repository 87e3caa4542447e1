"""Law: every function gives what the plain sum over all labellings gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lattice.cases import FURTHER_SHAPES, PER_POSITION, SHARED, cases
from tests.lattice.registry import ENTRIES

EVERY_METHOD = [(entry, method) for entry in ENTRIES for method in entry.methods]
# Engines hand over marginals and log Z alone, so further functions by every method show little.
IN_FLOAT32 = [
    (entry, method)
    for entry, method in EVERY_METHOD
    if method == "auto" or entry.name in ("log_partition", "marginals")
]


def _name(pair) -> str:
    entry, method = pair
    return f"{entry.name}-{method}"


@pytest.mark.parametrize(("entry", "method"), EVERY_METHOD, ids=map(_name, EVERY_METHOD))
@given(data=st.data())
def test_float64_equals_enumeration(entry, method, data):
    case = data.draw(cases(SHARED))
    entry.assert_agrees(entry.call(case, method), case)


@pytest.mark.parametrize(("entry", "method"), IN_FLOAT32, ids=map(_name, IN_FLOAT32))
@given(data=st.data())
def test_float32_equals_enumeration_in_float64(entry, method, data):
    case = data.draw(cases(PER_POSITION, np.float32))
    entry.assert_agrees(entry.call(case, method), case)


@pytest.mark.parametrize("shape", FURTHER_SHAPES, ids=str)
@pytest.mark.parametrize("entry", ENTRIES, ids=repr)
@given(data=st.data())
def test_further_shapes_equal_enumeration(entry, shape, data):
    case = data.draw(cases(shape))
    entry.assert_agrees(entry.call(case, "auto"), case)
