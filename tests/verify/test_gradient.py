"""`jaxseq.verify.gradient`: a right gradient passes, a wrong one is found out and located."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxseq
from jaxseq.verify import gradient

X = np.array([0.5, -1.0, 2.0])
Y = {"w": np.array([[1.0, 2.0], [3.0, 4.0]])}


def product(x, y):
    return jnp.sum(jnp.sin(x)) * jnp.sum(y["w"] ** 2)


def right(x, y):
    return jnp.cos(x) * jnp.sum(y["w"] ** 2), {"w": 2 * y["w"] * jnp.sum(jnp.sin(x))}


def wrong(x, y):
    by_x, by_y = right(x, y)
    return by_x, {"w": by_y["w"].at[1, 0].add(1e-3)}


def test_right_gradient_passes():
    report = gradient(product, right, (X, Y))
    assert report.passed
    assert [row.check for row in report.rows] == [
        "jax.grad", "jax.jacfwd", "jax.jvp", "central differences",
    ]  # fmt: skip
    assert "all passed" in str(report)


def test_differences_reach_eight_digits_in_float64():
    (row,) = [row for row in gradient(product, right, (X, Y)).rows if "differences" in row.check]
    assert row.relative < 1e-8


def test_wrong_gradient_fails_at_its_coordinate():
    report = gradient(product, wrong, (X, Y))
    assert len(report.failures) == 4
    for row in report.rows:
        if row.check != "jax.jvp":  # sees directions, not coordinates
            assert row.coordinate == "args[1]['w'][1, 0]"
            assert row.absolute == pytest.approx(1e-3, rel=1e-3)
    assert "FAIL" in str(report)
    assert not report.to_dict()["passed"]


def test_nan_in_the_gradient_fails():
    report = gradient(lambda x: (x**2).sum(), lambda x: (2 * x.at[1].set(jnp.nan),), (X,))
    assert not report.passed
    assert report.rows[0].coordinate == "args[0][1]"
    assert report.to_dict()["rows"][0]["absolute"] is None


def test_float32():
    args = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (X, Y))
    assert gradient(product, right, args).passed
    assert not gradient(product, wrong, args, tolerance=1e-6).passed
    assert {row.setting["dtype"] for row in gradient(product, right, args).rows} == {"float32"}


def test_float64_is_checked_as_such_when_the_process_has_it_off():
    with jax.enable_x64(False):
        report = gradient(product, right, (X, Y))
        assert jnp.zeros(1).dtype == jnp.float32
    assert report.passed
    assert {row.setting["dtype"] for row in report.rows} == {"float64"}


def test_forbidden_scores_are_left_out_of_differences():
    chain = jaxseq.Chain(jnp.array([[0.0, 1.0], [2.0, -jnp.inf], [1.0, 1.0]]), jnp.ones((2, 2)))

    def mann(chain):
        by = jaxseq.mann_entropy_gradient(chain, method="log")
        return jaxseq.Chain(by.nodes, by.edges)

    report = gradient(lambda chain: jaxseq.entropy(chain, method="log"), mann, (chain,))
    assert report.passed


def test_one_argument_needs_no_tuple_around_its_gradient():
    assert gradient(lambda x: (x**2).sum(), lambda x: 2 * x, (X,)).passed


def test_many_coordinates_are_sampled():
    x = np.linspace(0, 1, 5000)
    assert gradient(lambda x: (x**2).sum(), lambda x: 2 * x, (x,), most_coordinates=10).passed


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((np.array([1.0, np.nan]),), r"args\[0\]\[1\]: expected a finite number or −inf, got nan"),
        ((X, {"w": np.array([[np.inf]])}), r"args\[1\]\['w'\]\[0, 0\]: .* got inf"),
        ((np.array([1, 2]),), r"args\[0\]: expected float32 or float64, got int64"),
        (X, r"args: expected a tuple"),
        ((), r"args: expected a tuple of arguments, at least one"),
    ],
)
def test_bad_arguments(args, message):
    with pytest.raises(ValueError, match=message):
        gradient(lambda *args: 0.0, lambda *args: args, args)


def test_fn_must_be_scalar():
    with pytest.raises(ValueError, match=r"fn: expected one float, shape \[\], got .*\(3,\)"):
        gradient(lambda x: x, lambda x: (x,), (X,))


@pytest.mark.parametrize(
    ("hand", "message"),
    [
        (lambda x, y: (x,), "hand_gradient: expected the structure of args"),
        (lambda x, y: (x[:2], y), r"hand_gradient\[0\]: expected shape \[3\], got \[2\]"),
    ],
)
def test_gradient_must_be_shaped_like_the_arguments(hand, message):
    with pytest.raises(ValueError, match=message):
        gradient(product, hand, (X, Y))


def test_the_librarys_own_pair_is_accepted():
    """The gradient of a `Chain` comes as a `ChainVector`: other type, same arrays."""
    chain = jaxseq.Chain(np.linspace(-1, 1, 6).reshape(3, 2), np.array([[0.5, -1.0], [0.0, 1.0]]))
    report = jaxseq.verify.gradient(jaxseq.entropy, jaxseq.mann_entropy_gradient, (chain,))
    assert report.passed, str(report)
