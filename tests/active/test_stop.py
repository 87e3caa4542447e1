"""The rule for stopping."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.active import Look, agreement, is_stable, should_stop
from jaxseq.metrics import cohen_kappa

LABELLINGS = st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 3)), min_size=1, max_size=30)


@given(LABELLINGS)
def test_agreement_is_cohens_kappa(pairs):
    before, after = (list(column) for column in zip(*pairs))
    by_name = cohen_kappa([[str(k) for k in before]], [[str(k) for k in after]])
    found = agreement(np.array(before), np.array(after))
    assert found == pytest.approx(by_name, rel=1e-12, abs=1e-12)
    assert found == pytest.approx(agreement(np.array(after), np.array(before)), abs=1e-12)


def look_of(labels) -> Look:
    return Look(np.array(labels), np.ones(len(labels)), np.array([len(labels)]))


def test_it_stops_when_labels_are_stable_and_less_than_a_round_is_left():
    half = [0] * 50_000 + [1] * 50_000
    few = [1, 1, *half[2:]]  # κ = 1 − 2 · 2 / 100,000
    many = [1] * 6 + half[6:]  # κ = 1 − 2 · 6 / 100,000
    assert agreement(np.array(half), np.array(few)) == pytest.approx(0.99996, abs=1e-9)
    assert should_stop(look_of(half), look_of(few), 499, q=500)
    assert not should_stop(look_of(half), look_of(few), 500, q=500)
    assert not should_stop(look_of(half), look_of(many), 0, q=500)
    assert should_stop(look_of(half), look_of(many), 0, q=500, kappa=0.99)


def test_a_kappa_of_one_is_never_passed():
    assert not is_stable(1.0, 0, q=1, kappa=1.0)
    assert is_stable(1.0, 0, q=1)


def test_labellings_of_different_pools_are_refused():
    with pytest.raises(ValueError, match="expected labels of the same tokens"):
        agreement(np.zeros(2, int), np.zeros(3, int))
    with pytest.raises(ValueError, match="at least one"):
        agreement(np.zeros(0, int), np.zeros(0, int))
