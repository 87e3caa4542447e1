"""References of papers with their fields tagged inline, as in the Cora corpus."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from jaxseq.text._open import iter_lines
from jaxseq.text._scheme_rules import scheme_name
from jaxseq.text._schemes import convert_tags
from jaxseq.text._sentence import Sentence

NEW_REFERENCE = "<NEWREFERENCE>"
_PIECES = re.compile(r"(</?[A-Za-z]\w*>)")
_TOKENS = re.compile(r"\w+|[^\w\s]")


def tokenize_citation(text: str, *, split_punctuation: bool = True) -> list[str]:
    """The tokens of a reference: the tokeniser of `read_citations`, for plain text.

    Args:
        text: a reference without tags.
        split_punctuation: every sign that is neither a letter, a digit nor ``_`` is a token of
            its own; otherwise tokens are what stands between spaces.

    Returns:
        The tokens; joined, they are the text without its spaces.

    Example:
        >>> tokenize_citation("W.-P. de Roever, 1992.")
        ['W', '.', '-', 'P', '.', 'de', 'Roever', ',', '1992', '.']
    """
    return _TOKENS.findall(text) if split_punctuation else text.split()


def read_citations(
    path: str | os.PathLike[str],
    *,
    split_punctuation: bool = True,
    scheme: str | None = None,
    encoding: str = "utf-8",
) -> list[Sentence]:
    """Read references whose fields are tagged inline.

    A reference follows the line ``<NEWREFERENCE>`` and is a series of fields,
    ``<author> … </author> <title> … </title>``, on one line or several. All text belongs to a
    field; fields do not nest and are not empty. The corpus obeys this throughout, so whatever
    does not is an error.

    Args:
        path: the file.
        split_punctuation: see `tokenize_citation`.
        scheme: None labels a token with its field (``author``); a scheme's name (see `tag_spans`)
            gives a span to each field (IOB2: ``B-author``, ``I-author``).
        encoding: of the text.

    Returns:
        The references, with the columns "word" and "label".

    Raises:
        ValueError: with the file and the line, for text outside the fields and for tags that are
            nested, mismatched, not closed or not opened.

    Example:
        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = os.path.join(folder.name, "references.txt")
        >>> with open(path, "w") as file:
        ...     _ = file.write("<NEWREFERENCE>\\n<title> On CRFs. </title> <date> 2001 </date>\\n")
        >>> read_citations(path)[0]["label"]
        ('title', 'title', 'title', 'date')
        >>> read_citations(path, scheme="IOB2")[0]["label"]
        ('B-title', 'I-title', 'I-title', 'B-date')
        >>> folder.cleanup()

    Reference:
        McCallum, Nigam, Rennie & Seymore (2000), "Automating the construction of internet portals
        with machine learning".
    """
    target = None if scheme is None else scheme_name(scheme)
    references = []
    for fields in _iter_references(path, split_punctuation, encoding):
        words = [word for _, tokens in fields for word in tokens]
        labels = [name for name, tokens in fields for _ in tokens]
        if target is not None:
            starts = [token == 0 for _, tokens in fields for token in range(len(tokens))]
            tags = [f"{'B' if start else 'I'}-{name}" for start, name in zip(starts, labels)]
            labels = convert_tags(tags, "IOB2", target)
        references.append(Sentence({"word": words, "label": labels}))
    return references


Fields = list[tuple[str, list[str]]]  # name and tokens of each


@dataclass
class _Reader:
    """What has been read of a reference."""

    path: str
    split_punctuation: bool
    line: int = 0  # that is being read
    began: int = 0  # line of the reference's first, 0 before the first reference
    fields: Fields = field(default_factory=list)
    name: str | None = None  # of the open field
    opened: int = 0  # line of its tag
    tokens: list[str] = field(default_factory=list)  # of the open field

    def begin(self) -> None:
        self.began, self.fields = self.line, []

    def finish(self) -> Fields:
        """The reference, which must be complete."""
        if self.name is not None:
            raise self.error(f"expected </{self.name}> before the reference ends", self.opened)
        if not self.fields:
            raise self.error(f"expected fields after {NEW_REFERENCE}, found none", self.began)
        return self.fields

    def read(self, piece: str) -> None:
        """A tag, or the text between two tags."""
        if not _PIECES.fullmatch(piece):
            self._read_text(piece)
        elif piece.startswith("</"):
            self._close(piece)
        elif self.name is not None:
            raise self.error(f"expected </{self.name}>, since fields do not nest, found {piece}")
        else:
            self.name, self.opened, self.tokens = piece[1:-1], self.line, []

    def _close(self, tag: str) -> None:
        if self.name is None:
            raise self.error(f"expected a tag that opens a field, found {tag}")
        if tag[2:-1] != self.name:
            raise self.error(f"expected </{self.name}>, found {tag}")
        if not self.tokens:
            raise self.error(f"expected text in the field <{self.name}>, found none")
        self.fields.append((self.name, self.tokens))
        self.name = None

    def _read_text(self, text: str) -> None:
        if "<" in text or ">" in text:
            raise self.error(f"expected tags such as <author> or </author>, found {text!r}")
        tokens = tokenize_citation(text, split_punctuation=self.split_punctuation)
        if tokens and self.name is None:
            raise self.error(f"expected text inside a field only, found {text!r}")
        self.tokens.extend(tokens)

    def error(self, message: str, line: int | None = None) -> ValueError:
        return ValueError(f"{self.path}:{self.line if line is None else line}: {message}")


def _iter_references(
    path: str | os.PathLike[str], split_punctuation: bool, encoding: str
) -> Iterator[Fields]:
    reader = _Reader(os.fspath(path), split_punctuation)
    for number, line in enumerate(iter_lines(path, encoding), 1):
        reader.line = number
        for piece in filter(None, map(str.strip, _PIECES.split(line))):
            if piece == NEW_REFERENCE:
                if reader.began:
                    yield reader.finish()
                reader.begin()
            elif not reader.began:
                raise reader.error(f"expected {NEW_REFERENCE}, found {piece!r}")
            else:
                reader.read(piece)
    if reader.began:
        yield reader.finish()
