"""All prefixes and suffixes of a product, in a number of steps that grows with log m.

Elements x_0 … x_{m−1} of a semigroup act on states. Neighbours are combined in pairs, pairs of
pairs, and so on to the root (Blelloch 1990); then states are handed down: the state before a right
half is the state before the whole, moved by the left half. On the way up elements are combined, on
the way down they only act: one tree of matrices serves vectors from the left and from the right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

Elements = TypeVar("Elements")
"""A tree of arrays whose first axis runs over elements."""


def build_tree(combine: Callable[[Any, Any], Any], elements: Elements) -> list[Elements]:
    """The elements, their products in pairs, …, the product of all.

    Args:
        combine: the product, left factor first, of equally many elements on either side.
        elements: m ≥ 1 of them.

    Cost: fewer than m products, in ⌈log₂ m⌉ rounds.
    """
    levels = [elements]
    while (size := _count(levels[-1])) > 1:
        pairs = size // 2
        left, right = (_slice(levels[-1], start, 2 * pairs, 2) for start in (0, 1))
        above = combine(left, right)
        if size % 2:
            above = _concatenate(above, _slice(levels[-1], size - 1, size))
        levels.append(above)
    return levels


def states_ahead(
    levels: list[Any], start: Array, act: Callable[[Array, Any], Array]
) -> Array:  # fmt: skip
    """The state before each element, and after the last: [m + 1, …].

    Args:
        levels: by `build_tree`.
        start: the state before the first element.
        act: state, element ↦ state after it; many at a time.
    """
    states = start[None]
    for elements in reversed(levels[:-1]):
        size = _count(elements)
        left = _slice(elements, 0, size // 2 * 2, 2)
        states = _interleave(states, act(states[: size // 2], left))
    last = act(states[-1:], _slice(levels[0], _count(levels[0]) - 1, _count(levels[0])))
    return jnp.concatenate([states, last])


def states_back(levels: list[Any], end: Array, act: Callable[[Any, Array], Array]) -> Array:
    """The state before each element, and after the last, from the state after the last: [m + 1, …].

    Args:
        levels: by `build_tree`.
        end: the state after the last element.
        act: element, state ↦ state before it; many at a time.
    """
    states = end[None]  # after each element
    for elements in reversed(levels[:-1]):
        size = _count(elements)
        right = _slice(elements, 1, size // 2 * 2, 2)
        states = _interleave(act(right, states[: size // 2]), states)
    first = act(_slice(levels[0], 0, 1), states[:1])
    return jnp.concatenate([first, states])


def _interleave(even: Array, odd: Array) -> Array:
    """even_0, odd_0, even_1, …; the longer of the two ends."""
    pairs = min(len(even), len(odd))
    both = jnp.stack([even[:pairs], odd[:pairs]], 1).reshape(2 * pairs, *even.shape[1:])
    return jnp.concatenate([both, even[pairs:], odd[pairs:]])


def _count(elements: Any) -> int:
    return jax.tree.leaves(elements)[0].shape[0]


def _slice(elements: Any, start: int, stop: int, step: int = 1) -> Any:
    return jax.tree.map(lambda leaf: leaf[start:stop:step], elements)


def _concatenate(first: Any, second: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), first, second)
