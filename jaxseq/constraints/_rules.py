"""What all ready constraints have in common: they are written with names, and bound to labels."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import numpy as np

from jaxseq.constraints._constraint import Constraint
from jaxseq.constraints._labels import Labels
from jaxseq.constraints._tokens import Tokens


@dataclass(frozen=True)
class Rule:
    """A constraint as people write it, with names of labels; `bind` gives it their numbers.

    Example:
        >>> from jaxseq.constraints import Labels, Rule, StartsWith
        >>> isinstance(StartsWith(["A"]), Rule), StartsWith(["A"]).bind(Labels(["A", "B"])).is_local
        (True, True)
    """

    @abstractmethod
    def bind(self, labels: Labels) -> Constraint:
        """The automaton for a model with these labels.

        Raises:
            ValueError: for a label that the model does not have.
        """


class OnTokens(Constraint):
    """A constraint that looks at whether a token is one of some tokens: x is bool [n]."""

    tokens: Tokens = eqx.field(static=True)

    def observe(self, sentence: Any) -> np.ndarray:
        return self.tokens.marks(sentence)
