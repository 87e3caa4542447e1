"""One feature template: literal text and atoms, each atom a string near the token."""

from __future__ import annotations

from dataclasses import dataclass

from jaxseq.text._template_functions import Call

# Far past any use; it bounds the number of boundary values that a typing slip can ask for.
LARGEST_OFFSET = 1000


@dataclass(frozen=True)
class Atom:
    """A cell of a column, some tokens away, with functions applied to it first to last.

    Example:
        >>> str(Atom("word", -1, (Call("lower"), Call("prefix", 2))))
        'prefix(lower(word[-1]), 2)'
    """

    column: str
    offset: int
    calls: tuple[Call, ...] = ()

    def __str__(self) -> str:
        text = f"{self.column}[{self.offset}]"
        for call in self.calls:
            text = call.around(text)
        return text


@dataclass(frozen=True)
class Template:
    """A parsed template: what turns a token into the name of one attribute.

    text: the template as it would be written. pieces: literal strings and atoms, whose strings
    joined are the attribute's name. crfpp: whether ``text`` is in CRF++'s notation.

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
    """The template in jaxseq's notation with these atoms; without atoms the bias.

    Example:
        >>> native_template((Atom("pos", 1),)).text, native_template(()).pieces
        ('pos[1]', ('bias',))
    """
    if not atoms:
        return Template("bias", ("bias",))
    text = "|".join(map(str, atoms))
    pieces: list[str | Atom] = [f"{text}=", atoms[0]]
    for atom in atoms[1:]:
        pieces += ["|", atom]
    return Template(text, tuple(pieces))
