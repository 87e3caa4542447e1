"""The parser of templates in jaxseq's notation."""

from __future__ import annotations

import re
from typing import NoReturn

from jaxseq.text._template import LARGEST_OFFSET, Atom, Template, native_template
from jaxseq.text._template_functions import FUNCTIONS, Call

_NAME = re.compile(r'[^\s\[\](),|"]+')
_INTEGER = re.compile(r"[+-]?[0-9]+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_SPACE = re.compile(r"\s*")


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
      an attribute where they hold and nothing elsewhere.

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
is_upper, is_digits, match), found 'lowr'
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
            self.place = start
            self.fail(f"a function ({', '.join(FUNCTIONS)})", name)
        self.expect("(")
        inner = self.atom()
        call = Call(name, self.argument(FUNCTIONS[name].argument))
        self.expect(")")
        return Atom(inner.column, inner.offset, (*inner.calls, call))

    def cell(self, column: str) -> Atom:
        self.expect("[")
        self.skip_space()
        start = self.place
        digits = self.take(_INTEGER, "a whole number")
        if len(digits) > 10 or abs(int(digits)) > LARGEST_OFFSET:
            self.place = start
            self.fail(f"an offset from -{LARGEST_OFFSET} to {LARGEST_OFFSET}", digits)
        self.expect("]")
        return Atom(column, int(digits))

    def argument(self, kind: str) -> int | str | None:
        if kind == "none":
            return None
        self.expect(",")
        self.skip_space()
        start = self.place
        if kind == "length":
            digits = self.take(_INTEGER, "a length")
            if len(digits) > 10 or not 1 <= int(digits) <= LARGEST_OFFSET:
                self.place = start
                self.fail(f"a length from 1 to {LARGEST_OFFSET}", digits)
            return int(digits)
        pattern = self.take(_QUOTED, "a regular expression in double quotes")[1:-1]
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            self.place = start
            self.fail(f"a regular expression ({error})", pattern)
        return pattern

    def skip_space(self) -> None:
        match = _SPACE.match(self.text, self.place)
        self.place = match.end() if match else self.place

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

    def fail(self, expected: str, found: str | None = None) -> NoReturn:
        if found is None:
            found = self.text[self.place : self.place + 10]
        seen = repr(found) if found else "the end"
        where = f"template {self.text!r}, character {self.place + 1}"
        raise ValueError(f"{where}: expected {expected}, found {seen}")
