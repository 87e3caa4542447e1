"""Files of sentences: columns as of the CoNLL shared tasks, CoNLL-U, and plain text."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import NoReturn, TextIO, TypedDict, Unpack

from jaxseq._io import replacing
from jaxseq.text._schemes import SCHEMES, IllegalTagError, convert_tags, scheme_name, schemes_obeyed
from jaxseq.text._sentence import Sentence

# Text files: one place for encodings, byte order marks, line ends and compression.


@dataclass(frozen=True)
class NamedFile:
    """A file that messages call otherwise than by its path: a copy of standard input, say."""

    path: str
    name: str


Path = str | os.PathLike[str] | NamedFile


def _shown(path: Path) -> str:
    """What messages call a file."""
    return path.name if isinstance(path, NamedFile) else os.fspath(path)


def text_encoding(name: str) -> str:
    """The name by which Python decodes an encoding, less a byte order mark.

    ValueError for one that is not known, or is none of text.

    Example:
        >>> text_encoding("UTF8"), text_encoding("latin-1")
        ('utf-8-sig', 'latin-1')
    """
    try:
        " ".encode(name)  # which refuses codecs that are not of text, such as "hex"
        return "utf-8-sig" if codecs.lookup(name).name == "utf-8" else name
    except (LookupError, ValueError):
        raise ValueError(f"encoding: expected a known encoding, got {name!r}") from None


def iter_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """The lines of a text file, without their ends, of which one is held at a time.

    A byte order mark is dropped, and a file whose name ends with ``.gz`` is decompressed.
    ValueError, with the file and the line, for bytes that are not of the encoding.
    """
    encoding = text_encoding(encoding)
    try:
        with _open_bytes(path) as raw, io.TextIOWrapper(raw, encoding) as text:
            for line in text:
                yield line.removesuffix("\n")
    except UnicodeDecodeError:
        _raise_undecodable(path, encoding)
    except UnicodeError as error:  # of codecs that say no place
        raise ValueError(f"{_shown(path)}: expected text encoded as {encoding}: {error}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{_shown(path)}: damaged gzip file: {error}") from error


def decode_lines(stream: Iterable[bytes], source: str, encoding: str = "utf-8") -> Iterator[str]:
    """The lines of a stream as `iter_lines` gives those of a file, each as soon as it is there."""
    encoding = text_encoding(encoding)
    decoder = codecs.getincrementaldecoder(encoding)()
    pending, number = "", 0
    for data, is_last in chain(((data, False) for data in stream), [(b"", True)]):
        try:
            # Of UTF-16, what Python takes for a line may begin in the middle of a character.
            *lines, pending = (pending + decoder.decode(data, is_last)).split("\n")
        except UnicodeError as error:
            wrong = data
            if isinstance(error, UnicodeDecodeError):  # not of codecs that say no place
                wrong = error.object[error.start : error.end]
            raise ValueError(
                f"{source}:{number + 1}: expected text encoded as {encoding.removesuffix('-sig')}, "
                f"found byte {wrong[:8].hex(' ')}"
            ) from None
        for line in lines:
            number += 1
            yield line.removesuffix("\r")
    if pending:
        yield pending.removesuffix("\r")


@contextmanager
def open_to_replace(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """A file for UTF-8 text that appears only when complete; on an error the old one stays."""
    with replacing(path) as temporary, open(temporary, "wb") as raw:
        binary = raw
        if os.fspath(path).endswith(".gz"):
            binary = gzip.GzipFile("", "wb", fileobj=raw, mtime=0)  # neither name nor time in it
        with io.TextIOWrapper(binary, "utf-8", newline="\n") as text:
            yield text


def _open_bytes(path: Path) -> io.BufferedReader | gzip.GzipFile:
    if isinstance(path, NamedFile):
        return open(path.path, "rb")
    if os.fspath(path).endswith(".gz"):
        return gzip.GzipFile(path, "rb")
    return open(path, "rb")


def _raise_undecodable(path: Path, encoding: str) -> NoReturn:
    """Read the file again to say where: the stream's decoder knows the place in its piece only."""
    with _open_bytes(path) as raw:
        data = raw.read()
    try:
        data.decode(encoding)
    except UnicodeDecodeError as error:
        # Of error.object, since the decoder may have taken the byte order mark off.
        before = error.object[: error.start].decode(encoding, errors="replace")
        line = before.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
        wrong = error.object[error.start : error.end].hex(" ")
        name = encoding.removesuffix("-sig")
        raise ValueError(
            f"{_shown(path)}:{line}: expected text encoded as {name}, found byte {wrong}"
        ) from None
    raise ValueError(f"{_shown(path)}: changed while it was read")


# Files of columns: one token per line, a blank line between sentences.

DOCSTART = "-DOCSTART-"  # the first cell of the line that CoNLL-2003 has between documents

CONLLU = ("id", "word", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
"""Names of the ten columns of CoNLL-U, for `read_conll`; its FORM is called "word"."""

# Comments, multi-word tokens (3-4) and empty nodes (3.1); whatever else is there is a token.
_NO_TOKEN = re.compile(r"#|[0-9]+[-.][0-9]+\t")
# The first line of a sentence that is no comment: word 1, words 1 to n, or an empty node before.
_FIRST_LINE = re.compile(r"(?:1|1-[0-9]+|0\.1)(?:\t[^\t]+){9}")
_FIRST_LINES = 1000  # comments and blank lines before that line, at most


@dataclass(frozen=True)
class Block:
    """The lines of a sentence without their ends, and their cells, column by column.

    `first` is the number of the first line. A line that begins with ``-DOCSTART-`` is a block of
    its own, with as many cells as it likes. In CoNLL-U, only some lines are tokens, which have
    cells: those in `places`.
    """

    first: int
    lines: list[str]
    columns: Sequence[Sequence[str]]
    places: Sequence[int] | None = None

    @property
    def is_conllu(self) -> bool:
        """Whether lines may be comments, multi-word tokens or empty nodes."""
        return self.places is not None

    def line_number(self, token: int) -> int:
        """The line that a token is on."""
        return self.first + (token if self.places is None else self.places[token])

    @property
    def is_docstart(self) -> bool:
        """Whether this is not a sentence, but the mark between documents."""
        return self.columns[0][0] == DOCSTART


def iter_blocks(
    lines: Iterable[str],
    source: str,
    delimiter: str | None = None,
    names: Sequence[str | None] = (),
    conllu: bool | None = False,
) -> Iterator[Block]:
    """The sentences of a file of columns with their lines, in the memory of one.

    Without names of the columns, the first sentence says how many there are. With `conllu` None,
    a file is CoNLL-U whose first line that is no comment has ten columns with tabs between, the
    first of them a number of CoNLL-U. ValueError ``source:line: …`` for a wrong number of cells,
    and for an empty one.
    """
    if conllu is None:
        lines = iter(lines)
        conllu, seen = _looks_like_conllu(lines, delimiter)
        lines = chain(seen, lines)
    width = len(names)
    delimiter = "\t" if conllu else delimiter
    block: list[str] = []
    number = 0
    for number, line in enumerate(chain(lines, [""]), 1):  # the blank line ends the last sentence
        blank = not line.strip(" \t")
        # Most lines are told by the quick look; only the others are split here.
        if not blank and (DOCSTART not in line or split_cells(line, delimiter)[0] != DOCSTART):
            block.append(line)
            continue
        if block:
            first = number - len(block)
            tokens, places = block, None
            if conllu:
                places = [place for place, line in enumerate(block) if not _NO_TOKEN.match(line)]
                tokens = [block[place] for place in places]
            if tokens:  # a block of comments is no sentence
                width = width or len(split_cells(tokens[0], delimiter))
                numbers = range(first, number) if places is None else [first + p for p in places]
                cells = _split_block(tokens, numbers, source, delimiter, width, names)
                yield Block(first, block, cells, places)
            block = []
        if not blank:
            yield Block(number, [line], [[cell] for cell in split_cells(line, delimiter)])


def _looks_like_conllu(lines: Iterator[str], delimiter: str | None) -> tuple[bool, list[str]]:
    """Whether a file begins as CoNLL-U does, and the lines that were read to tell."""
    seen: list[str] = []
    for line in islice(lines, _FIRST_LINES if delimiter in (None, "\t") else 0):
        seen.append(line)
        if line.strip(" \t") and not line.startswith("#"):
            return _FIRST_LINE.match(line) is not None, seen
    return False, seen


def _split_block(
    lines: list[str],
    numbers: Sequence[int],
    source: str,
    delimiter: str | None,
    width: int,
    names: Sequence[str | None],
) -> Sequence[Sequence[str]]:
    """The cells of a sentence, column by column; `numbers` are those of its lines."""
    # Split all lines at once, each with the cell "\n" after it, which no other cell can be;
    # those in the right places, and no others, prove that each line has its cells.
    between = delimiter or " "
    text = f"{between}\n{between}".join(lines)
    cells = text.split(between)
    ends = ["\n"] * (len(lines) - 1)
    regular = len(cells) == len(lines) * (width + 1) - 1 and cells[width :: width + 1] == ends
    tabs_may_separate = delimiter is None and "\t" in text
    if regular and "" not in cells and not tabs_may_separate:
        return [cells[place :: width + 1] for place in range(width)]
    rows = [split_cells(line, delimiter) for line in lines]
    for number, row, line in zip(numbers, rows, lines):
        if len(row) != width or "" in row:
            raise ValueError(f"{source}:{number}: {_wrong_cells(row, width, names)}: {line!r:.200}")
    return list(map(list, zip(*rows)))


def _wrong_cells(cells: Sequence[str], width: int, names: Sequence[str | None]) -> str:
    listed = ", ".join(name or "-" for name in names)
    if len(cells) == width:
        return f"expected no empty cell{f' ({listed})' if names else ''}, found one"
    wanted = f" ({listed})" if names else ", as in the lines before"
    return f"expected {width} column{'s' * (width != 1)}{wanted}, found {len(cells)}"


def split_cells(line: str, delimiter: str | None) -> list[str]:
    """The cells of a line; None splits at runs of spaces and tabs."""
    if delimiter is not None:
        return line.split(delimiter)
    # Not str.split(), which would also split at other kinds of spaces, such as U+00A0.
    return [cell for cell in line.replace("\t", " ").split(" ") if cell]


def read_conll(
    path: Path,
    columns: Sequence[str | None],
    *,
    delimiter: str | None = None,
    docstart: str = "skip",
    encoding: str = "utf-8",
    conllu: bool = False,
    scheme_from: str | None = None,
    scheme_to: str | None = None,
    scheme_column: str | None = None,
) -> list[Sentence]:
    r"""Read a file of columns, as of the CoNLL shared tasks.

    One token per line, its cells in columns, and blank lines between sentences. Byte order marks,
    ``\r\n``, a missing last line end, several blank lines and lines of only spaces or tabs are
    all right. A name that ends with ``.gz`` is decompressed.

    Args:
        path: the file.
        columns: a name for each column; None for one to leave out.
        delimiter: what stands between cells; None for any run of spaces and tabs. With a
            delimiter cells may hold spaces, and none may be empty.
        docstart: what to do with a line whose first cell is ``-DOCSTART-``: "skip" drops it,
            whatever its other cells; "keep" makes it a sentence of one token.
        encoding: of the text.
        conllu: whether the file is CoNLL-U, with the columns `CONLLU`: tabs are between them, and
            comments, multi-word tokens and empty nodes are left out.
        scheme_from: the scheme of the tags to check or convert (see `tag_spans`). None with
            `scheme_to`: the file is read once more to find out.
        scheme_to: the scheme wanted; None leaves the tags as they are.
        scheme_column: where the tags are; None for the last column that has a name.

    Returns:
        The sentences.

    Raises:
        ValueError: with the file and the line, for a wrong number of cells, an empty cell, bytes
            that are not of the encoding, or a tag that is illegal in its scheme.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "train.txt")
        ...     _ = path.write_text("EU NNP I-ORG\nrejects VBZ O\n")
        ...     read_conll(path, ["word", None, "entity"], scheme_from="IOB1", scheme_to="IOB2")
        [Sentence({'word': ('EU', 'rejects'), 'entity': ('B-ORG', 'O')})]

    Reference:
        Tjong Kim Sang & Buchholz (2000), "Introduction to the CoNLL-2000 shared task: chunking";
        https://universaldependencies.org/format.html for CoNLL-U.
    """
    file = _ColumnFile(
        path, columns, delimiter, docstart, encoding, conllu, scheme_from, scheme_to, scheme_column
    )
    return list(file.sentences())


class ConllOptions(TypedDict, total=False):
    """The options of `read_conll`."""

    delimiter: str | None
    docstart: str
    encoding: str
    conllu: bool
    scheme_from: str | None
    scheme_to: str | None
    scheme_column: str | None


def iter_conll(
    path: Path, columns: Sequence[str | None], **options: Unpack[ConllOptions]
) -> Iterator[Sentence]:
    r"""The sentences of a file of columns one by one, in the memory of one.

    Args:
        path: the file.
        columns: a name for each column, as for `read_conll`.
        **options: the other arguments of `read_conll`.

    Returns:
        An iterator. Wrong arguments are found at once, wrong lines when they are reached.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "train.tsv")
        ...     _ = path.write_text("New York\tLOC\n\nrain\tO\n")
        ...     next(iter_conll(path, ["word", "label"], delimiter="\t"))
        Sentence({'word': ('New York',), 'label': ('LOC',)})
    """
    return _ColumnFile(path, columns, **options).sentences()


@dataclass(frozen=True)
class _ColumnFile:
    """The arguments of `read_conll`, checked, and the ways through the file."""

    path: Path
    columns: Sequence[str | None]
    delimiter: str | None = None
    docstart: str = "skip"
    encoding: str = "utf-8"
    conllu: bool = False
    scheme_from: str | None = None
    scheme_to: str | None = None
    scheme_column: str | None = None

    def __post_init__(self) -> None:
        names = [name for name in self.columns if name is not None]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"columns: expected different names, got {tuple(self.columns)!r}")
        if self.delimiter is not None and (not self.delimiter or set("\r\n") & set(self.delimiter)):
            raise ValueError(f"delimiter: expected text within a line, got {self.delimiter!r}")
        if self.docstart not in ("skip", "keep"):
            raise ValueError(f"docstart: expected 'skip' or 'keep', got {self.docstart!r}")
        for scheme in (self.scheme_from, self.scheme_to):
            if scheme is not None:
                scheme_name(scheme)
        if self.scheme_column not in (None, *names):
            listed = ", ".join(names)
            raise ValueError(f"scheme_column: expected one of {listed}, got {self.scheme_column!r}")

    def sentences(self) -> Iterator[Sentence]:
        if self.scheme_from is None and self.scheme_to is None:
            return (sentence for _, sentence in self.sentences_in_blocks())
        return self.converted_sentences()

    def sentences_in_blocks(self) -> Iterator[tuple[Block, Sentence]]:
        """The sentences, each with its lines."""
        kept = [(place, name) for place, name in enumerate(self.columns) if name is not None]
        source, width = _shown(self.path), len(self.columns)
        lines = iter_lines(self.path, self.encoding)
        for block in iter_blocks(lines, source, self.delimiter, self.columns, self.conllu):
            if block.is_docstart:
                if self.docstart == "skip":
                    continue
                if len(block.columns) != width:
                    _split_block(
                        block.lines, [block.first], source, self.delimiter, width, self.columns
                    )
            # One string for all its occurrences: less memory, and quicker to look up later.
            cells = {name: tuple(map(sys.intern, block.columns[place])) for place, name in kept}
            yield block, Sentence.from_cells(cells)

    def converted_sentences(self) -> Iterator[Sentence]:
        """The sentences with the tags of a column checked, and converted if there is a target."""
        named = [name for name in self.columns if name is not None]
        column = named[-1] if self.scheme_column is None else self.scheme_column
        source = self.scheme_from
        if source is None:
            left = SCHEMES
            for block, sentence in self.sentences_in_blocks():
                with self._errors_at(block, column):
                    left = schemes_obeyed(sentence[column], left)
            source = left[0]
        for block, sentence in self.sentences_in_blocks():
            with self._errors_at(block, column):
                tags = convert_tags(sentence[column], source, self.scheme_to or source)
            cells = {name: sentence[name] for name in named}
            if self.scheme_to:
                cells[column] = tuple(map(sys.intern, tags))
            yield Sentence.from_cells(cells)

    @contextmanager
    def _errors_at(self, block: Block, column: str) -> Iterator[None]:
        """Illegal tags with the file and the line."""
        try:
            yield
        except IllegalTagError as error:
            place = f"{_shown(self.path)}:{block.line_number(error.position)}"
            raise ValueError(f"{place}: column {column}: {error.reason}") from None


def write_conll(
    path: str | os.PathLike[str],
    sentences: Iterable[Sentence],
    columns: Sequence[str] | None = None,
    delimiter: str = " ",
) -> None:
    r"""Write sentences as a file of columns: one token per line, a blank line after each sentence.

    The file appears only when it is complete. What was written reads back equal: a cell that is
    blank or holds the delimiter or a line end is refused, as is a sentence without tokens.

    Args:
        path: the file; a name that ends with ``.gz`` is compressed.
        sentences: what to write.
        columns: which columns, in which order; None for those of the first sentence.
        delimiter: what to put between cells. With a space, cells may not hold tabs either, since
            reading by runs of spaces and tabs would split them.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "out.txt")
        ...     write_conll(path, [Sentence({"word": ["it", "rains"], "pos": ["PRP", "VBZ"]})])
        ...     path.read_text()
        'it PRP\nrains VBZ\n\n'
    """
    if not delimiter or "\n" in delimiter or "\r" in delimiter:
        raise ValueError(f"delimiter: expected text within one line, got {delimiter!r}")
    forbidden = ("\n", "\r", " ", "\t") if delimiter == " " else ("\n", "\r", delimiter)
    with open_to_replace(path) as file:
        for index, sentence in enumerate(sentences):
            columns = sentence.columns if columns is None else columns
            _check_writable(index, sentence, columns, forbidden)
            rows = zip(*(sentence[column] for column in columns))
            file.write("\n".join(map(delimiter.join, rows)) + "\n\n")


def _check_writable(
    index: int, sentence: Sentence, columns: Sequence[str], forbidden: tuple[str, ...]
) -> None:
    """ValueError for a sentence that would not read back equal."""
    if not columns:
        raise ValueError("columns: expected at least one name, got none")
    for column in columns:
        if column not in sentence:
            there = ", ".join(sentence.columns)
            raise ValueError(f"sentence {index}: expected a column {column!r}, got {there}")
        for cell in dict.fromkeys(sentence[column]):
            if not cell.strip() or any(text in cell for text in forbidden):
                raise ValueError(
                    f"sentence {index}, column {column!r}: expected a cell that is not blank and "
                    f"holds no {' or '.join(map(repr, forbidden))}, got {cell!r}"
                )
    if not len(sentence):
        raise ValueError(f"sentence {index}: expected at least one token, got none")


# Plain text, one sentence per line.

_TOKENS = re.compile(r"\w+|[^\w\s]")


def tokenize(text: str) -> list[str]:
    """The words of a text, and its punctuation marks: for `read_plain`, where spaces do not do.

    Args:
        text: any text.

    Returns:
        The tokens. Every sign that is neither a letter, a digit nor ``_`` is one of its own;
        joined, they are the text without its spaces.

    Example:
        >>> tokenize("W.-P. de Roever, 1992.")
        ['W', '.', '-', 'P', '.', 'de', 'Roever', ',', '1992', '.']
    """
    return _TOKENS.findall(text)


def read_plain(
    path: Path,
    *,
    tokenize: Callable[[str], Sequence[str]] = str.split,
    blank: str = "skip",
    encoding: str = "utf-8",
) -> list[Sentence]:
    """Read plain text: one sentence per line, of which the words are the column "word".

    Args:
        path: the file; a name that ends with ``.gz`` is decompressed.
        tokenize: a line → its tokens; by default what stands between spaces.
        blank: what to do with a line without tokens: "skip" leaves it out; "keep" makes it a
            sentence without tokens, so that sentences and lines stay in step.
        encoding: of the text.

    Raises:
        ValueError: with the file and the line, for bytes that are not of the encoding and for
            what `tokenize` gives if it is not a sequence of strings.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "text")
        ...     _ = path.write_text("it rains\\n\\nit pours")
        ...     [sentence["word"] for sentence in read_plain(path)]
        [('it', 'rains'), ('it', 'pours')]
    """
    return list(iter_plain(path, tokenize=tokenize, blank=blank, encoding=encoding))


def iter_plain(
    path: Path,
    *,
    tokenize: Callable[[str], Sequence[str]] = str.split,
    blank: str = "skip",
    encoding: str = "utf-8",
) -> Iterator[Sentence]:
    """The sentences of a plain text one by one, in the memory of one.

    Args:
        path: the file; this and the others as for `read_plain`.
        tokenize: a line → its tokens.
        blank: "skip" or "keep".
        encoding: of the text.

    Returns:
        An iterator. Wrong arguments are found at once, wrong lines when they are reached.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "text")
        ...     _ = path.write_text("it rains\\n\\n")
        ...     list(iter_plain(path, tokenize=list, blank="keep"))[1]
        Sentence({'word': ()})
    """
    if blank not in ("skip", "keep"):
        raise ValueError(f"blank: expected 'skip' or 'keep', got {blank!r}")

    def sentences() -> Iterator[Sentence]:
        for number, line in enumerate(iter_lines(path, encoding), 1):
            tokens = tokenize(line)
            try:
                sentence = Sentence({"word": tokens})
            except ValueError as error:
                raise ValueError(f"{_shown(path)}:{number}: tokenize: {error}") from None
            if blank == "keep" or len(sentence):
                yield sentence

    return sentences()
