"""Labels by name, and the fields that they make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

Scheme = Literal["plain", "iob2", "iobes"]
OUTSIDE = "O"


class Labels:
    """The labels of a model in their order, and which fields they stand for.

    In the scheme ``"plain"`` each label is a field of its own, and a field ends where the label
    changes. In ``"iob2"`` and ``"iobes"``, ``B-X``, ``I-X``, ``E-X`` and ``S-X`` are all of field
    X, and B and S begin a new one. `O` is outside of all fields in each scheme.

    Args:
        names: of the labels, all different.
        scheme: how they stand for fields.

    Example:
        >>> labels = Labels(["B-PER", "I-PER", "O"], "iob2")
        >>> labels.fields, labels.field_of.tolist(), labels.numbers(["PER"])
        (['PER', 'O'], [0, 0, 1], [0, 1])
    """

    def __init__(self, names: Sequence[str], scheme: Scheme = "plain"):
        self.names, self.scheme = [str(name) for name in names], scheme
        if scheme not in ("plain", "iob2", "iobes"):
            raise ValueError(f"scheme: expected 'plain', 'iob2' or 'iobes', got {scheme!r}")
        if not self.names or len(set(self.names)) != len(self.names):
            raise ValueError(f"labels: expected different names, got {', '.join(self.names)}")
        self._number = {name: number for number, name in enumerate(self.names)}
        kinds = [self._field(name) for name in self.names]
        self.fields = list(dict.fromkeys(kinds))
        self.field_of = np.array([self.fields.index(kind) for kind in kinds], np.int32)
        self.begins = np.array([self._begins(name) for name in self.names], bool)

    def __len__(self) -> int:
        return len(self.names)

    def _field(self, name: str) -> str:
        prefix, dash, kind = name.partition("-")
        tagged = self.scheme != "plain" and dash and prefix in ("B", "I", "E", "S")
        return kind if tagged else name

    def _begins(self, name: str) -> bool:
        return self.scheme != "plain" and name.startswith(("B-", "S-"))

    def numbers(self, names: Sequence[str]) -> list[int]:
        """Numbers of the labels that are named, or whose field is.

        Raises:
            ValueError: for a name that is neither.
        """
        if isinstance(names, str):
            raise ValueError(f"labels: expected a list of names, got the string {names!r}")
        found: list[int] = []
        for name in names:
            if name in self._number:
                found.append(self._number[name])
            elif name in self.fields:
                field = self.fields.index(name)
                found += np.flatnonzero(self.field_of == field).tolist()
            else:
                known = ", ".join(dict.fromkeys([*self.fields, *self.names]))
                raise ValueError(f"labels: expected one of {known}, got {name!r}")
        return sorted(set(found))

    def is_one_of(self, names: Sequence[str]) -> np.ndarray:
        """Booleans [s], true for the labels that are named."""
        mask = np.zeros(len(self.names), bool)
        mask[self.numbers(names)] = True
        return mask

    def field_numbers(self, names: Sequence[str] | None) -> list[int]:
        """Numbers of fields in the order of their names; None for all but `O`."""
        if names is None:
            return [number for number, field in enumerate(self.fields) if field != OUTSIDE]
        found = (label for name in names for label in self.numbers([name]))
        return list(dict.fromkeys(int(self.field_of[label]) for label in found))

    def encode(self, labelling: Sequence[str | int]) -> np.ndarray:
        """Numbers of a labelling, given by names or numbers."""
        numbers = []
        for position, label in enumerate(labelling):
            number = self._number.get(label, -1) if isinstance(label, str) else int(label)
            if not 0 <= number < len(self.names):
                known = ", ".join(self.names)
                raise ValueError(f"y[{position}]: expected one of {known}, got {label!r}")
            numbers.append(number)
        return np.array(numbers, np.int32)
