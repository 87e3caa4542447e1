"""What the paper leaves open of words, smoothing and unlabelled citations, to see what it changes.

Settings are scored on the development part of each split, which it uses for nothing else.
The paper's unknown words are those "seen less than 5 times in training", and its "training set" is
the 300 labelled citations: "paper" counts words there. All its words have labelled tokens then, the
path first turns at λ = .37 (mean of 20 splits), and no λ gains anything over 0. Where words of
unlabelled citations are known too, some of which no label holds, it first turns at .10 to .12, and
models are better, best with words that stand twice ("cut-off 2"): the last model before the turn
then has 88.73 and 88.93 (Viterbi, SMS), the supervised one 88.39 and 88.57.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from experiments.words import NORMALISED as NORMALISED
from jaxseq.hmm import Smoothing

Normalisation = Literal["none", "lower case", "digits", "lower case and digits"]


@dataclass(frozen=True)
class Setting:
    """How words become numbers, and how much is added to their counts.

    Args:
        what: it is, for the report.
        unknown_below: words seen fewer times are the unknown word.
        vocabulary: where they are counted: in ``"all"`` sentences or the ``"labelled"`` ones.
        normalise: what is done to a word first; see `NORMALISED`.
        smoothing: ε, of each family.
        pool: the unlabelled citations are the ``"first"`` of the file, which are nearest to
            computer science, or ``"any"`` of it, drawn by seed.
        frozen: families that keep their supervised values.
    """

    what: str
    unknown_below: int = 5
    vocabulary: Literal["all", "labelled"] = "all"
    normalise: Normalisation = "none"
    smoothing: Smoothing = field(default_factory=Smoothing)
    pool: Literal["first", "any"] = "first"
    frozen: tuple[str, ...] = ("initial", "transition")


SETTINGS = {
    "paper": Setting("words as they stand, counted in the labelled part", vocabulary="labelled"),
    "all words": Setting("words as they stand, counted in all citations"),
    "cut-off 2": Setting("unknown below 2 occurrences", unknown_below=2),
    "cut-off 10": Setting("unknown below 10 occurrences", unknown_below=10),
    "lower case": Setting("words in lower case", normalise="lower case"),
    "digits": Setting("every digit is 0", normalise="digits"),
    "lower case, digits": Setting(
        "lower case, every digit is 0", normalise="lower case and digits"
    ),
    "ε = .01": Setting("less smoothing of words", smoothing=Smoothing(emission=0.01)),
    "ε = .2": Setting("more smoothing of words", smoothing=Smoothing(emission=0.2)),
    "any": Setting("unlabelled citations from all of the file", pool="any"),
    "initial free": Setting("only transitions between labels frozen", frozen=("transition",)),
    "all free": Setting("nothing frozen", frozen=()),
}
"""Name → setting."""
