"""`jaxseq.verify.check`: the library passes, and a broken quantity does not."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxseq.verify import QUANTITIES, Quantity, check, quick_options
from jaxseq.verify._report import extrapolate, steps, worst_error

BY_NAME = {quantity.name: quantity for quantity in QUANTITIES}


@pytest.fixture(scope="module")
def report():
    return check(**quick_options())


def test_library_passes(report):
    assert report.passed, str(report)


def test_every_check_dtype_and_method_is_there(report):
    assert {row.check for row in report.rows if row.quantity == "mann_entropy_gradient"} == {
        "jax.grad (reference)", "jax.jacfwd (reference)", "jax.jvp (reference)",
        "jax.grad (library)", "jax.jacfwd (library)", "jax.jvp (library)",
        "central differences", "enumeration",
    }  # fmt: skip
    settings = {(row.setting["dtype"], row.setting["method"]) for row in report.rows}
    assert len(settings) == 4


def test_table_names_errors_and_coordinates(report):
    table = str(report)
    assert "worst at" in table
    assert "nodes[" in table
    assert f"{len(report.rows)} checks, all passed" in table


def test_process_settings_are_left_alone():
    for enabled in (False, True):
        with jax.enable_x64(enabled):
            small = check([(2, 2)], ["float64"], quantities=["log_partition"], methods=["log"])
            assert small.passed
            assert jnp.zeros(1).dtype == (jnp.float64 if enabled else jnp.float32)


def test_chains_too_large_to_enumerate():
    report = check(
        [(12, 3)], ["float64"], quantities=["marginals"], methods=["log"], edges=["shared"]
    )
    assert report.passed
    checks = {row.check for row in report.rows}
    assert "enumeration" not in checks
    assert {"jax.grad (reference)", "central differences"} <= checks


def test_nothing_is_claimed_where_nothing_was_compared():
    report = check([(12, 3)], ["float64"], quantities=["kl_divergence"], methods=["log"])
    assert not report.rows
    assert not report.passed
    assert "none applies here" in str(report)


def broken(name: str, spoil) -> Quantity:
    """A quantity whose library result is spoilt."""
    original = BY_NAME[name]
    return replace(original, hand=lambda *args: spoil(original.hand(*args)))


def flip_one(gradient):
    return gradient.nodes.at[2, 1].multiply(-1), gradient.edges


def test_broken_gradient_is_reported_where_it_is_broken():
    quantity = broken("mann_entropy_gradient", flip_one)
    report = check([(4, 3)], ["float64"], quantities=[quantity], methods=["log"], edges=["shared"])
    assert not report.passed
    assert {row.check for row in report.failures} == {row.check for row in report.rows}
    for row in report.failures:
        if "jvp" not in row.check:
            assert row.coordinate.endswith("nodes[2, 1]")
    assert "FAIL" in str(report)


@pytest.mark.parametrize("spoil", [lambda x: x + 1e-6, lambda x: x * jnp.nan])
def test_broken_value_is_reported(spoil):
    quantity = broken("log_partition", spoil)
    report = check([(2, 2)], ["float64"], quantities=[quantity], methods=["log"], edges=["shared"])
    assert len(report.failures) == len(report.rows) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shapes": [(0, 2)]}, r"shapes: expected pairs .* got \(0, 2\)"),
        ({"shapes": []}, "shapes: expected at least one"),
        ({"dtypes": ["float16"]}, "dtypes: expected float32 or float64, got 'float16'"),
        ({"methods": ["fast"]}, "methods: expected some of scaled, log, native, got 'fast'"),
        ({"quantities": ["entropie"]}, "quantities: expected some of log_partition"),
        ({"quantities": ["entropy", "entropy"]}, "quantities: expected different names"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        check(**options)


def test_quantity_needs_something_to_check():
    with pytest.raises(ValueError, match="expected `hand` or `value`"):
        Quantity("nothing", reference=lambda case: 0, enumerated=lambda table: 0)


def test_errors_do_not_broadcast():
    with pytest.raises(ValueError, match=r"expected shape \[2\], got \[1\]"):
        worst_error(np.zeros(1), np.zeros(2))


def test_equal_infinities_agree_and_nan_agrees_with_nothing():
    infinite, undefined = np.array([np.inf, -np.inf]), np.array([np.nan])
    assert worst_error(infinite, infinite).absolute == 0
    assert worst_error(infinite, -infinite).absolute == np.inf
    assert worst_error(undefined, undefined).absolute == np.inf
    assert not worst_error(undefined, undefined).within(1e9)


def test_extrapolated_differences_are_accurate():
    x = np.array([0.3, -2.0, 50.0])
    step = steps(x)
    np.testing.assert_allclose(
        extrapolate(np.sin(x + step), np.sin(x - step), step), np.cos(x), atol=1e-10
    )


def test_a_chain_too_large_for_its_covariance_is_refused():
    with pytest.raises(ValueError, match="30x30"):
        check([(30, 30)])
