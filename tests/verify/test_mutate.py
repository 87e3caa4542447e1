"""The self-test of the checks: every mutant is caught, and the original passes."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import jaxseq
from jaxseq.native import why_not
from jaxseq.verify import MUTANTS as TABLE
from jaxseq.verify import mutate
from jaxseq.verify._mutants import library_copy, replace_in_function

# Swapping the terms of a sum is no mistake, and must not be reported as caught.
MUTANTS = [m for m in TABLE if m.method != "native" or why_not("float64") is None]
"""Those that can be tried here: some are in C++."""

HARMLESS = replace(
    MUTANTS[0], module="lattice._entropy", function="lattices_from_marginals",
    before="backward, forward", after="(backward), (forward)",
)  # fmt: skip


@pytest.fixture(scope="module")
def everything():
    """All mutants and a harmless change in one go, since the truth is what takes long."""
    return mutate([*MUTANTS, HARMLESS])


def test_every_mutant_is_caught_by_a_wrong_number_and_the_table_says_so(everything):
    report = replace(everything, verdicts=everything.verdicts[:-1])
    assert [verdict.mutant for verdict in report.verdicts] == list(MUTANTS)
    assert not report.survivors, str(report)
    assert all(row.passed for row in report.originals), str(report)
    assert report.passed
    assert not [str(verdict.mutant) for verdict in report.verdicts if verdict.error]
    lines = str(report).splitlines()
    assert f"{len(MUTANTS)} mutants, {len(MUTANTS)} caught, 0 survived" in lines[-1]
    assert "caught" in lines[2]


def test_there_are_enough_mutants_of_every_kind():
    kinds = Counter(mutant.kind for mutant in MUTANTS)
    assert sum(kinds.values()) >= 25
    assert set(kinds) == {"sign", "dropped term", "off-by-one position", "swapped axes"}
    assert min(kinds.values()) >= 5
    assert len({(m.module, m.function, m.before, m.after) for m in MUTANTS}) == len(MUTANTS)


def test_harmless_change_survives(everything):
    assert [verdict.mutant for verdict in everything.survivors] == [HARMLESS]
    report = replace(everything, verdicts=everything.verdicts[-1:])
    assert [verdict.caught for verdict in report.verdicts] == [False]
    assert not report.passed
    assert not everything.passed
    assert "SURVIVED" in str(report)


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
        mutate([replace(MUTANTS[0], **changes)])


def test_derivative_rules_are_found_by_their_decorator():
    source = replace_in_function(
        "jaxseq.lattice._entropy", "row_entropy.defjvp", "jnp.sum(by_node", "jnp.prod(by_node"
    )
    assert source.count("jnp.prod(by_node") == 1


def test_copy_is_separate_and_goes_away():
    source = replace_in_function(
        "jaxseq.lattice._chain", "check_path", "expected integers", "EXPECTED INTEGERS"
    )
    with library_copy({"jaxseq.lattice._chain": source}) as library:
        assert library.Chain is not jaxseq.Chain
        chain = library.Chain(np.array([[0.0, 1.0]]), np.zeros((2, 2)))
        with pytest.raises(ValueError, match="EXPECTED"):
            library.path_score(chain, np.array([0.5]))
        with pytest.raises(ValueError, match="path: expected integers"):
            jaxseq.path_score(jaxseq.Chain(chain.nodes, chain.edges), np.array([0.5]))
    with pytest.raises(ModuleNotFoundError):
        __import__("jaxseq_under_test")
