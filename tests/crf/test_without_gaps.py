"""Columns of absent attributes are closed up, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.crf import without_gaps
from jaxseq.text import TokenFeatures


def features_of(rows: list[list[int]], values: bool) -> TokenFeatures:
    ids = np.array(rows, np.int32).reshape(len(rows), len(rows[0]) if rows else 2)
    sizes = np.float32(ids * 2.0 + 1) if values else None
    return TokenFeatures(ids, sizes, np.array([len(rows)], np.int64), None)


def as_lists(features: TokenFeatures) -> list[list[tuple[int, float]]]:
    sizes = np.ones(features.ids.shape) if features.values is None else features.values
    return [
        [(int(i), float(v)) for i, v in zip(ids, values) if i >= 0]
        for ids, values in zip(features.ids, sizes)
    ]


@given(
    st.integers(1, 4).flatmap(
        lambda k: st.lists(st.lists(st.integers(-1, 3), min_size=k, max_size=k), max_size=6)
    ),
    st.booleans(),
)
def test_every_token_keeps_its_attributes_in_order(rows, values):
    features = features_of(rows, values)
    found = without_gaps(features)
    assert as_lists(found) == as_lists(features)
    most = max((len(token) for token in as_lists(features)), default=0)
    assert found.ids.shape == (len(rows), max(1, most))  # a column there must be
    assert found.lengths.tolist() == features.lengths.tolist()


@pytest.mark.parametrize("values", [False, True])
def test_full_columns_are_left_alone(values):
    features = features_of([[0, 1], [1, -1]], values)
    assert without_gaps(features) is features
