"""Numbering of combinations: tuples of small numbers become one number each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxseq.text._extractor_checks import check_ascending, take_array

if TYPE_CHECKING:
    from jaxseq.text._shared_corpus import SharedCorpus

# Keys stay below it, so that no product leaves int64.
LARGEST_KEY = 2**62
# Up to so many possible keys for each one present, a table of them all beats sorting.
DENSE_FACTOR = 8


class KeySpace:
    """The distinct tuples (a, b, …) with 0 ≤ a < size of the first, …, in ascending order.

    A tuple is folded into one int64 key from left to right, ``key * size + next``. Where that
    would leave int64, the keys so far are first numbered by the distinct ones among them.

    sizes: how many values each place of the tuple has. steps: the sorted keys at each numbering
    on the way. keys: the sorted keys of the tuples kept; a tuple's number is its place there.

    Example:
        >>> places = [np.array([0, 1, 0, -1]), np.array([2, 2, 2, 1])]
        >>> space, numbers = KeySpace.learn([2, 3], np.zeros(4, int), places, cutoff=1)
        >>> numbers.tolist(), space.keys.tolist()
        ([0, 1, 0, -1], [2, 5])
        >>> [place.tolist() for place in space.tuples()]
        [[0, 1], [2, 2]]
    """

    def __init__(self, sizes: Sequence[int], steps: list[np.ndarray], keys: np.ndarray):
        self.sizes = tuple(sizes)
        self.steps = steps
        self.keys = keys

    @classmethod
    def learn(
        cls,
        sizes: Sequence[int],
        base: np.ndarray,
        places: Sequence[np.ndarray],
        cutoff: int,
        shared: SharedCorpus | None = None,
    ) -> tuple[KeySpace, np.ndarray]:
        """The space of the tuples present, and the number of each.

        Args:
            sizes: how many values each place has.
            base: int64 ``[n]``, 0 where there is a tuple and −1 where there is nothing.
            places: for each place its values, ``[n]``; −1 makes the tuple nothing.
            cutoff: tuples that occur fewer times are left out.
            shared: where other processes have tuples too, which the space then holds as well.

        Returns:
            The space, and numbers int64 ``[n]``, −1 for nothing. O(n log n).
        """
        space = cls(sizes, [], np.zeros(0, np.int64))
        keys, size = space._fold(base, places, learn=True, shared=shared)
        space.keys, numbers = _number(keys, size, cutoff, shared)
        return space, numbers

    def find(self, base: np.ndarray, places: Sequence[np.ndarray]) -> np.ndarray:
        """Number of each tuple, −1 for those not in the space."""
        keys, size = self._fold(base, places, learn=False)
        return _find(self.keys, keys, size)

    def tuples(self) -> list[np.ndarray]:
        """The tuples of the space in order, as one array a place."""
        plan = self._plan()
        keys, places = self.keys, []
        for size, step in zip(reversed(self.sizes), reversed(plan)):
            keys, place = np.divmod(keys, size)
            places.append(place)
            if step is not None:
                keys = self.steps[step][keys]
        return places[::-1]

    def __len__(self) -> int:
        return len(self.keys)

    def to_arrays(self, name: str) -> dict[str, np.ndarray]:
        """The arrays that, with the sizes, make the space again."""
        steps = {f"{name}.step{i}": step for i, step in enumerate(self.steps)}
        return {f"{name}.keys": self.keys, **steps}

    @classmethod
    def from_arrays(cls, sizes: Sequence[int], arrays: Mapping[str, Any], name: str) -> KeySpace:
        """The space that `to_arrays` wrote; ValueError where the arrays do not fit the sizes."""
        space = cls(sizes, [], take_array(arrays, f"{name}.keys", np.int64))
        reach = 1
        for size in space.sizes:
            if reach * size > LARGEST_KEY:
                step_name = f"{name}.step{len(space.steps)}"
                step = take_array(arrays, step_name, np.int64)
                check_ascending(step_name, step, reach)
                space.steps.append(step)
                reach = len(step)
            reach *= size
        check_ascending(f"{name}.keys", space.keys, reach)
        return space

    def _plan(self) -> list[int | None]:
        """For each place, the numbering (index into ``steps``) that comes before it, if any."""
        plan: list[int | None] = []
        reach, done = 1, 0
        for size in self.sizes:
            numbered = reach * size > LARGEST_KEY
            plan.append(done if numbered else None)
            reach = (len(self.steps[done]) if numbered else reach) * size
            done += numbered
        return plan

    def _fold(
        self,
        base: np.ndarray,
        places: Sequence[np.ndarray],
        learn: bool,
        shared: SharedCorpus | None = None,
    ) -> tuple[np.ndarray, int]:
        """Key of each tuple (−1 for nothing), and the size of their range."""
        keys, reach, done = base, 1, 0
        for place, size in zip(places, self.sizes):
            if reach * size > LARGEST_KEY:
                if learn:
                    step, keys = _number(keys, reach, 1, shared)
                    self.steps.append(step)
                else:
                    keys = _find(self.steps[done], keys, reach)
                reach = len(self.steps[done])
                done += 1
            nothing = (keys < 0) | (place < 0)
            keys = keys * size + place
            keys[nothing] = -1
            reach *= size
        return keys, reach


def _number(
    keys: np.ndarray, size: int, cutoff: int, shared: SharedCorpus | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The sorted keys that occur ``cutoff`` times or more, and each key's place among them."""
    present = keys >= 0
    if shared is not None:
        own = np.unique(keys[present], return_counts=True)
        together, totals = shared.merge_counts(own[0].astype(np.int64), own[1].astype(np.int64))
        known = together[totals >= cutoff]
        return known, _find(known, keys, size)
    everywhere = bool(present.all())
    if size <= DENSE_FACTOR * len(keys):
        distinct = np.arange(size)
        counts = np.bincount(keys if everywhere else keys[present], minlength=size)
        inverse = keys
    else:
        distinct, found, counts = np.unique(
            keys if everywhere else keys[present], return_inverse=True, return_counts=True
        )
        inverse = found
        if not everywhere:
            inverse = np.zeros(len(keys), np.int64)
            inverse[present] = found
    kept = counts >= cutoff
    numbers = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)  # the last: for nothing
    places = numbers[inverse if everywhere else np.where(present, inverse, -1)]
    return distinct[kept], places


def _find(known: np.ndarray, keys: np.ndarray, size: int) -> np.ndarray:
    """Place of each key among the known ones, which are sorted; −1 where it is not there."""
    if size <= DENSE_FACTOR * max(len(keys), len(known)):
        numbers = np.full(size + 1, -1, np.int64)  # the last: for nothing
        numbers[known] = np.arange(len(known))
        return numbers[keys]
    if not len(known):
        return np.full(len(keys), -1, np.int64)
    places = np.searchsorted(known, keys)
    places[places == len(known)] = 0
    return np.where(known[places] == keys, places, -1)
