"""What the searches of a tagger have in common: stages, their data, and where they end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jaxseq.learn._corpus import Layout, ShardMaker, lay_out, lay_out_by_length, without_gaps
from jaxseq.learn._lbfgs import Outcome
from jaxseq.learn._parameters import Parameters
from jaxseq.tagger._plan import EntropyTerm
from jaxseq.tagger._problem import Problem


@dataclass(frozen=True)
class Fitted:
    """Where a search ended."""

    parameters: Parameters
    outcome: Outcome
    iterations: int
    evaluations: int
    loss: float
    seconds: dict[str, float]

    @classmethod
    def at(cls, start: Parameters) -> Fitted:
        """Where one begins."""
        return cls(start, Outcome.MAX_ITERATIONS, 0, 0, float("nan"), {})


class Part(NamedTuple):
    """Which stage is running, whether it is the last, and its iterations at most."""

    stage: int
    last: bool
    iterations: int


class Watching(NamedTuple):
    """Progress to tell of, and whether Ctrl-C was pressed."""

    tick: Callable[[int, float], None]
    pressed: Callable[[], bool]


Bar = Callable[[int], AbstractContextManager[Watching]]
"""From the number of iterations at most to a context in which they are watched."""


def labelled_maker(problem: Problem, layout: Layout) -> ShardMaker:
    """Shards of the labelled sentences."""
    features = without_gaps(problem.features)
    return ShardMaker(
        layout, features, problem.attributes, problem.labels, problem.sentence_weights
    )


def unlabelled_maker(problem: Problem, shards: int, term: EntropyTerm) -> ShardMaker:
    """So many shards of the others."""
    features = problem.unlabelled
    assert features is not None
    # Jiao's cost grows with the square of a row's length, whatever is in it.
    place = lay_out_by_length if term.gradient == "jiao" else lay_out
    layout = place(features.lengths, shards)
    return ShardMaker(layout, without_gaps(features), problem.attributes)


def check_possible(loss: float) -> None:
    """ValueError on the loss of labels that cannot be."""
    if not np.isfinite(loss):
        raise ValueError(
            "y: expected partial labels that leave every sentence at least one legal labelling, "
            f"got a sentence with none (loss {loss})"
        )
