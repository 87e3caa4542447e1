"""The self-test of the checks: every mutant is caught, and the original passes."""

import os
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import jaxseq
from jaxseq.native import why_not
from tests.mutants.court import Court, KernelNotRun, mutated_source
from tests.mutants.library_copy import library_copy, replace_in_function
from tests.mutants.table import MUTANTS, Mutant

# Swapping the terms of a sum is no mistake, and must not be reported as caught.
HARMLESS = replace(
    MUTANTS[0], module="lattice._entropy", function="lattices_from_marginals",
    before="backward, forward", after="(backward), (forward)",
)  # fmt: skip
HARMLESS_IN_CPP = replace(
    next(m for m in MUTANTS if m.function == "run_back"),
    before="total += alpha[i] * raw[i]", after="total += raw[i] * alpha[i]",
)  # fmt: skip

IN_CPP = [m for m in MUTANTS if m.is_in_cpp]
IN_PYTHON = [m for m in MUTANTS if not m.is_in_cpp]
needs_compiler = pytest.mark.skipif(why_not("float64") is not None, reason=str(why_not("float64")))


def place(mutant: Mutant) -> str:
    return f"{mutant.module}.{mutant.function}, {mutant.kind}"


@pytest.fixture(scope="module")
def court():
    """The truth is what takes long."""
    return Court(MUTANTS if why_not("float64") is None else IN_PYTHON)


def test_the_original_passes(court):
    rows, _ = court.original
    assert rows
    assert not [row for row in rows if not row.passed]


@pytest.mark.parametrize("mutant", IN_PYTHON, ids=place)
def test_every_mutant_is_caught_by_a_wrong_number(court, mutant):
    assert court.judge(mutant), f"SURVIVED: {mutant}"


@needs_compiler
@pytest.mark.parametrize("mutant", IN_CPP, ids=place)
def test_every_mutant_in_cpp_is_caught_by_a_wrong_number(court, mutant):
    assert court.judge(mutant), f"SURVIVED: {mutant}"


def test_harmless_change_survives(court):
    assert court.judge(HARMLESS) == []


@needs_compiler
def test_harmless_change_in_cpp_survives(court):
    assert court.judge(HARMLESS_IN_CPP) == []


@needs_compiler
def test_a_kernel_that_does_not_compile_is_neither_caught_nor_a_survivor(court):
    broken = replace(HARMLESS_IN_CPP, after="this is not C++")
    with pytest.raises(ValueError, match=r"got 'native', which is not: .*error"):
        court.judge(broken)


@needs_compiler
def test_an_answer_from_elsewhere_is_neither_caught_nor_a_survivor(court, monkeypatch):
    """Unless the changed kernel runs, nothing was tried."""
    mutant = IN_CPP[0]
    elsewhere = replace(mutant, method="scaled")  # XLA's
    monkeypatch.setitem(
        court.columns, (mutant.quantity, "scaled"), court.columns[mutant.quantity, "native"]
    )
    with pytest.raises(KernelNotRun, match="no kernel at all"):
        court.judge(elsewhere)
    # As if the copy had compiled the sources of the library itself.
    monkeypatch.setattr("tests.mutants.court.mutated_source", lambda mutant: {})
    with pytest.raises(KernelNotRun, match=r"ran \{'jaxseq_marginals_lattice_"):
        court.judge(mutant)


def test_there_are_enough_mutants_of_every_kind():
    kinds = Counter(mutant.kind for mutant in MUTANTS)
    assert sum(kinds.values()) >= 25
    assert set(kinds) == {"sign", "dropped term", "off-by-one position", "swapped axes"}
    assert min(kinds.values()) >= 5
    assert len({(m.module, m.function, m.before, m.after) for m in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"before": "no such snippet"}, "out of date: .* exactly once, found it 0 times"),
        ({"before": "edge_marginals"}, r"exactly once, found it \d+ times"),
        ({"function": "no_such_function"}, "out of date: .* has no function no_such_function"),
        ({"module": "lattice._nothing"}, "out of date: there is no module jaxseq.lattice._nothing"),
        ({"after": "("}, "is not Python"),
    ],
)
def test_outdated_table_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        mutated_source(replace(MUTANTS[0], **changes))


def test_derivative_rules_are_found_by_their_decorator():
    source = replace_in_function(
        "jaxseq.lattice._entropy", "row_entropy.defjvp", "jnp.sum(by_node", "jnp.prod(by_node"
    )
    assert source.count("jnp.prod(by_node") == 1


def test_copy_is_separate_and_goes_away():
    source = replace_in_function(
        "jaxseq.lattice._chain", "check_integers", "expected integers", "EXPECTED INTEGERS"
    )
    before = os.environ.get("JAXSEQ_CACHE_DIR")
    with library_copy({"jaxseq.lattice._chain": source}) as library:
        assert library.Chain is not jaxseq.Chain
        chain = library.Chain(np.array([[0.0, 1.0]]), np.zeros((2, 2)))
        with pytest.raises(ValueError, match="EXPECTED"):
            library.path_score(chain, np.array([0.5]))
        with pytest.raises(ValueError, match="path: expected integers"):
            jaxseq.path_score(jaxseq.Chain(chain.nodes, chain.edges), np.array([0.5]))
    with pytest.raises(ModuleNotFoundError):
        __import__("jaxseq_under_test")
    assert os.environ.get("JAXSEQ_CACHE_DIR") == before
