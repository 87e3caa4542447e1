"""The devices and processes that one job runs on: an argument, with one process as its null object.

A reader of the single-process path need not know more than that every method does there what it
says for a job that nobody shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.sharding import Mesh

from jaxseq.parallel._mesh import from_first, own_rows
from jaxseq.parallel._peers import Peers, mesh_peers

PER_PROCESS = ("cores", "progress", "checkpoint")
"""Settings that may differ between processes: a path may be spelt in several ways."""


@dataclass(frozen=True)
class Devices:
    """A mesh and the processes that it spans, each with its own part of a corpus.

    All processes call the same methods in the same order.

    Args:
        mesh: of `make_mesh`, or None for the cores of this machine.
        peers: all processes.
        numbers: the place of each sentence of this process in the whole corpus, int64; None where
            sentences were dealt out by turns.

    Example:
        >>> devices = Devices.alone()
        >>> with devices.agreeing():
        ...     classes = devices.union({"V", "N"})
        >>> classes, devices.total(3), devices.is_first
        (['N', 'V'], 3, True)
    """

    mesh: Mesh | None
    peers: Peers
    numbers: np.ndarray | None = None

    @classmethod
    def from_mesh(cls, mesh: Mesh | None, sentence_numbers: Any = None) -> Devices:
        """The devices of a mesh; of this process alone without one.

        Raises:
            ValueError: for no mesh, and for sentence numbers that are not whole numbers.
        """
        peers = mesh_peers(mesh)
        if sentence_numbers is None:
            return cls(mesh, peers)
        numbers = np.asarray(sentence_numbers)
        # An error of all, as the others are about to wait for this process.
        with peers.guard():
            if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
                raise ValueError(
                    "sentence_numbers: expected whole numbers, one per sentence, got dtype "
                    f"{numbers.dtype} of shape {list(numbers.shape)}"
                )
        return cls(mesh, peers, numbers.astype(np.int64))

    @classmethod
    def alone(cls) -> Devices:
        """One process with everything."""
        return cls(None, mesh_peers(None))

    @property
    def is_alone(self) -> bool:
        """Whether there is no other process to agree with."""
        return self.peers.count == 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and reports."""
        return self.peers.is_first

    @property
    def places(self) -> int:
        """Places along ``"data"`` that belong to this process; 1 without a mesh."""
        return 1 if self.mesh is None else len(own_rows(self.mesh))

    # --------------------------------------------------------------------------- agreement

    def agreeing(self) -> AbstractContextManager[None]:
        """Inside, an error of one process is one of all, which would else wait for it for ever."""
        return self.peers.guard()

    def check_same(self, name: str, value: Any) -> None:
        """ValueError unless every process has the same value, anything that JSON can hold."""
        self.peers.check_same(name, value)

    def check_settings(self, *settings: Mapping[str, Any], **optional: Any) -> None:
        """ValueError unless all processes were told to do the same.

        Args:
            settings: by their names; those of `PER_PROCESS` are not compared.
            optional: further arguments, of which it matters whether they are None.
        """
        if self.is_alone:
            return  # settings may be costly to write out, and there is nobody to compare them with
        together = {name: value for each in settings for name, value in each.items()}
        compared = {k: str(value) for k, value in together.items() if k not in PER_PROCESS}
        compared |= {k: "none" if value is None else "given" for k, value in optional.items()}
        compared["mesh"] = "none" if self.mesh is None else str(self.mesh.devices.shape)
        self.check_same("settings", compared)

    # ------------------------------------------------------------------------- what all have

    def any(self, flag: Any) -> bool:
        """Whether it is so in any process."""
        return any(self.peers.exchange(bool(flag)))

    def all(self, flag: Any) -> bool:
        """Whether it is so in every process."""
        return all(self.peers.exchange(bool(flag)))

    def total(self, number: int) -> int:
        """The sum of all processes' whole numbers, of any size."""
        # As text: a whole number of JSON may be cut to 64 bits by others who read it.
        return sum(int(each, 16) for each in self.peers.exchange(f"{number:x}"))

    def sum(self, array: np.ndarray) -> np.ndarray:
        """The sum of all processes' arrays of one shape."""
        return self.peers.sum(array)

    def anywhere(self, array: np.ndarray) -> np.ndarray:
        """Where the array of any process is true."""
        return self.peers.any(array)

    def union(self, names: set[str]) -> list[str]:
        """The names of all processes, sorted."""
        return sorted(set().union(*self.peers.exchange(sorted(names))))

    def merge(self, numbers: np.ndarray) -> np.ndarray:
        """The sorted numbers that any process has; this one's must be sorted."""
        if self.is_alone:
            return numbers
        return np.unique(np.concatenate([part for (part,) in self.peers.exchange_arrays(numbers)]))

    def share_first(
        self, notes: Any, arrays: dict[str, np.ndarray]
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """Notes (for JSON) and arrays of process 0, in every process."""
        if self.is_alone:
            return notes, arrays
        shapes = {name: (array.dtype.str, array.shape) for name, array in arrays.items()}
        notes, shapes = self.peers.exchange([notes, shapes])[0]
        if not shapes:
            return notes, {}
        # In two steps: for the second, all must have arrays of the same shapes.
        if not self.is_first:
            arrays = {name: np.zeros(shape, dtype) for name, (dtype, shape) in shapes.items()}
        return notes, from_first(arrays)

    # ------------------------------------------------------------------- places of sentences

    def numbers_by_turns(self, count: int) -> np.ndarray:
        """The places of so many sentences of this process that were dealt out by turns."""
        return self.peers.index + self.peers.count * np.arange(count, dtype=np.int64)

    def sentence_places(self, labelled: int, unlabelled: int = 0) -> np.ndarray:
        """The places of this process's sentences in the whole corpus, the unlabelled after all of
        the labelled ones."""
        first = self.numbers_by_turns(labelled) if self.numbers is None else self.numbers
        # Beyond the last labelled sentence of all, whoever has it.
        after = max(self.peers.exchange(int(first.max(initial=-1)) + 1))
        return np.concatenate([first, after + self.numbers_by_turns(unlabelled)])
