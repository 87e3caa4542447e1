"""Files of columns: one token a line, a blank line between sentences."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import secrets
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn, TextIO

from jaxseq.text._schemes import SCHEMES, IllegalTagError, convert_tags, scheme_name, schemes_obeyed
from jaxseq.text._sentence import Sentence, sentence_of

# -------------------------------------------------------------------------------------------------
# Opening text files: one place for encodings, byte order marks, line ends and compression.


def iter_lines(path: str | os.PathLike[str], encoding: str = "utf-8") -> Iterator[str]:
    r"""The lines of a text file, without their ends.

    A line ends with ``\n``, ``\r\n`` or ``\r``; the last one need not. A byte order mark is
    dropped, and a file whose name ends with ``.gz`` is decompressed. One line is held at a time.

    Args:
        path: the file.
        encoding: a name that `codecs.lookup` knows.

    Raises:
        ValueError: for bytes that are not of the encoding, with the file and the line; for a
            damaged ``.gz`` file; for an unknown encoding.
        FileNotFoundError: when there is no such file.
    """
    encoding = _without_mark(encoding)
    try:
        with _open_bytes(path) as raw, io.TextIOWrapper(raw, encoding) as text:
            for line in text:
                yield line.removesuffix("\n")
    except UnicodeDecodeError:
        _raise_undecodable(path, encoding)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{os.fspath(path)}: damaged gzip file: {error}") from error


@contextmanager
def open_to_replace(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    r"""A file to write UTF-8 text to, with ``\n`` as line end; it appears only when complete.

    The text goes to a temporary name in the same folder, which is renamed at the end; on an error
    it is removed and a file that was there before is left as it was. A name that ends with
    ``.gz`` is compressed, always to the same bytes.
    """
    folder, name = os.path.split(os.fspath(path))
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(6)}.tmp")
    try:
        with open(temporary, "xb") as raw, _compressed(raw, name) as coded:
            text = io.TextIOWrapper(coded, "utf-8", newline="\n")
            yield text
            text.flush()
            text.detach()  # the two files below it are closed by their own statements
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise


@contextmanager
def _compressed(raw: io.BufferedWriter, name: str) -> Iterator[io.BufferedWriter | gzip.GzipFile]:
    if not name.endswith(".gz"):
        yield raw
        return
    with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
        yield packed


def _open_bytes(path: str | os.PathLike[str]) -> io.BufferedReader | gzip.GzipFile:
    if os.fspath(path).endswith(".gz"):
        return gzip.GzipFile(path, "rb")
    return open(path, "rb")


def _without_mark(encoding: str) -> str:
    """The encoding that drops a byte order mark, where there is such a variant."""
    try:
        name = codecs.lookup(encoding).name
    except LookupError:
        raise ValueError(f"encoding: expected a known encoding, got {encoding!r}") from None
    return "utf-8-sig" if name == "utf-8" else encoding


def _raise_undecodable(path: str | os.PathLike[str], encoding: str) -> NoReturn:
    """Read the file again, whole, to say where it cannot be decoded."""
    with _open_bytes(path) as raw:
        data = raw.read()
    try:
        data.decode(encoding)
    except UnicodeDecodeError as error:
        # Of error.object, since the decoder may have taken the byte order mark off.
        before = error.object[: error.start].decode(encoding, errors="replace")
        line = before.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
        found = error.object[error.start : error.end].hex(" ")
        name = encoding.removesuffix("-sig")
        raise ValueError(
            f"{os.fspath(path)}:{line}: expected text encoded as {name}, found byte {found}"
        ) from None
    raise ValueError(f"{os.fspath(path)}: changed while it was read")


DOCSTART = "-DOCSTART-"

Path = str | os.PathLike[str]


def read_conll(
    path: Path,
    columns: Sequence[str | None],
    *,
    delimiter: str | None = None,
    docstart: str = "skip",
    encoding: str = "utf-8",
    scheme_from: str | None = None,
    scheme_to: str | None = None,
    scheme_column: str | None = None,
) -> list[Sentence]:
    r"""Read a file of columns, as of the CoNLL shared tasks.

    One token a line, its cells in columns, and blank lines between sentences. Byte order marks,
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
        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = os.path.join(folder.name, "train.txt")
        >>> with open(path, "w") as file:
        ...     _ = file.write("EU NNP I-ORG\nrejects VBZ O\n")
        >>> read_conll(path, ["word", None, "entity"], scheme_from="IOB1", scheme_to="IOB2")
        [Sentence({'word': ('EU', 'rejects'), 'entity': ('B-ORG', 'O')})]
        >>> folder.cleanup()

    Reference:
        Tjong Kim Sang & Buchholz (2000), "Introduction to the CoNLL-2000 shared task: chunking".
    """
    return list(
        iter_conll(
            path,
            columns,
            delimiter=delimiter,
            docstart=docstart,
            encoding=encoding,
            scheme_from=scheme_from,
            scheme_to=scheme_to,
            scheme_column=scheme_column,
        )
    )


def iter_conll(
    path: Path,
    columns: Sequence[str | None],
    *,
    delimiter: str | None = None,
    docstart: str = "skip",
    encoding: str = "utf-8",
    scheme_from: str | None = None,
    scheme_to: str | None = None,
    scheme_column: str | None = None,
) -> Iterator[Sentence]:
    r"""The sentences of a file of columns one by one, in the memory of one.

    Args:
        path: the file; for the rest see `read_conll`, which takes the same arguments.

    Returns:
        An iterator. Wrong arguments are found at once, wrong lines when they are reached.

    Example:
        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = os.path.join(folder.name, "train.tsv")
        >>> with open(path, "w") as file:
        ...     _ = file.write("New York\tLOC\n\nrain\tO\n")
        >>> next(iter_conll(path, ["word", "label"], delimiter="\t"))
        Sentence({'word': ('New York',), 'label': ('LOC',)})
        >>> folder.cleanup()
    """
    layout = _Layout(path, tuple(columns), delimiter, docstart, encoding)
    layout.check()
    if scheme_from is None and scheme_to is None:
        return (sentence for _, sentence in layout.numbered_sentences())
    column = _tag_column(layout, scheme_column)
    source = None if scheme_from is None else scheme_name(scheme_from)
    target = None if scheme_to is None else scheme_name(scheme_to)
    return _iter_converted(layout, column, source, target)


def write_conll(
    path: Path,
    sentences: Iterable[Sentence],
    columns: Sequence[str] | None = None,
    delimiter: str = " ",
) -> None:
    r"""Write sentences as a file of columns: a line a token, a blank line after each sentence.

    The file appears only when it is complete. What was written reads back equal: a cell that is
    blank or holds the delimiter or a line end is refused, as is a sentence without tokens.

    Args:
        path: the file; a name that ends with ``.gz`` is compressed.
        sentences: what to write.
        columns: which columns, in which order; None for those of the first sentence.
        delimiter: what to put between cells. With a space, cells may not hold tabs either, since
            reading by runs of spaces and tabs would split them.

    Example:
        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = os.path.join(folder.name, "out.txt")
        >>> write_conll(path, [Sentence({"word": ["it", "rains"], "pos": ["PRP", "VBZ"]})])
        >>> open(path).read()
        'it PRP\nrains VBZ\n\n'
        >>> folder.cleanup()
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


@dataclass(frozen=True)
class _Layout:
    """How a file is laid out, and how to go through it."""

    path: Path
    columns: tuple[str | None, ...]
    delimiter: str | None
    docstart: str
    encoding: str

    def check(self) -> None:
        """ValueError for a layout that makes no sense."""
        names = [name for name in self.columns if name is not None]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"columns: expected different names, got {self.columns!r}")
        if self.delimiter is not None and (not self.delimiter or set("\r\n") & set(self.delimiter)):
            raise ValueError(f"delimiter: expected text within a line, got {self.delimiter!r}")
        if self.docstart not in ("skip", "keep"):
            raise ValueError(f"docstart: expected 'skip' or 'keep', got {self.docstart!r}")

    def numbered_sentences(self) -> Iterator[tuple[int, Sentence]]:
        """(line of the first token, sentence); the other tokens are on the lines after it."""
        kept = [(place, name) for place, name in enumerate(self.columns) if name is not None]
        for first, lines in self._numbered_blocks():
            table = self._columns_of(first, lines)
            # One string for all its occurrences: less memory, and quicker to look up later.
            yield first, sentence_of({name: tuple(map(sys.intern, table[i])) for i, name in kept})

    def _numbered_blocks(self) -> Iterator[tuple[int, list[str]]]:
        """(number of the first line, lines) of each sentence."""
        block: list[str] = []
        number = 0
        for number, line in enumerate(iter_lines(self.path, self.encoding), 1):
            blank = not line.strip(" \t")
            if not blank and (
                DOCSTART not in line or split_cells(line, self.delimiter)[0] != DOCSTART
            ):
                block.append(line)
                continue
            if block:
                yield number - len(block), block
                block = []
            if not blank and self.docstart == "keep":
                yield number, [line]
        if block:
            yield number + 1 - len(block), block

    def _columns_of(self, first: int, lines: list[str]) -> Sequence[Sequence[str]]:
        """The cells of a sentence, column by column."""
        # Split all lines at once, each with the cell "\n" after it, which no other cell can be;
        # those in the right places, and no others, prove that each line has its cells.
        width, between = len(self.columns), self.delimiter or " "
        text = f"{between}\n{between}".join(lines)
        cells = text.split(between)
        ends = ["\n"] * (len(lines) - 1)
        regular = len(cells) == len(lines) * (width + 1) - 1 and cells[width :: width + 1] == ends
        tabs_may_separate = self.delimiter is None and "\t" in text
        if regular and "" not in cells and not tabs_may_separate:
            return [cells[place :: width + 1] for place in range(width)]
        rows = [split_cells(line, self.delimiter) for line in lines]
        for number, row in enumerate(rows, first):
            if len(row) != width or "" in row:
                raise ValueError(self._wrong_cells(number, lines[number - first], row))
        return list(zip(*rows))

    def _wrong_cells(self, number: int, line: str, cells: list[str]) -> str:
        names = ", ".join("-" if name is None else name for name in self.columns)
        width, place = len(self.columns), f"{os.fspath(self.path)}:{number}"
        if len(cells) == width:
            return f"{place}: expected no empty cell ({names}), found one: {line!r}"
        plural = "column" if width == 1 else "columns"
        return f"{place}: expected {width} {plural} ({names}), found {len(cells)}: {line!r}"


def split_cells(line: str, delimiter: str | None) -> list[str]:
    r"""The cells of a line; None splits at runs of spaces and tabs.

    Example:
        >>> split_cells("New York\tLOC", "\t"), split_cells("rain \t O", None)
        (['New York', 'LOC'], ['rain', 'O'])
    """
    if delimiter is not None:
        return line.split(delimiter)
    return [cell for cell in line.replace("\t", " ").split(" ") if cell]


def _tag_column(layout: _Layout, wanted: str | None) -> str:
    """The name of the column to convert."""
    names = [name for name in layout.columns if name is not None]
    if wanted is None:
        return names[-1]
    if wanted not in names:
        raise ValueError(f"scheme_column: expected one of {', '.join(names)}, got {wanted!r}")
    return wanted


def _iter_converted(
    layout: _Layout, column: str, source: str | None, target: str | None
) -> Iterator[Sentence]:
    """The sentences with the tags of a column checked, and converted if there is a target."""
    if source is None:
        left = SCHEMES
        for first, sentence in layout.numbered_sentences():
            with _errors_at(layout, first, column):
                left = schemes_obeyed(sentence[column], left)
        source = left[0]
    for first, sentence in layout.numbered_sentences():
        with _errors_at(layout, first, column):
            tags = convert_tags(sentence[column], source, target or source)
        cells = {name: sentence[name] for name in sentence.columns}
        converted = {column: tuple(map(sys.intern, tags))} if target else {}
        yield sentence_of(cells | converted)


@contextmanager
def _errors_at(layout: _Layout, first: int, column: str) -> Iterator[None]:
    """Illegal tags with the file and the line."""
    try:
        yield
    except IllegalTagError as error:
        place = f"{os.fspath(layout.path)}:{first + error.position}"
        raise ValueError(f"{place}: column {column}: {error.reason}") from None


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


# -------------------------------------------------------------------------------------------------
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
    path: str | os.PathLike[str],
    *,
    tokenize: Callable[[str], Sequence[str]] = str.split,
    blank: str = "skip",
    encoding: str = "utf-8",
) -> list[Sentence]:
    """Read plain text: one sentence a line.

    Args:
        path: the file; a name that ends with ``.gz`` is decompressed.
        tokenize: a line → its tokens; by default what stands between spaces.
        blank: what to do with a line without tokens: "skip" leaves it out; "keep" makes it a
            sentence without tokens, so that sentences and lines stay in step.
        encoding: of the text.

    Returns:
        The sentences, with the column "word".

    Raises:
        ValueError: with the file and the line, for bytes that are not of the encoding and for
            what `tokenize` gives if it is not a sequence of strings.

    Example:
        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = os.path.join(folder.name, "text")
        >>> with open(path, "w") as file:
        ...     _ = file.write("it rains\\n\\nit pours")
        >>> [sentence["word"] for sentence in read_plain(path)]
        [('it', 'rains'), ('it', 'pours')]
        >>> folder.cleanup()
    """
    return list(iter_plain(path, tokenize=tokenize, blank=blank, encoding=encoding))


def iter_plain(
    path: str | os.PathLike[str],
    *,
    tokenize: Callable[[str], Sequence[str]] = str.split,
    blank: str = "skip",
    encoding: str = "utf-8",
) -> Iterator[Sentence]:
    """The sentences of a plain text one by one, in the memory of one; see `read_plain`.

    Args:
        path: the file; for the rest see `read_plain`, which takes the same arguments.

    Returns:
        An iterator. Wrong arguments are found at once, wrong lines when they are reached.

    Example:
        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = os.path.join(folder.name, "text")
        >>> with open(path, "w") as file:
        ...     _ = file.write("it rains\\n\\n")
        >>> list(iter_plain(path, tokenize=list, blank="keep"))[1]
        Sentence({'word': ()})
        >>> folder.cleanup()
    """
    if blank not in ("skip", "keep"):
        raise ValueError(f"blank: expected 'skip' or 'keep', got {blank!r}")
    return _iter_sentences(path, tokenize, blank == "keep", encoding)


def _iter_sentences(
    path: str | os.PathLike[str],
    tokenize: Callable[[str], Sequence[str]],
    keep_blank: bool,
    encoding: str,
) -> Iterator[Sentence]:
    for number, line in enumerate(iter_lines(path, encoding), 1):
        tokens = tokenize(line)
        try:
            sentence = Sentence({"word": tokens})
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}:{number}: tokenize: {error}") from None
        if keep_blank or len(sentence):
            yield sentence
