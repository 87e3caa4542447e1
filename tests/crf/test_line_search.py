"""The line search on functions of one number."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.crf._lbfgs import CURVATURE, DECREASE, ROUNDING, Trial, zoom

PLACES = st.floats(0.01, 50)
SCALES = st.floats(0.01, 100)


def search(function, **options):
    """The step found on a function that gives value and slope, and how often it was looked at."""
    looks = []

    def evaluate(step):
        looks.append(step)
        return Trial(step, *function(step), ("kept", step))

    return zoom(evaluate, *function(0.0), **options), looks


def assert_wolfe(function, found):
    """The strong Wolfe conditions; or the slope is flat and the value level within rounding."""
    value, slope = function(0.0)
    assert found is not None
    assert (found.value, found.slope) == function(found.step)
    assert found.payload == ("kept", found.step)
    assert found.step > 0
    assert abs(found.slope) <= CURVATURE * abs(slope)
    falls = found.value <= value + DECREASE * found.step * slope
    level = found.value <= value + ROUNDING * abs(value)
    assert falls or (level and found.slope <= (2 * DECREASE - 1) * slope)


def wave_in_a_bowl(place, height, rate):
    def function(x):
        away, angle = x - place, rate * x
        value = away**2 + height * math.cos(angle)
        return value, 2 * away - height * rate * math.sin(angle)

    return function


@given(PLACES, SCALES, st.floats(-100, 100))
def test_parabolas(place, scale, height):
    def function(x):
        return scale * (x - place) ** 2 + height, 2 * scale * (x - place)

    assert_wolfe(function, search(function)[0])


@given(PLACES, SCALES, SCALES)
def test_quartics(place, scale, other):
    def function(x):
        away = x - place
        return scale * away**4 + other * away**2, 4 * scale * away**3 + 2 * other * away

    assert_wolfe(function, search(function)[0])


@given(st.floats(0.01, 5), st.floats(0.1, 10))
def test_exponentials(place, rate):
    def function(x):
        try:
            grown = math.exp(rate * (x - place))
        except OverflowError:
            return math.inf, math.inf
        return grown - rate * x, rate * grown - rate

    assert_wolfe(function, search(function)[0])


@given(st.floats(0.5, 5), st.floats(0.5, 2), st.floats(1, 6))
def test_wavy_functions(place, height, rate):
    function = wave_in_a_bowl(place, height, rate)
    assert_wolfe(function, search(function)[0])


@pytest.mark.parametrize(("place", "height", "rate"), [(1, 1, 5), (1.5, 2, 5), (1, 1.5, 6)])
def test_bracket_keeps_the_side_that_the_lowest_point_falls_towards(place, height, rate):
    # The first steps rise, so that the bracket's ends change places; then a point between them
    # becomes the lowest one.
    function = wave_in_a_bowl(place, height, rate)
    assert_wolfe(function, search(function)[0])


def test_first_step_is_taken_when_it_is_good():
    def function(x):
        return (x - 1) ** 2, 2 * (x - 1)

    assert search(function)[1] == [1.0]
    assert search(function, first_step=0.5)[1] == [0.5]


@pytest.mark.parametrize("wall", [math.nan, math.inf])
@pytest.mark.parametrize("edge", [0.9, 0.3, 0.01])
def test_steps_without_a_value_are_withdrawn_from(wall, edge):
    def function(x):
        return (wall, wall) if x > edge else ((x - edge / 2) ** 2, 2 * (x - edge / 2))

    found, looks = search(function)
    assert_wolfe(function, found)
    assert looks[0] > edge


@pytest.mark.parametrize("wall", [math.nan, math.inf])
def test_nothing_is_found_where_nothing_has_a_value(wall):
    found, looks = search(lambda x: (1.0, -1.0) if x == 0 else (wall, wall), max_trials=7)
    assert found is None
    assert len(looks) == 7


def test_nothing_is_found_where_every_step_ascends():
    found, _ = search(lambda x: (x, -1.0 if x == 0 else 1.0))  # the slope at 0 is wrong
    assert found is None


def test_the_lowest_trial_is_returned_when_none_is_good():
    found, looks = search(lambda x: (-x, -1.0), max_trials=4)  # falls for ever
    assert looks == [1, 2, 4, 8]
    assert found is not None
    assert found.step == 8


@pytest.mark.parametrize("slope", [0.0, 2.0, math.nan])
def test_a_start_that_does_not_descend_is_refused(slope):
    with pytest.raises(ValueError, match="slope: expected a negative number"):
        zoom(lambda step: Trial(step, 0.0, 0.0, None), 1.0, slope)
