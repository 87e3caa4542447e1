"""Plain text, one sentence a line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from jaxseq.text._open import iter_lines
from jaxseq.text._sentence import Sentence


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
