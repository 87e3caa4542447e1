"""Fixtures of the tagger's tests."""

import jaxtyping
import pytest


@pytest.fixture(scope="module")
def unchecked():
    """The library's own words, not those of a type checker."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
