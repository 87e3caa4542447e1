"""The corpus of apartment advertisements from Craigslist."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from jaxseq.text._open import iter_lines
from jaxseq.text._sentence import Sentence, sentence_of

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
            yield sentence_of({"word": tuple(words), "label": tuple(labels)})
            words, labels = [], []
    if words:
        yield sentence_of({"word": tuple(words), "label": tuple(labels)})
