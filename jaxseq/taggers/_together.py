"""What the processes that train one tagger must agree on, each with sentences of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.sharding import Mesh

from jaxseq.parallel import Peers, mesh_peers
from jaxseq.text import SharedCorpus


@dataclass(frozen=True)
class Together:
    """The processes, and the places of this one's sentences in the whole corpus.

    Args:
        peers: all processes.
        numbers: int64, one a sentence; None where they were dealt out by turns.
    """

    peers: Peers
    numbers: np.ndarray | None = None

    @classmethod
    def of(cls, mesh: Mesh | None, sentence_numbers: Any = None) -> Together:
        """Those of a mesh; ValueError for numbers that are none."""
        if sentence_numbers is None:
            return cls(mesh_peers(mesh))
        numbers = np.asarray(sentence_numbers)
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise ValueError(
                f"sentence_numbers: expected whole numbers, one a sentence, got dtype "
                f"{numbers.dtype} of shape {list(numbers.shape)}"
            )
        return cls(mesh_peers(mesh), numbers.astype(np.int64))

    @classmethod
    def alone(cls) -> Together:
        """One process with everything."""
        return cls(mesh_peers(None))

    @property
    def is_alone(self) -> bool:
        """Whether there is nobody to agree with."""
        return self.peers.count == 1

    def shared(self, labelled: int, others: int = 0) -> SharedCorpus | None:
        """For so many sentences of this process, the unlabelled ones after all labelled ones."""
        if self.is_alone:
            return None
        first = self.numbers if self.numbers is not None else self.by_turns(labelled)
        after = max(self.peers.exchange(int(first.max(initial=-1)) + 1))
        return SharedCorpus(
            self.peers.gather, np.concatenate([first, after + self.by_turns(others)])
        )

    def by_turns(self, count: int) -> np.ndarray:
        """The places of so many sentences of this process that were dealt out by turns."""
        return self.peers.index + self.peers.count * np.arange(count, dtype=np.int64)

    def union(self, names: set[str]) -> list[str]:
        """The names of all processes, sorted."""
        return sorted(set().union(*self.peers.exchange(sorted(names))))

    def total(self, number: int) -> int:
        """The sum of all processes' numbers."""
        return sum(self.peers.exchange(number))

    def places(self, places: np.ndarray) -> np.ndarray:
        """The sorted places that any process has."""
        if self.is_alone:
            return places
        return np.unique(np.concatenate([each[0] for each in self.peers.exchange_arrays(places)]))
