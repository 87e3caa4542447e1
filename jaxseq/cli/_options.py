"""Options that several commands share, and the types of their arguments."""

from __future__ import annotations

import argparse
import importlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

# A name for each column of a file; None for one that is left out.
Names = tuple[str | None, ...]

# Choices of ``--weights``.
WEIGHTS = ("mixed", "observed", "dense", "tied")


LARGEST = 2**31 - 1  # of whole numbers; no count of anything comes near it

LONGEST_MESSAGE = 1000  # characters; a message may quote a line of a file that is no text


def one_line(message: str) -> str:
    """The message without line ends, and not longer than one can read."""
    line = " ".join(message.split("\n"))
    if len(line) <= LONGEST_MESSAGE:
        return line
    # A message begins with the place and ends with what is wrong there: a long list of what was
    # expected is in the middle.
    half = LONGEST_MESSAGE // 2
    return f"{line[:half]} … {line[-half:]}"


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors are one line, and whose options are added when it is first used.

    So ``jaxseq --help`` need not import the modules of all commands, and options may be added to
    one without slowing down the others.
    """

    def __init__(
        self, add_options: Callable[[CommandParser], Any] | None = None, **settings: Any
    ) -> None:
        # An abbreviation would change its meaning with every option that is added.
        super().__init__(allow_abbrev=False, **settings)
        self.register("type", int, parse_int)
        self._add_options = add_options
        self._default: str | None = None

    def add_commands(
        self,
        commands: Mapping[str, tuple[str, Callable[[CommandParser], Any]]],
        title: str,
        default: str | None = None,
    ) -> None:
        """Add sub-commands: by name a line of help, and what adds the options.

        The default is meant where the first argument is an option.
        """
        parsers = self.add_subparsers(title=title, metavar=title.removesuffix("s"), required=True)
        for name, (line, add_options) in commands.items():
            parsers.add_parser(name, help=line, add_options=add_options)
        self._default = default

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse's, which calls it for sub-commands as well."""
        if self._add_options is not None:  # once, as tests may parse more than one line
            add_options, self._add_options = self._add_options, None
            add_options(self)
        args = None if args is None else self._with_dashes(args)
        if self._default is not None and args is not None:
            first = next(iter(args), "-")
            if first.startswith("-") and first not in ("-h", "--help"):
                args = [self._default, *args]
        # With the options of a sub-command come those of the parser above it.
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:  # here, so that the message begins with the command that lacks the option
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown

    def _with_dashes(self, args: Sequence[str]) -> list[str]:
        """The arguments, where argparse would take the value of an option for another option.

        Names may begin with a dash, as in ``--columns -,word`` and ``--label -LRB-``; an option of
        ours begins with two, but for ``-h``.
        """
        joined: list[str] = []
        for arg in args:
            option = self._option_string_actions.get(joined[-1]) if joined else None
            takes_one = option is not None and option.nargs is None
            if takes_one and re.match(r"-[^-]", arg) and arg not in self._option_string_actions:
                joined[-1] += f"={arg}"
            else:
                joined.append(arg)
        return joined

    def error(self, message: str) -> NoReturn:
        """End the process with exit status 2."""
        self.exit(2, f"{self.prog}: error: {one_line(message)}\n")


def loaded_later(module: str, function: str) -> Callable[[CommandParser], Any]:
    """A function of a module of the command line, which is imported when it is called."""

    def add_options(parser: CommandParser) -> Any:
        return getattr(importlib.import_module(f"jaxseq.cli.{module}"), function)(parser)

    return add_options


def flag(name: str) -> str:
    """How an option is written, by the name of its value."""
    return f"--{name.replace('_', '-')}"


def require_with(options: argparse.Namespace, names: tuple[str, ...], needed: str) -> None:
    """ValueError where an option is set although the one it needs (``--x FILE``) is not."""
    other = needed.split()[0].removeprefix("--").replace("-", "_")
    if getattr(options, other) is not None:
        return
    for name in names:
        if getattr(options, name) is not None:
            raise ValueError(f"{flag(name)}: expected along with {needed} only")


# Types of arguments. Their errors are argparse's own: it adds the option that they are about.


def parse_int(text: str) -> int:
    """A whole number that has room everywhere, as an argument; what ``type=int`` means."""
    # Neither ten digits nor thousands, of which int() has an error of its own.
    value = int(text) if len(text) < 20 else LARGEST + 1
    if abs(value) > LARGEST:
        raise argparse.ArgumentTypeError(f"expected at most {LARGEST}, got {text!r:.60}")
    return value


def parse_count(text: str) -> int:
    """A whole number, 1 or more, as an argument."""
    # Nine digits are plenty; int() refuses thousands of them with an error of its own.
    if not (text.isascii() and text.isdigit() and int(text[:9]) > 0):
        raise argparse.ArgumentTypeError(f"expected a whole number, 1 or more, got {text!r:.60}")
    return int(text)


def _number_parser(wanted: str, is_right: Callable[[float], bool]) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan  # which fails all comparisons, as "nan" itself does
        if not (is_right(value) and math.isfinite(value)):
            raise argparse.ArgumentTypeError(f"expected {wanted}, got {text!r}")
        return value

    return parse


parse_weight = _number_parser("a finite number, 0 or more", lambda value: value >= 0)
parse_probability = _number_parser("a probability, 0 to 1", lambda value: 0 <= value <= 1)
parse_smoothing = _number_parser("a number, more than 0", lambda value: value > 0)


AUTO = "auto"
"""In place of a number: the one that cross-validation chooses."""


def parse_l2(text: str) -> float | str:
    """A number, or ``auto``, as an argument."""
    try:
        return AUTO if text == AUTO else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number or auto, got {text!r:.60}") from None


def parse_labels(text: str) -> tuple[str, ...]:
    """Different labels separated by commas, as an argument."""
    labels = tuple(label.strip() for label in text.split(","))
    if "" in labels or len(set(labels)) < len(labels):
        raise argparse.ArgumentTypeError(
            f"expected different labels separated by commas, such as B-NP,I-NP,O, got {text!r}"
        )
    return labels


KINDS = ("clusters", "brown", "states")  # of what can be learnt of words


def parse_kinds(text: str) -> tuple[str, ...]:
    """Different kinds of what can be learnt of words, as an argument."""
    kinds = tuple(kind.strip() for kind in text.split(","))
    if not set(kinds) <= set(KINDS) or len(set(kinds)) < len(kinds):
        raise argparse.ArgumentTypeError(
            f"expected some of {', '.join(KINDS)}, separated by commas, got {text!r:.60}"
        )
    return kinds


def parse_sizes(text: str) -> tuple[int, ...]:
    """Different whole numbers separated by commas, as an argument."""
    return tuple(parse_count(part.strip()) for part in text.split(","))


def parse_columns(text: str) -> Names:
    """Names separated by commas, as an argument; ``-`` is None.

    Example:
        >>> parse_columns("word,-,label")
        ('word', None, 'label')
    """
    names = tuple(None if name.strip() == "-" else name.strip() for name in text.split(","))
    # Equal names would be one column of a sentence.
    kept = [name for name in names if name is not None]
    if not kept or "" in kept or len(set(kept)) < len(kept):
        raise argparse.ArgumentTypeError(
            f"expected different names separated by commas, such as word,pos,label, got {text!r}"
        )
    return names


def parse_encoding(text: str) -> str:
    """An encoding of text that Python knows, as an argument."""
    from jaxseq.text import text_encoding  # which ``jaxseq --help`` does not need

    try:
        text_encoding(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected an encoding of text, such as utf-8 or latin-1, got {text!r:.60}"
        ) from None
    return text


def parse_label_column(text: str) -> str | int:
    """The name of a column, or its number from 1 on, as an argument."""
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,8}", text) else text


def parse_delimiter(text: str) -> str:
    r"""The text between columns, as an argument: ``tab`` and ``\t`` are the tab.

    Example:
        >>> parse_delimiter("tab"), parse_delimiter(";")
        ('\t', ';')
    """
    delimiter = {"tab": "\t", "\\t": "\t", "space": " "}.get(text, text)
    if not delimiter or set("\r\n") & set(delimiter):
        raise argparse.ArgumentTypeError(f"expected text within one line, got {text!r}")
    return delimiter


# Groups of options. `add` is the method `add_argument` of a parser or of a group.


def add_column_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--columns",
        type=parse_columns,
        metavar="word,pos,label",
        help="names of the columns, with - for one to leave out; by default word,label or "
        "word,pos,label or word,pos,chunk,label, depending on how many there are, and of CoNLL-U "
        "id,word,lemma,upos,xpos,feats,head,deprel,deps,misc",
    )
    parser.add_argument(
        "--delimiter",
        type=parse_delimiter,
        metavar="TEXT",
        help="what separates the columns (tab for a tab); by default spaces and tabs, and the tabs "
        "of CoNLL-U, which is noticed by its first line",
    )
    parser.add_argument(
        "--encoding",
        type=parse_encoding,
        default="utf-8",
        metavar="NAME",
        help="of the sentences that are read (utf-8)",
    )


def add_format_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--format`` and ``--tokenize``, of sentences that need no labels."""
    parser.add_argument(
        "--format",
        choices=("conll", "plain"),
        default="conll",
        help="of the input: columns, with or without labels, or plain text with one sentence per "
        "line (conll, which CoNLL-U is, too)",
    )
    parser.add_argument(
        "--tokenize",
        choices=("spaces", "punctuation"),
        default="spaces",
        help="how to split plain text: at spaces, or also with each punctuation mark a token of "
        "its own (spaces)",
    )


def check_format_options(options: argparse.Namespace) -> None:
    """ValueError for options of the other format."""
    if options.format == "plain" and options.columns is not None:
        raise ValueError("--columns: expected with --format conll only")
    if options.format == "conll" and options.tokenize != "spaces":
        raise ValueError("--tokenize: expected with --format plain only")


def tokenizer(options: argparse.Namespace) -> Callable[[str], list[str]]:
    """What splits a line of plain text, by ``--tokenize``."""
    from jaxseq.text import tokenize  # which ``jaxseq --help`` does not need

    return tokenize if options.tokenize == "punctuation" else str.split


def add_label_column_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--label-column",
        type=parse_label_column,
        metavar="NAME",
        help="the column of the labels, by its name or its number from 1 on; the last by default",
    )


def add_corpus_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how labelled files are to be read."""
    add_column_options(parser)
    add_label_column_option(parser)
    parser.add_argument(
        "--unknown-label",
        metavar="TEXT",
        help="what the labelled files have for a label that is not known (such as ?)",
    )
    parser.add_argument(
        "--scheme-to",
        metavar="IOB2",
        help="convert the labels to IOB1, IOB2, IOBES or BILOU while reading",
    )


def add_model_settings(add: Any, iterations: str, *, asking: bool = False) -> None:
    """Add the settings of a CRF that every command which trains one has, if only to ask."""
    add("--l1", type=float, default=0.0, metavar="X", help="strength of the L1 penalty (0)")
    if asking:
        add("--l2", type=float, metavar="X", help="strength of the L2 penalty, for rounds (1)")
    else:
        add(
            "--l2",
            type=parse_l2,
            metavar="X",
            help="strength of the L2 penalty (1 for 200,000 labelled tokens, in proportion less "
            "for fewer); auto takes the best of a few in 5-fold cross-validation on the labelled "
            "sentences",
        )
    add("--max-iterations", type=int, default=500, metavar="N", help=f"{iterations} (500)")
    add(
        "--weights",
        choices=WEIGHTS,
        default="mixed",
        help="which pairs of an attribute and a label have a weight (mixed)",
    )
    add("--cutoff", type=int, default=1, metavar="N", help="ignore attributes rarer than this (1)")
    add("--scheme", metavar="IOB2", help="forbid label sequences that this scheme does not allow")


def add_classes_option(add: Any) -> None:
    add(
        "--classes",
        type=parse_labels,
        metavar="LABELS",
        help="all labels, separated by commas, where the labelled sentences may lack some",
    )


def add_constraint_options(add: Any) -> None:
    """Add ``--constraints`` and ``--beam``."""
    add(
        "--constraints",
        metavar="FILE",
        help="rules that labellings should obey, in TOML (see jaxseq.constraints."
        "read_constraints); the best labelling is that of the highest score less the penalties",
    )
    add(
        "--beam",
        type=parse_count,
        metavar="N",
        help="hypotheses kept while searching under constraints (50)",
    )


def check_constraint_options(options: argparse.Namespace, labellings: int | None = None) -> None:
    """ValueError for a beam without constraints, or too narrow for the labellings wanted."""
    require_with(options, ("beam",), "--constraints FILE")
    if options.beam is not None and labellings is not None and options.beam < labellings:
        raise ValueError(
            f"--beam: expected at least as many as labellings are wanted, {labellings}, got "
            f"{options.beam}"
        )
