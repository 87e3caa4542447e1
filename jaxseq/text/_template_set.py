"""A set of templates: those for a label, those for a pair of labels, and plain transitions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from jaxseq.text._crfpp import is_crfpp_line, parse_crfpp_template
from jaxseq.text._template import Template
from jaxseq.text._template_parser import parse_template

_DIRECTIVE = re.compile(r"(edge|transitions)\s*:\s*(.*)")


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

    __slots__ = ("_bigram", "_transitions", "_unigram")

    def __init__(
        self,
        unigram: Iterable[str | Template],
        bigram: Iterable[str | Template] = (),
        transitions: bool = True,
    ):
        self._unigram = _as_templates(unigram, "unigram", "U")
        self._bigram = _as_templates(bigram, "bigram", "B")
        self._transitions = bool(transitions)

    @property
    def unigram(self) -> tuple[Template, ...]:
        """Templates of attributes that go with a label."""
        return self._unigram

    @property
    def bigram(self) -> tuple[Template, ...]:
        """Templates of attributes that go with a pair of labels."""
        return self._bigram

    @property
    def transitions(self) -> bool:
        """Whether plain label–label weights are wanted."""
        return self._transitions

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that the templates read, in the order of their first use."""
        atoms = (atom for template in self._unigram + self._bigram for atom in template.atoms)
        return tuple(dict.fromkeys(atom.column for atom in atoms))

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
            (number, line)
            for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1)
            if line.strip() and not line.lstrip().startswith("#")
        ]
        if not lines:
            raise ValueError(f"{source}: expected at least one template, found none")
        lines = [(number, line.removesuffix("\r")) for number, line in lines]
        if any(is_crfpp_line(line) for _, line in lines):
            return _parse_crfpp(lines, columns, source)
        return _parse_native(lines, source)

    def to_json(self) -> dict[str, Any]:
        """The set as lists, strings and a bool, ready for `json.dumps`.

        Example:
            >>> Templates(["word[0]"]).to_json()
            {'unigram': ['word[0]'], 'bigram': [], 'transitions': True}
        """
        return {
            "unigram": [_to_json(template) for template in self._unigram],
            "bigram": [_to_json(template) for template in self._bigram],
            "transitions": self._transitions,
        }

    @classmethod
    def from_json(cls, value: Any) -> Templates:
        """The set that `to_json` wrote; ValueError on anything else.

        Example:
            >>> Templates.from_json(Templates(["word[0]"]).to_json())
            Templates(['word[0]'], bigram=[], transitions=True)
        """
        keys = {"unigram", "bigram", "transitions"}
        if not isinstance(value, dict) or set(value) != keys:
            raise ValueError(f"templates: expected a dict of {sorted(keys)}, found {value!r:.80}")
        if not isinstance(value["transitions"], bool):
            raise ValueError(
                f"templates, transitions: expected a bool, found {value['transitions']!r:.80}"
            )
        lists = [value["unigram"], value["bigram"]]
        for name, items in zip(("unigram", "bigram"), lists):
            if not isinstance(items, list):
                raise ValueError(f"templates, {name}: expected a list, found {items!r:.80}")
        unigram, bigram = (list(map(_from_json, items)) for items in lists)
        return cls(unigram, bigram, value["transitions"])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Templates):
            return NotImplemented
        return self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def __repr__(self) -> str:
        unigram, bigram = (list(map(str, side)) for side in (self._unigram, self._bigram))
        return f"Templates({unigram}, bigram={bigram}, transitions={self._transitions})"

    def _parts(self) -> tuple[tuple[Template, ...], tuple[Template, ...], bool]:
        return self._unigram, self._bigram, self._transitions


def _as_templates(
    items: Iterable[str | Template], name: str, crfpp_letter: str
) -> tuple[Template, ...]:
    """Parsed, and without a repetition, which would give every attribute of it twice."""
    if isinstance(items, (str, Template)):
        raise ValueError(f"{name}: expected a list of templates, found the one {str(items)!r}")
    found: list[Template] = []
    for item in items:
        template = parse_template(item) if isinstance(item, str) else item
        if template.crfpp and not template.text.startswith(crfpp_letter):
            raise ValueError(
                f"{name}: expected CRF++ templates that begin with {crfpp_letter}, "
                f"found {template.text!r}"
            )
        # CRF++ itself takes a repeated line, and then counts the attribute twice.
        if template in found and not template.crfpp:
            raise ValueError(f"{name}: expected different templates, found twice {template.text!r}")
        found.append(template)
    return tuple(found)


def _to_json(template: Template) -> str | dict[str, str]:
    return {"crfpp": template.text} if template.crfpp else template.text


def _from_json(value: Any) -> Template:
    if isinstance(value, str):
        return parse_template(value)
    if isinstance(value, dict) and set(value) == {"crfpp"} and isinstance(value["crfpp"], str):
        return parse_crfpp_template(value["crfpp"])
    raise ValueError(f"templates: expected a string or {{'crfpp': string}}, found {value!r:.80}")


def _parse_crfpp(
    lines: list[tuple[int, str]], columns: Sequence[str] | None, source: str
) -> Templates:
    unigram: list[Template] = []
    bigram: list[Template] = []
    transitions = False
    for number, line in lines:
        try:
            template = parse_crfpp_template(line, columns)
        except ValueError as error:
            _fail(source, number, error)
        if template.text.startswith("U"):
            unigram.append(template)
        elif template.atoms:
            bigram.append(template)
        else:
            transitions = True
    return Templates(unigram, bigram, transitions)


def _parse_native(lines: list[tuple[int, str]], source: str) -> Templates:
    unigram: list[Template] = []
    bigram: list[Template] = []
    transitions = True
    for number, line in lines:
        directive = _DIRECTIVE.fullmatch(line.strip())
        keyword, rest = directive.groups() if directive else ("", line)
        try:
            if keyword == "transitions":
                transitions = _yes_or_no(rest)
                continue
            side = bigram if keyword == "edge" else unigram
            template = parse_template(rest)
            if template in side:
                raise ValueError(f"expected different templates, found twice {template.text!r}")
            side.append(template)
        except ValueError as error:
            _fail(source, number, error)
    return Templates(unigram, bigram, transitions)


def _yes_or_no(word: str) -> bool:
    if word not in ("yes", "no"):
        raise ValueError(f"transitions: expected yes or no, found {word!r}")
    return word == "yes"


def _fail(source: str, number: int, error: ValueError) -> NoReturn:
    raise ValueError(f"{source}:{number}: {error}") from None
