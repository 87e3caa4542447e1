"""Feature templates: their two notations, sets and files of them, and those of the papers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from jaxseq.text._functions import FUNCTIONS, STATE, Call, is_learnt
from jaxseq.text._readers import iter_lines
from jaxseq.text._vocabulary import ONLY_COLUMN

# One feature template: literal text and atoms, each atom a string near the token.


# Far past any use; it bounds the number of boundary values that a typing slip can ask for.
LARGEST_OFFSET = 1000
LARGEST = {"length": LARGEST_OFFSET, "size": 10_000_000}
"""Numbers that functions of templates take, at most."""


@dataclass(frozen=True)
class Atom:
    """A cell of a column, some tokens away, with functions applied to it first to last."""

    column: str
    offset: int
    calls: tuple[Call, ...] = ()

    @property
    def stream(self) -> tuple[str, tuple[Call, ...]]:
        """The atom without its offset: a column with functions applied."""
        return self.column, self.calls

    def __str__(self) -> str:
        text = f"{self.column}[{self.offset}]"
        for call in self.calls:
            text = call.around(text)
        return text


@dataclass(frozen=True)
class Template:
    """A parsed template: what turns a token into the name of one attribute.

    Args:
        text: the template as it would be written.
        pieces: literal strings and atoms, whose strings joined are the attribute's name.
        crfpp: whether ``text`` is in CRF++'s notation.

    Two templates with the same `skeleton` give the same attributes where their atoms have the
    same values. In jaxseq's notation that never happens, as the text is part of the name; in
    CRF++'s it does where identifiers are equal, which is its way to write a bag of words.

    Example:
        >>> from jaxseq.text import parse_template
        >>> template = parse_template("word[-1]|word[0]")
        >>> template.pieces[0], template.atoms[1]
        ('word[-1]|word[0]=', Atom(column='word', offset=0, calls=()))
        >>> template.name(["the", "dog"])
        'word[-1]|word[0]=the|dog'
    """

    text: str
    pieces: tuple[str | Atom, ...]
    crfpp: bool = False

    @property
    def atoms(self) -> tuple[Atom, ...]:
        """The atoms, in order."""
        return tuple(piece for piece in self.pieces if isinstance(piece, Atom))

    @property
    def skeleton(self) -> tuple[str | None, ...]:
        """The pieces with None in place of each atom."""
        return tuple(piece if isinstance(piece, str) else None for piece in self.pieces)

    def name(self, values: list[str]) -> str:
        """Name of the attribute, given the value of each atom."""
        remaining = iter(values)
        return "".join(
            piece if isinstance(piece, str) else next(remaining) for piece in self.pieces
        )

    def __str__(self) -> str:
        return self.text


def native_template(atoms: tuple[Atom, ...]) -> Template:
    """The template in jaxseq's notation with these atoms; without atoms the bias."""
    if not atoms:
        return Template("bias", ("bias",))
    # The template's own text begins the name: attributes of two templates never share one.
    text = "|".join(map(str, atoms))
    pieces: list[str | Atom] = [f"{text}=", atoms[0]]
    for atom in atoms[1:]:
        pieces += ["|", atom]
    return Template(text, tuple(pieces))


# The parser of templates in jaxseq's notation.


_NAME = re.compile(r'[^\s\[\](),|"]+')
_INTEGER = re.compile(r"[+-]?[0-9]+")
_ONLY_OFFSET = re.compile(r"\s*[+-]?[0-9]+\s*\)")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


def parse_template(text: str) -> Template:
    """Read one template in jaxseq's notation.

    A template is ``bias`` (one attribute on every token) or atoms joined by ``|``, whose values
    together are the attribute. An atom is ``column[offset]``, the column's string so many tokens
    to the right, or ``function(atom)``:

    - ``lower``, ``shape`` (``IL-2`` → ``AA-0``), ``short_shape`` (``A-0``), ``word_type`` (see
      `word_type`);
    - ``prefix(atom, n)``, ``suffix(atom, n)``: nothing where the string is shorter than n;
    - ``has_digit``, ``has_hyphen``, ``has_upper``, ``is_capitalized``, ``is_upper``,
      ``is_digits`` and ``match(atom, "regex")`` (the whole string matches) are flags: they give
      an attribute where they hold and nothing elsewhere;
    - ``cluster(atom, n)``, ``brown(atom, n)`` and ``state(cell)`` (or ``state(offset)``, of the
      column "word") are what a word representation has learnt from unlabelled text: the word's
      cluster among n, the first n bits of its Brown path, and the token's hidden state.

    Past the ends of a sentence an atom has the values ``_B-1``, ``_B-2``, … before the first
    token and ``_B+1``, ``_B+2``, … after the last (functions leave them as they are), and a flag
    gives nothing. A template of which an atom gives nothing gives no attribute. Inside the
    quotes of a regular expression everything counts as it stands; a quotation mark is ``\\"``.

    Args:
        text: the template; blanks around its parts do not matter.

    Returns:
        The template; its ``text`` is in a standard form.

    Raises:
        ValueError: with the place in the text, counted from 1.

    Example:
        >>> parse_template("word[-1] | suffix(lower(word[0]), 3)").text
        'word[-1]|suffix(lower(word[0]), 3)'
        >>> parse_template("word[0]|lowr(word[1])")
        Traceback (most recent call last):
        ...
        ValueError: template 'word[0]|lowr(word[1])', character 9: expected a function (lower, \
prefix, suffix, shape, short_shape, word_type, has_digit, has_hyphen, has_upper, is_capitalized, \
is_upper, is_digits, match, cluster, brown, state), found 'lowr'
    """
    if text.strip() == "bias":
        return native_template(())
    return native_template(_Parser(text).template())


class _Parser:
    """Recursive descent; ``place`` is the index of the next character to read."""

    def __init__(self, text: str):
        self.text = text
        self.place = 0

    def template(self) -> tuple[Atom, ...]:
        atoms = [self.atom()]
        while self.sees("|"):
            self.expect("|")
            atoms.append(self.atom())
        if self.place < len(self.text):
            self.fail("'|' or the end")
        return tuple(atoms)

    def atom(self) -> Atom:
        self.skip_space()
        start = self.place
        name = self.take(_NAME, "a column or a function")
        if self.sees("["):
            return self.cell(name)
        if not self.sees("("):
            self.fail("'[' or '('")
        if name not in FUNCTIONS:
            self.place = start  # errors point at the beginning of what is wrong
            self.fail(f"a function ({', '.join(FUNCTIONS)})", name)
        self.expect("(")
        if name == STATE and _ONLY_OFFSET.match(self.text, self.place):  # of the word there
            offset = self.number("a whole number", "an offset", -LARGEST_OFFSET)
            self.expect(")")
            return Atom(ONLY_COLUMN, offset, (Call(STATE),))
        inner = self.atom()
        call = Call(name, self.argument(FUNCTIONS[name].argument))
        self.expect(")")
        return Atom(inner.column, inner.offset, (*inner.calls, call))

    def cell(self, column: str) -> Atom:
        self.expect("[")
        offset = self.number("a whole number", "an offset", -LARGEST_OFFSET)
        self.expect("]")
        return Atom(column, offset)

    def argument(self, kind: str) -> int | str | None:
        if kind == "none":
            return None
        self.expect(",")
        if kind in ("length", "size"):
            return self.number(f"a {kind}", f"a {kind}", 1, LARGEST[kind])
        self.skip_space()
        start = self.place
        pattern = self.take(_QUOTED, "a regular expression in double quotes")[1:-1]
        # Compiled here already, so that the error has its place in the template.
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            self.place = start
            self.fail(f"a regular expression ({error})", pattern)
        return pattern

    def number(self, what: str, bounded: str, least: int, most: int = LARGEST_OFFSET) -> int:
        self.skip_space()
        start = self.place
        digits = self.take(_INTEGER, what)
        # int() of very many digits takes long, and raises an error of its own.
        if len(digits) > 10 or not least <= int(digits) <= most:
            self.place = start
            self.fail(f"{bounded} from {least} to {most}", digits)
        return int(digits)

    def skip_space(self) -> None:
        while self.text[self.place : self.place + 1].isspace():
            self.place += 1

    def sees(self, sign: str) -> bool:
        self.skip_space()
        return self.text.startswith(sign, self.place)

    def expect(self, sign: str) -> None:
        if not self.sees(sign):
            self.fail(f"{sign!r}")
        self.place += len(sign)

    def take(self, pattern: re.Pattern[str], what: str) -> str:
        self.skip_space()
        match = pattern.match(self.text, self.place)
        if match is None:
            self.fail(what)
        self.place = match.end()
        return match[0]

    def fail(self, expected: str, seen: str | None = None) -> NoReturn:
        if seen is None:
            seen = self.text[self.place : self.place + 10]
        seen = repr(seen) if seen else "the end"
        where = f"template {self.text!r}, character {self.place + 1}"
        raise ValueError(f"{where}: expected {expected}, found {seen}")


# Templates in the notation of CRF++.


# A column is a number in files of CRF++, and a name in the templates that we store.
_MACRO = re.compile(r"%x\[([+-]?[0-9]+),([^\]]+)\]")
_WITHOUT_MACRO = re.compile(r"[UB][0-9]*(:.*)?")


def is_crfpp_line(line: str) -> bool:
    """Whether a line is a template of CRF++ and cannot be one in jaxseq's notation."""
    if not line.startswith(("U", "B")):
        return False
    return "%x[" in line or _WITHOUT_MACRO.fullmatch(line) is not None


def parse_crfpp_template(line: str, columns: Sequence[str] | None = None) -> Template:
    """Read one line of a CRF++ template file, whose columns 0, 1, … may have names.

    ``%x[row,column]`` stands for the cell so many rows below the token's; all other text stands
    for itself and is part of the attribute's name, as in CRF++. The first letter says what the
    attribute goes with: ``U`` a label, ``B`` a pair of labels.

    Example:
        >>> template = parse_crfpp_template("U01:%x[-1,0]/%x[0,1]", ("word", "pos"))
        >>> template.text, template.name(["the", "NN"])
        ('U01:%x[-1,word]/%x[0,pos]', 'U01:the/NN')
    """
    if not line.startswith(("U", "B")):
        raise ValueError(f"CRF++ template {line!r}: expected U or B as the first letter")
    pieces: list[str | Atom] = []
    place = 0
    while (percent := line.find("%", place)) >= 0:
        macro = _MACRO.match(line, percent)
        if macro is None:
            raise ValueError(
                f"CRF++ template {line!r}, character {percent + 1}: expected %x[row,column], "
                f"found {line[percent : percent + 10]!r}"
            )
        pieces += [line[place:percent], _cell(line, macro, columns)]
        place = macro.end()
    pieces.append(line[place:])
    # Without empty pieces, so that equal templates have equal skeletons.
    kept = tuple(piece for piece in pieces if piece != "")
    return Template("".join(map(_as_written, kept)), kept, crfpp=True)


def _cell(line: str, macro: re.Match[str], columns: Sequence[str] | None) -> Atom:
    where = f"CRF++ template {line!r}, character {macro.start() + 1}"
    row, column = macro.groups()
    if len(row) > 10 or abs(int(row)) > LARGEST_OFFSET:
        raise ValueError(
            f"{where}: expected a row from -{LARGEST_OFFSET} to {LARGEST_OFFSET}, found {row}"
        )
    if columns is None:
        return Atom(column, int(row))
    if not column.isascii() or not column.isdecimal() or len(column) > 10:
        raise ValueError(f"{where}: expected the number of a column, found {column!r}")
    if int(column) >= len(columns):
        named = ", ".join(columns)
        raise ValueError(
            f"{where}: expected a column from 0 to {len(columns) - 1} ({named}), found {column}"
        )
    name = columns[int(column)]
    if not name or "]" in name:
        raise ValueError(f"columns: expected names without ']', found {name!r}")
    return Atom(name, int(row))


def _as_written(piece: str | Atom) -> str:
    return piece if isinstance(piece, str) else f"%x[{piece.offset},{piece.column}]"


_DIRECTIVE = re.compile(r"(edge|transitions)\s*:\s*(.*)")


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Templates:
    """Feature templates, in order; immutable, and equal when all their templates are.

    Args:
        unigram: templates of attributes that go with a label, as strings (see `parse_template`)
            or `Template` objects.
        bigram: templates of attributes that go with the pair of a token's label and the one
            before it.
        transitions: whether a model should also have a weight for every pair of labels, whatever
            the tokens are. A CRF++ file says so with a plain ``B`` line.

    Example:
        >>> templates = Templates(["word[0]", "word[-1]|word[0]", "bias"])
        >>> len(templates.unigram), templates.bigram, templates.transitions
        (3, (), True)
        >>> templates == Templates(["word[0]", "word[-1] | word[0]", "bias"])
        True
    """

    unigram: tuple[Template, ...]
    bigram: tuple[Template, ...]
    transitions: bool

    def __init__(
        self,
        unigram: Iterable[str | Template],
        bigram: Iterable[str | Template] = (),
        transitions: bool = True,
    ):
        # The fields of a frozen dataclass are set once, past its own __setattr__.
        object.__setattr__(self, "unigram", _as_templates(unigram, "unigram", "U"))
        object.__setattr__(self, "bigram", _as_templates(bigram, "bigram", "B"))
        object.__setattr__(self, "transitions", bool(transitions))

    @property
    def need_representation(self) -> bool:
        """Whether some call ``cluster``, ``brown`` or ``state``."""
        return any(is_learnt(atom.calls) for atom in self._atoms())

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that the templates read, in the order of their first use."""
        return tuple(dict.fromkeys(atom.column for atom in self._atoms()))

    def extended(self, unigram: Iterable[str | Template]) -> Templates:
        """These templates, and more of the first kind."""
        return Templates([*self.unigram, *unigram], self.bigram, self.transitions)

    def _atoms(self) -> Iterator[Atom]:
        return (atom for template in self.unigram + self.bigram for atom in template.atoms)

    @classmethod
    def parse(
        cls, text: str, columns: Sequence[str] | None = None, source: str = "templates"
    ) -> Templates:
        """Read the text of a template file, in jaxseq's notation or in that of CRF++.

        It is CRF++'s when a line begins with ``U`` or ``B`` and holds ``%x[``, or is only such a
        letter with a number or an identifier. Blank lines and lines that begin with ``#`` are
        skipped. In jaxseq's notation, a line is a template, or ``edge:`` and a template that goes
        with a pair of labels, or ``transitions: no`` (or ``yes``, which is the default).

        Args:
            text: the lines.
            columns: names of the columns 0, 1, … of a CRF++ file; None calls them "0", "1", ….
            source: what an error message calls the text, e.g. the file's path.

        Example:
            >>> Templates.parse("# words\\nword[0]\\nedge: word[0]")
            Templates(['word[0]'], bigram=['word[0]'], transitions=True)
            >>> Templates.parse("U00:%x[0,0]\\nB", columns=["word"])
            Templates(['U00:%x[0,word]'], bigram=[], transitions=True)
        """
        lines = [
            (number, line.removesuffix("\r"))
            for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1)
            if line.strip() and not line.lstrip().startswith("#")
        ]
        if not lines:
            raise ValueError(f"{source}: expected at least one template, found none")
        crfpp = any(is_crfpp_line(line) for _, line in lines)
        transitions = not crfpp  # which CRF++ has only where a plain B line asks for them
        sides: dict[str, list[Template]] = {"unigram": [], "bigram": []}
        for number, line in lines:
            try:
                side, template = _parse_crfpp(line, columns) if crfpp else _parse_native(line)
                if isinstance(template, bool):
                    transitions = template
                elif not crfpp and template in sides[side]:
                    raise ValueError(f"expected different templates, found twice {template.text!r}")
                else:
                    sides[side].append(template)
            except ValueError as error:
                raise ValueError(f"{source}:{number}: {error}") from None
        return cls(**sides, transitions=transitions)

    def to_json(self) -> dict[str, Any]:
        """The set as lists, strings and a bool, ready for `json.dumps`."""
        return {
            "unigram": [_to_json(template) for template in self.unigram],
            "bigram": [_to_json(template) for template in self.bigram],
            "transitions": self.transitions,
        }

    @classmethod
    def from_json(cls, value: Any) -> Templates:
        """The set that `to_json` wrote; ValueError on anything else."""
        keys = {"unigram", "bigram", "transitions"}
        if not isinstance(value, dict) or set(value) != keys:
            raise ValueError(f"templates: expected a dict of {sorted(keys)}, found {value!r:.80}")
        if not isinstance(value["transitions"], bool):
            raise ValueError(
                f"templates, transitions: expected a bool, found {value['transitions']!r:.80}"
            )
        for name in ("unigram", "bigram"):
            if not isinstance(value[name], list):
                raise ValueError(f"templates, {name}: expected a list, found {value[name]!r:.80}")
        unigram, bigram = (map(_from_json, value[name]) for name in ("unigram", "bigram"))
        return cls(unigram, bigram, value["transitions"])

    def __repr__(self) -> str:
        unigram, bigram = (list(map(str, side)) for side in (self.unigram, self.bigram))
        return f"Templates({unigram}, bigram={bigram}, transitions={self.transitions})"


def _as_templates(
    items: Iterable[str | Template], name: str, crfpp_letter: str
) -> tuple[Template, ...]:
    """Parsed, and without a repetition, which would give every attribute of it twice."""
    if isinstance(items, (str, Template)):
        raise ValueError(f"{name}: expected a list of templates, found the one {str(items)!r}")
    templates: list[Template] = []
    for item in items:
        template = parse_template(item) if isinstance(item, str) else item
        # The letter says which side it is for, and so must not contradict the argument.
        if template.crfpp and not template.text.startswith(crfpp_letter):
            raise ValueError(
                f"{name}: expected CRF++ templates that begin with {crfpp_letter}, "
                f"found {template.text!r}"
            )
        # CRF++ itself takes a repeated line, and then counts the attribute twice.
        if template in templates and not template.crfpp:
            raise ValueError(f"{name}: expected different templates, found twice {template.text!r}")
        templates.append(template)
    return tuple(templates)


def _to_json(template: Template) -> str | dict[str, str]:
    return {"crfpp": template.text} if template.crfpp else template.text


def _from_json(value: Any) -> Template:
    if isinstance(value, str):
        return parse_template(value)
    if isinstance(value, dict) and set(value) == {"crfpp"} and isinstance(value["crfpp"], str):
        return parse_crfpp_template(value["crfpp"])
    raise ValueError(f"templates: expected a string or {{'crfpp': string}}, found {value!r:.80}")


def _parse_crfpp(line: str, columns: Sequence[str] | None) -> tuple[str, Template | bool]:
    """A line's side, and its template; True for a plain B line, which asks for transitions."""
    template = parse_crfpp_template(line, columns)
    if template.text.startswith("U"):
        return "unigram", template
    return "bigram", template if template.atoms else True


def _parse_native(line: str) -> tuple[str, Template | bool]:
    """A line's side, and its template; a bool for a line that says whether to have transitions."""
    directive = _DIRECTIVE.fullmatch(line.strip())
    keyword, text = directive.groups() if directive else ("", line)
    if keyword != "transitions":
        return "bigram" if keyword == "edge" else "unigram", parse_template(text)
    if text not in ("yes", "no"):
        raise ValueError(f"transitions: expected yes or no, found {text!r}")
    return keyword, text == "yes"


def read_templates(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> Templates:
    """Read a file of templates, one per line, in jaxseq's notation or in that of CRF++.

    Which of the two it is shows in the lines themselves; see `Templates.parse`. A CRF++ file is
    read as it is. Its plain ``B`` line becomes ``transitions``: without one, there are none.

    Args:
        path: the file, in UTF-8.
        columns: names of the columns 0, 1, … of a CRF++ file; None calls them "0", "1", ….

    Raises:
        ValueError: ``path:line: …`` on a line that is no template.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "template")
        ...     _ = path.write_text("# words\\nU00:%x[-1,0]\\nU01:%x[0,0]\\n\\nB\\n")
        ...     read_templates(path, columns=["word"])
        Templates(['U00:%x[-1,word]', 'U01:%x[0,word]'], bigram=[], transitions=True)
    """
    return Templates.parse("\n".join(iter_lines(path)), columns, os.fspath(path))


# Sets of feature templates: one for any corpus, and those of the papers.


def _around(atom: str, offsets: Iterable[int]) -> list[str]:
    """The atom, in which ``#`` stands for the offset, at each offset."""
    return [atom.replace("#", str(offset)) for offset in offsets]


def _joined(atom: str, windows: Iterable[tuple[int, ...]]) -> list[str]:
    """The conjunction of the atom at the offsets of each window."""
    return ["|".join(_around(atom, window)) for window in windows]


_NEAR = (-2, -1, 0, 1, 2)
_NEXT = (-1, 0, 1)
_PAIRS = ((-2, -1), (-1, 0), (0, 1), (1, 2))

TOKEN_IDENTITY = Templates(["word[0]"])
"""The word itself and nothing else: what an HMM sees.

Example:
    >>> TOKEN_IDENTITY.columns
    ('word',)
"""


def general_templates(columns: Sequence[str] = (ONLY_COLUMN,)) -> Templates:
    """Templates for any corpus: words, their spelling and neighbours, and all other columns.

    Args:
        columns: what the sentences have, without what is to be learnt. The words are the column
            "word", or else the first.

    Example:
        >>> general_templates() == GENERAL
        True
        >>> general_templates(["word", "pos"]).unigram[-1].text
        'prefix(pos[0], 2)|prefix(pos[1], 2)'
    """
    if not columns:
        raise ValueError("columns: expected at least one, got none")
    words = ONLY_COLUMN if ONLY_COLUMN in columns else columns[0]

    def around(call: str, column: str, offsets: Sequence[int]) -> list[str]:
        at = {offset: call.format(f"{column}[{offset}]") for offset in offsets}
        return [*at.values(), f"{at[-1]}|{at[0]}", f"{at[0]}|{at[1]}"]

    templates = ["bias", *around("lower({})", words, _NEAR)]
    for end in ("prefix", "suffix"):
        templates += [f"{end}(lower({words}[0]), {size})" for size in (1, 2, 3, 4)]
    templates += [f"shape({words}[0])", *around("short_shape({})", words, _NEAR)]
    flags = ("has_digit", "has_hyphen", "is_digits", "is_upper")
    templates += [f"{flag}({words}[0])" for flag in flags]
    for column in columns:
        if column != words:
            # What tags begin with is a coarser tag: NN of NNS, VB of VBD.
            for call in ("{}", "prefix({}, 2)"):
                templates += around(call, column, _NEXT)
    return Templates(templates)


GENERAL = general_templates()
"""What a tagger takes where no templates are named: `general_templates` of the words alone.

Example:
    >>> GENERAL.columns, len(GENERAL.unigram)
    (('word',), 28)
"""

CONLL2000 = Templates(
    [
        *_around("word[#]", _NEAR),
        *_joined("word[#]", [(-1, 0), (0, 1)]),
        *_around("pos[#]", _NEAR),
        *_joined("pos[#]", _PAIRS),
        *_joined("pos[#]", [(-2, -1, 0), (-1, 0, 1), (0, 1, 2)]),
    ]
)
"""Chunking: the 19 templates of Wanvarie et al. (2011), table 2, for ``word`` and ``pos``.

On the training part of CoNLL-2000 they give 338,551 attributes, and one more with ``bias``.

Example:
    >>> len(CONLL2000.unigram), CONLL2000.columns, CONLL2000.transitions
    (19, ('word', 'pos'), True)

Reference: Wanvarie, Takamura and Okumura (2011), Active learning with subsequence sampling
strategy for sequence labeling tasks, table 2.
"""

CONLL2003 = Templates(
    [
        *_around("word[#]", _NEAR),
        *_joined("word[#]", [(-4, -3, -2, -1), (1, 2, 3, 4)]),
        *_around("lower(word[#])", _NEAR),
        *_joined("lower(word[#])", _PAIRS),
        *_around("word_type(word[#])", _NEAR),
        *_around("pos[#]", _NEAR),
        *_joined("pos[#]", [*_PAIRS, (-1, 0, 1)]),
        *_around("chunk[#]", _NEAR),
        *_joined("chunk[#]", [*_PAIRS, (-1, 0, 1)]),
        *_around("prefix(word[#], 2)", _NEXT),
        *_around("prefix(word[#], 3)", _NEXT),
        *_around("suffix(word[#], 2)", _NEXT),
        *_around("suffix(word[#], 3)", _NEXT),
    ]
)
"""Named entities: the 53 templates of Wanvarie et al. (2011), table 2, right-hand side.

For the columns ``word``, ``pos`` and ``chunk``. A word shorter than a prefix or a suffix does not
have it, and `word_type` says how the overlapping types of table 3 become one attribute; the paper
leaves both open.

Example:
    >>> len(CONLL2003.unigram), CONLL2003.columns
    (53, ('word', 'pos', 'chunk'))

Reference: Wanvarie, Takamura and Okumura (2011), tables 2 and 3.
"""

_GREEK = (
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|omicron|pi|rho|"
    "sigma|tau|upsilon|phi|chi|psi|omega"
)
_LONG_GREEK = "alpha|beta|gamma|delta|epsilon|theta|kappa|lambda|sigma|omega"  # eta is in "beta"
_SPELLINGS = (
    "[A-Z].*",  # begins with a capital
    "[A-Z][a-z]*",  # one capital, then small letters
    "[A-Z]+",
    "[A-Za-z]+",
    ".*[a-z][A-Z].*",  # a capital after a small letter
    "[A-Z]",
    ".*[0-9].*",
    "[0-9]",
    "[0-9][0-9]",
    "[0-9]+",
    "[+-]?[0-9]+[.,][0-9.,]*",  # a real number
    "[A-Za-z0-9]*([A-Za-z][0-9]|[0-9][A-Za-z])[A-Za-z0-9]*",  # letters and digits together
    "[IVXLCDM]+|[ivxlcdm]+",  # a Roman numeral
    ".*-.*",
    "-.*",
    ".*-",
    ".*/.*",
    "[^A-Za-z0-9]+",  # punctuation
    "[()\\[\\]]",
    "['`\\\"]+",
    f"(?i:{_GREEK})",
    f"(?i:.*({_LONG_GREEK}).*)",
    "[ACGTU]+",  # a nucleotide sequence
)

GENE_MENTION = Templates(
    [
        "bias",
        *_around("word[#]", _NEAR),
        *_joined("word[#]", [(-1, 0), (0, 1)]),
        *_around("lower(word[#])", _NEXT),
        *[f"{end}(word[0], {size})" for end in ("prefix", "suffix") for size in (1, 2, 3, 4)],
        *_around("shape(word[#])", _NEXT),
        *_around("short_shape(word[#])", _NEAR),
        *_joined("short_shape(word[#])", [(-1, 0), (0, 1), (-1, 0, 1)]),
        *[f'match(word[{offset}], "{spelling}")' for spelling in _SPELLINGS for offset in _NEXT],
    ]
)
"""Gene mentions: templates in the style of McDonald and Pereira (2005), for ``word`` alone.

Words in a window of two and their conjunctions, prefixes and suffixes of up to four characters,
word shapes in full and with runs made one, and 23 orthographic predicates, each a regular
expression that the whole word matches, on the word and its two neighbours. The style is theirs;
the list of predicates is not a copy of theirs, and lexicons are left out.

Example:
    >>> GENE_MENTION.columns, len(GENE_MENTION.unigram)
    (('word',), 99)

Reference: McDonald and Pereira (2005), Identifying gene and protein mentions in text using
conditional random fields, BMC Bioinformatics 6 (Suppl 1): S6. Jiao, Wang, Lee, Greiner and
Schuurmans (2006) use the same features for semi-supervised learning.
"""
