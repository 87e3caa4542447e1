"""Random choices that are the same on every platform: SplitMix64 in Python's integers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Generic, TypeVar

Item = TypeVar("Item")

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mix(state: int) -> int:
    """The output function of SplitMix64: a bijection of 64-bit integers that looks random."""
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


class Stream:
    """A stream of random choices; only integers, so no rounding can change one.

    Args:
        state: where SplitMix64 starts.

    Example:
        >>> stream = Stream.keyed(3, 14)
        >>> stream.below(10) == Stream.keyed(3, 14).below(10)
        True

    Reference:
        Steele, Lea & Flood (2014), "Fast splittable pseudorandom number generators".
    """

    __slots__ = ("_state",)

    def __init__(self, state: int):
        self._state = state & _MASK

    @classmethod
    def keyed(cls, *key: int) -> Stream:
        """The stream of a key: integers of 64 bits, each of which changes all that follows."""
        state = 0
        for part in key:
            state = _mix((_mix(state ^ part) + _GOLDEN) & _MASK)
        return cls(state)

    def next(self) -> int:
        """64 random bits."""
        state = self._state = (self._state + _GOLDEN) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        return state ^ (state >> 31)

    def below(self, bound: int) -> int:
        """An integer from 0 to bound − 1; the bias of 2⁻⁶⁴ · bound is far below notice."""
        return (self.next() * bound) >> 64

    def between(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return low + self.below(high - low + 1)

    def chance(self, percent: int) -> bool:
        """True in so many cases of a hundred."""
        return self.below(100) < percent

    def pick(self, items: Sequence[Item]) -> Item:
        """One of the items, all equally likely."""
        return items[self.below(len(items))]

    def rank(self, octaves: int) -> int:
        """A rank of Zipf's law: 0, 1, … 2^octaves − 2, of probability about 1 / (rank + 1).

        The octave [2ᵏ − 1, 2ᵏ⁺¹ − 1) is drawn first, then a rank within it, so that the law needs
        no logarithm.
        """
        size = 1 << self.below(octaves)
        return size - 1 + self.below(size)

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """The items in random order (Fisher and Yates)."""
        order = list(items)
        for last in range(len(order) - 1, 0, -1):
            other = self.below(last + 1)
            order[last], order[other] = order[other], order[last]
        return order


class Weighted(Generic[Item]):
    """Items with integer weights, to be drawn in proportion.

    Args:
        pairs: (item, weight) of each.

    Example:
        >>> coin = Weighted(("heads", 1), ("tails", 0))
        >>> coin.draw(Stream(7))
        'heads'
    """

    __slots__ = ("_ends", "_items")

    def __init__(self, *pairs: tuple[Item, int]):
        self._items = [item for item, _ in pairs]
        self._ends = list(accumulate(weight for _, weight in pairs))

    def draw(self, stream: Stream) -> Item:
        """One of the items."""
        return self._items[bisect_right(self._ends, stream.below(self._ends[-1]))]
