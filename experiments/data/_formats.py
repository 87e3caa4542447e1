"""Files of three corpora that are not in columns: advertisements, references, and GENETAG."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jaxseq.text import Sentence, convert_tags, iter_lines, tokenize

# -------------------------------------------------------------------------------------------------
# The corpus of apartment advertisements from Craigslist.


UNLABELLED = "?"
MISSING_WORD = "_"


def read_ads(path: str | os.PathLike[str], *, encoding: str = "utf-8") -> list[Sentence]:
    """Read advertisements: a line ``token LABEL`` a token, a blank line between advertisements.

    A label names a field, without B or I; ``?`` marks a token without label and is kept as it is
    (strings are all that a column can hold). Two lines of the unlabelled file have only the
    ``?``, since their token was a space: the word is then ``_``. An empty advertisement, of which
    that file has one, is left out.

    Args:
        path: the file.
        encoding: of the text.

    Returns:
        The advertisements, with the columns "word" and "label".

    Raises:
        ValueError: with the file and the line, for any other line.

    Example:
        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = os.path.join(folder.name, "train.txt")
        >>> with open(path, "w") as file:
        ...     _ = file.write("sunny FEATURES\\nflat FEATURES\\n\\ncall ?\\n  ?\\n")
        >>> for advertisement in read_ads(path):
        ...     print(advertisement)
        Sentence({'word': ('sunny', 'flat'), 'label': ('FEATURES', 'FEATURES')})
        Sentence({'word': ('call', '_'), 'label': ('?', '?')})
        >>> folder.cleanup()

    Reference:
        Grenager, Klein & Manning (2005), "Unsupervised learning of field segmentation models for
        information extraction".
    """
    return list(iter_ads(path, encoding=encoding))


def iter_ads(path: str | os.PathLike[str], *, encoding: str = "utf-8") -> Iterator[Sentence]:
    """The advertisements of a file one by one, in the memory of one; see `read_ads`.

    Args:
        path: the file.
        encoding: of the text.

    Returns:
        An iterator; wrong lines are found when they are reached.

    Example:
        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = os.path.join(folder.name, "train.txt")
        >>> with open(path, "w") as file:
        ...     _ = file.write("sunny FEATURES\\n\\ncall CONTACT\\n")
        >>> [advertisement["label"] for advertisement in iter_ads(path)]
        [('FEATURES',), ('CONTACT',)]
        >>> folder.cleanup()
    """
    words: list[str] = []
    labels: list[str] = []
    for number, line in enumerate(iter_lines(path, encoding), 1):
        cells = line.split()
        if len(cells) == 2:
            words.append(sys.intern(cells[0]))  # one string for all occurrences of a word
            labels.append(sys.intern(cells[1]))
        elif cells == [UNLABELLED]:
            words.append(MISSING_WORD)
            labels.append(UNLABELLED)
        elif cells:
            raise ValueError(f"{os.fspath(path)}:{number}: expected 'token LABEL', found {line!r}")
        elif words:
            yield Sentence.from_cells({"word": tuple(words), "label": tuple(labels)})
            words, labels = [], []
    if words:
        yield Sentence.from_cells({"word": tuple(words), "label": tuple(labels)})


# -------------------------------------------------------------------------------------------------
# References of papers with their fields tagged inline, as in the Cora corpus.


NEW_REFERENCE = "<NEWREFERENCE>"
_PIECES = re.compile(r"(</?[A-Za-z]\w*>)")


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
        split_punctuation: as `jaxseq.text.tokenize` does; otherwise tokens are what
            stands between spaces.
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
    references = []
    for fields in _iter_references(path, split_punctuation, encoding):
        words = [word for _, tokens in fields for word in tokens]
        labels = [name for name, tokens in fields for _ in tokens]
        if scheme is not None:
            starts = [token == 0 for _, tokens in fields for token in range(len(tokens))]
            tags = [f"{'B' if start else 'I'}-{name}" for start, name in zip(starts, labels)]
            labels = convert_tags(tags, "IOB2", scheme)
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
        tokens = tokenize(text) if self.split_punctuation else text.split()
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


UNKNOWN_POS = "_"
_GENE_TAGS = ("NEWGENE", "NEWGENE1")
# The bar before the text is missing on one line of the corpus.
_MENTION = re.compile(r"@@([^|\s]+)\|(\d+) (\d+)\|?(.*)")

Mentions = dict[str, list[tuple[int, int]]]


def read_genetag(
    path: str | os.PathLike[str],
    *,
    gold: str | os.PathLike[str] | None = None,
    encoding: str = "utf-8",
) -> list[Sentence]:
    """Read sentences of the GENETAG corpus, a line each: ``@@id word/TAG word/TAG …``.

    A token is split at its last slash. The tag is a part of speech, or NEWGENE in its place for a
    token of a gene's name; names that touch alternate between NEWGENE and NEWGENE1. The part of
    speech of such tokens is not known, and is given as ``_``.

    The tags do not hold all names of the list ``Gold.format`` that comes with them (train: 8,881
    of 8,935, test: 2,986 of 2,987): where names are joined by a slash or a bracket, or stand last
    in the sentence, the tags hold one longer or shorter name, in 51 sentences and in 1. With
    `gold` the labels come from that list instead. Of names that overlap (the list has one such
    pair, ``SF2`` and ``SF2 splicing``) only the longer can be labelled, so that 8,934 are.

    Args:
        path: ``TAGGED_GENE_CORPUS``.
        gold: ``Gold.format`` of the same sentences, to label by; None labels by the tags.
        encoding: of the text.

    Returns:
        Sentences with the columns "word", "pos" and "label" (``B-GENE``, ``I-GENE``, ``O``),
        whose name is the id, without ``@@``.

    Raises:
        ValueError: with the file and the line, for a line that is not as above, an id that comes
            twice, and a mention that is not in the sentences.

    Example:
        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = os.path.join(folder.name, "tagged")
        >>> with open(path, "w") as file:
        ...     _ = file.write("@@7 The/DT SNF1/NEWGENE PKA/NEWGENE1 gene/NEWGENE1 and/or/CC\\n")
        >>> sentence = read_genetag(path)[0]
        >>> sentence.name, sentence["word"][-1], sentence["pos"]
        ('7', 'and/or', ('DT', '_', '_', '_', 'CC'))
        >>> sentence["label"]
        ('O', 'B-GENE', 'B-GENE', 'I-GENE', 'O')
        >>> folder.cleanup()

    Reference:
        Tanabe, Xie, Thom, Matten & Wilbur (2005), "GENETAG: a tagged corpus for gene/protein
        named entity recognition".
    """
    place = os.fspath(path)
    sentences: dict[str, Sentence] = {}
    for number, line in enumerate(iter_lines(path, encoding), 1):
        if line.strip():
            sentence = _sentence(f"{place}:{number}", line.split())
            if str(sentence.name) in sentences:
                raise ValueError(f"{place}:{number}: expected ids once, found @@{sentence.name}")
            sentences[str(sentence.name)] = sentence
    if gold is not None:
        return _labelled_by_list(sentences, gold, encoding)
    return list(sentences.values())


def read_genetag_mentions(path: str | os.PathLike[str], *, encoding: str = "utf-8") -> Mentions:
    """Read the list of names that comes with GENETAG: ``@@id|first last|text`` lines.

    The numbers count the tokens of the sentence from 0; the last belongs to the name. Such files
    are ``Gold.format`` and ``Correct.Data``, the alternatives that are also right. The text is
    not used: in a few lines it differs from that of the sentence.

    Args:
        path: the file.
        encoding: of the text.

    Returns:
        id, without ``@@`` → (start, stop) of its names in the order of the file; the last token is
        stop − 1. Names may overlap.

    Example:
        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = os.path.join(folder.name, "Gold.format")
        >>> with open(path, "w") as file:
        ...     _ = file.write("@@7|1 1|SNF1\\n@@7|2 3|PKA gene\\n")
        >>> read_genetag_mentions(path)
        {'7': [(1, 2), (2, 4)]}
        >>> folder.cleanup()
    """
    mentions: Mentions = {}
    for _, name, start, stop in _numbered_mentions(path, encoding):
        mentions.setdefault(name, []).append((start, stop))
    return mentions


def _sentence(place: str, cells: Sequence[str]) -> Sentence:
    name, tokens = cells[0], cells[1:]
    if not name.startswith("@@") or len(name) == 2:
        raise ValueError(f"{place}: expected a line that begins with @@id, found {name!r}")
    words, tags = [], []
    for token in tokens:
        word, _, tag = token.rpartition("/")
        if not word or not tag:
            raise ValueError(f"{place}: expected word/TAG, found {token!r}")
        words.append(word)
        tags.append(tag)
    labels, before = [], ""
    for tag in tags:
        labels.append("O" if tag not in _GENE_TAGS else f"{'I' if tag == before else 'B'}-GENE")
        before = tag
    pos = [UNKNOWN_POS if tag in _GENE_TAGS else tag for tag in tags]
    columns = {"word": tuple(words), "pos": tuple(pos), "label": tuple(labels)}
    return Sentence.from_cells(columns, name.removeprefix("@@"))


def _numbered_mentions(
    path: str | os.PathLike[str], encoding: str
) -> list[tuple[int, str, int, int]]:
    """(line, id, start, stop) of each name of a list."""
    found = []
    for number, line in enumerate(iter_lines(path, encoding), 1):
        if not line.strip():
            continue
        match = _MENTION.fullmatch(line)
        if match is None or int(match[2]) > int(match[3]):
            place = f"{os.fspath(path)}:{number}"
            raise ValueError(f"{place}: expected '@@id|first last|text', found {line!r}")
        found.append((number, match[1], int(match[2]), int(match[3]) + 1))
    return found


def _labelled_by_list(
    sentences: Mapping[str, Sentence], gold: str | os.PathLike[str], encoding: str
) -> list[Sentence]:
    """The sentences with the labels of a list; of names that overlap, the longest."""
    labels = {name: ["O"] * len(sentence) for name, sentence in sentences.items()}
    mentions = _numbered_mentions(gold, encoding)
    for number, name, start, stop in sorted(mentions, key=lambda m: m[2] - m[3]):
        if name not in labels:
            raise ValueError(f"{os.fspath(gold)}:{number}: expected a known id, found @@{name}")
        tags = labels[name]
        if stop > len(tags):
            raise ValueError(
                f"{os.fspath(gold)}:{number}: expected tokens 0 to {len(tags) - 1} of @@{name}, "
                f"found {stop - 1}"
            )
        if set(tags[start:stop]) == {"O"}:
            tags[start:stop] = ["B-GENE"] + ["I-GENE"] * (stop - start - 1)
    return [
        Sentence.from_cells(
            {"word": old["word"], "pos": old["pos"], "label": tuple(labels[name])}, name
        )
        for name, old in sentences.items()
    ]
