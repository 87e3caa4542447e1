"""Unlabelled sentences to learn from: the options that are about them, and their file."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial

from jaxseq.cli._blocks import Block, iter_blocks
from jaxseq.cli._columns import Names, require_columns
from jaxseq.cli._corpus import Corpus, Part, read_other_format
from jaxseq.cli._files import STANDARD, iter_input, require_file, require_rereadable, shown
from jaxseq.text import Sentence, read_plain, tokenize_citation
from jaxseq.text._citations import NEW_REFERENCE
from jaxseq.text._sentence import sentence_of

OUTSIDE = "O"

OPTIONS = (
    "entropy_weight",
    "entropy_gradient",
    "vocabulary",
    "self_training",
    "confidence",
    "confidence_of",
    "choose_entropy_weight",
)
"""Options that need unlabelled sentences; none of them is set unless the user gives it."""

EXCLUDED = {
    "self_training": (
        "entropy_weight",
        "entropy_gradient",
        "vocabulary",
        "choose_entropy_weight",
        "warm_start",
    ),
    "choose_entropy_weight": ("entropy_weight",),
}
"""Option → those that make no sense along with it."""


def add_unlabelled_options(parser: argparse.ArgumentParser) -> None:
    """Add the group of options about unlabelled sentences."""
    group = parser.add_argument_group(
        "unlabelled sentences",
        "Learn from sentences without labels, too: the model is to be sure of them (entropy "
        "regularisation), or is trained on the labels that it gives them (self-training).",
    )
    add = group.add_argument
    add(
        "--unlabelled",
        nargs="+",
        metavar="FILE",
        help="one file or several: sentences in the format of --train, whose labels are ignored; "
        "columns may also lack the label, or be words alone (- is standard input), and citations "
        "may be plain text, one a line",
    )
    add(
        "--entropy-weight",
        type=parse_entropy_weight,
        metavar="X",
        help="how much the entropy of an unlabelled sentence counts, 0 or more (1)",
    )
    add(
        "--entropy-gradient",
        choices=("mann", "jiao", "autodiff"),
        help="how its gradient is worked out; all give the same model (mann)",
    )
    add(
        "--vocabulary",
        choices=("all", "labelled"),
        help="the sentences that attributes are taken from (all)",
    )
    add(
        "--choose-entropy-weight",
        action="store_true",
        default=None,
        help="take the best of 0, 0.1, 0.5, 1, 5, 10 in 5-fold cross-validation on --train: by "
        "span F1 if the labels are of a chunk scheme, by accuracy if not",
    )
    add(
        "--self-training",
        action="store_true",
        default=None,
        help="in place of the entropy: train, label, train on everything, until no label changes",
    )
    add(
        "--confidence",
        type=parse_probability,
        metavar="P",
        help="of self-training: learn only from labels at least so probable (from all)",
    )
    add(
        "--confidence-of",
        choices=("sentence", "token"),
        help="what has to be so probable (sentence)",
    )


def parse_entropy_weight(text: str) -> float:
    """A finite number, 0 or more, as an argument.

    Example:
        >>> parse_entropy_weight("0.5")
        0.5
    """
    return _number(text, math.inf, "a finite number, 0 or more")


def parse_probability(text: str) -> float:
    """A number from 0 to 1, as an argument.

    Example:
        >>> parse_probability("0.9")
        0.9
    """
    return _number(text, 1.0, "a probability, 0 to 1")


def _number(text: str, most: float, wanted: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 <= value <= most and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"expected {wanted}, got {text!r}")
    return value


def check_unlabelled_options(options: argparse.Namespace) -> None:
    """ValueError for options that do not go together."""
    given = {name for name in (*OPTIONS, "warm_start") if getattr(options, name) is not None}
    for name in OPTIONS:
        if name in given and options.unlabelled is None:
            raise ValueError(f"{_flag(name)}: expected along with --unlabelled FILE only")
    for name, others in EXCLUDED.items():
        for other in others:
            if {name, other} <= given:
                raise ValueError(f"{_flag(name)}: expected no {_flag(other)} along with it")
    for name, needed in (("confidence", "self_training"), ("confidence_of", "confidence")):
        if name in given and needed not in given:
            raise ValueError(f"{_flag(name)}: expected along with {_flag(needed)} only")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# --------------------------------------------------------------------------------------- file


class _Dealt:
    """Sentences that come one by one, of which every `step`-th from the `first` on is kept."""

    def __init__(self, part: Part):
        self._first, self._step = part
        self.seen = 0
        self.kept: list[Sentence] = []

    def take(self, make: Callable[[], Sentence]) -> None:
        """One more, which is made only if it is kept."""
        if self.seen % self._step == self._first:
            self.kept.append(make())
        self.seen += 1


def read_unlabelled(
    options: argparse.Namespace, train: Corpus, needed: Sequence[str], part: Part = (0, 1)
) -> list[Sentence]:
    """The sentences of ``--unlabelled``, without labels.

    Args:
        options: those of `add_unlabelled_options` and `add_corpus_options`.
        train: the labelled corpus, whose columns these are.
        needed: the columns that the templates read.
        part: which of all files' sentences to keep; the others are not held.

    Returns:
        The sentences; every file has at least one.
    """
    dealt = _Dealt(part)
    for path in options.unlabelled:
        before = dealt.seen
        if options.format == "conll":
            _read_columns(path, options, train, needed, dealt)
        else:
            require_file(path)
            for found in filter(len, _read_other(path, options.format)):
                dealt.take(lambda found=found: sentence_of({"word": found["word"]}, found.name))
        if dealt.seen == before:
            raise ValueError(f"{shown(path)}: expected at least one sentence, found none")
    return dealt.kept


def _read_other(path: str, form: str) -> list[Sentence]:
    """Of the formats that are not of columns, citations have one without labels: plain lines."""
    if form == "citations":
        require_rereadable(path, "its beginning tells whether its fields are tagged")
        first = next((line for line in iter_input(path) if line.strip()), "")
        if first.strip() != NEW_REFERENCE:
            return read_plain(path, tokenize=tokenize_citation)
    return read_other_format(path, form, scheme_to=None)


def _read_columns(
    path: str, options: argparse.Namespace, train: Corpus, needed: Sequence[str], dealt: _Dealt
) -> None:
    if path != STANDARD:
        require_file(path)
    names: Names = ()
    doubt = None
    for block in iter_blocks(path, options.delimiter):
        if block.is_docstart:
            continue
        if not names:
            place = f"{shown(path)}:{block.first}"
            names = names_without_label(block.width, train.names, place)
            there = [name for name in names if name is not None]
            chosen = options.templates
            reader = "the model" if chosen is None else f"the template set {chosen}"
            require_columns(needed, there, reader, place)
            if options.columns is None:
                doubt = _Doubt(names, train, needed, place)
        if doubt is not None:
            doubt.look_at(block)
        dealt.take(partial(_sentence, block, names))
    if doubt is not None:
        doubt.resolve()


def _sentence(block: Block, names: Names) -> Sentence:
    """One string for all its occurrences: there may be millions of tokens."""
    named = ((i, name) for i, name in enumerate(names) if name is not None)
    return sentence_of({name: tuple(map(sys.intern, block.column(i))) for i, name in named})


def names_without_label(width: int, names: Names, place: str) -> Names:
    """Names of the columns of an unlabelled file; None for one that is left out, as a label is.

    Args:
        width: how many columns the file has.
        names: of the columns of the labelled file, that of the label last.
        place: the file and the line, for messages.

    Example:
        >>> names_without_label(3, ("word", "pos", "label"), "more.txt:1")
        ('word', 'pos', None)
        >>> names_without_label(2, ("word", "pos", "label"), "more.txt:1")
        ('word', 'pos')
        >>> names_without_label(1, ("word", "pos", "label"), "more.txt:1")
        ('word',)
    """
    *features, label = names
    if width == len(names):
        return (*features, None)
    if width == len(features):
        return tuple(features)
    if width == 1:
        return tuple(name for name in features if name is not None)[:1]
    listed = ", ".join(name or "-" for name in features)
    raise ValueError(
        f"{place}: expected the columns of the labelled sentences ({listed}, {label}), with or "
        f"without the last, or words alone; found {width} columns"
    )


class _Doubt:
    """Whether a column that the templates read holds labels instead.

    Words and labels are as many columns as words and parts of speech. The O alone proves nothing.

    Args:
        names: of the file's columns. train: the labelled corpus. needed: what templates read.
        place: the file and the line, for messages.
    """

    def __init__(self, names: Names, train: Corpus, needed: Sequence[str], place: str):
        self._name = names[-1] if len(names) > 1 else None
        self._column, self._place = len(names) - 1, place
        self._labels = {label for labels in train.labels for label in labels}
        self._open = self._name is not None and self._name in needed
        self._cells: dict[str, None] = {}

    def look_at(self, block: Block) -> None:
        """A cell that is no label ends the doubt."""
        if self._open:
            self._cells.update(dict.fromkeys(block.column(self._column)))
            self._open = self._cells.keys() <= self._labels

    def resolve(self) -> None:
        """ValueError when all were labels."""
        if self._open and self._cells.keys() != {OUTSIDE}:
            raise ValueError(
                f"{self._place}: expected the column {self._name!r} in the place of column "
                f"{self._column + 1}, found labels such as {next(iter(self._cells))!r} (--columns "
                "says what the columns are)"
            )
