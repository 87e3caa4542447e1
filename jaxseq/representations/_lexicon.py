"""Which row of a table a word has: its own, or that of the rare words that are spelled like it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxseq.text import Column, StringTable, short_shape

LONGEST_SHAPE = 12
"""Signs of a shape that tell classes apart: those of a web address would each be a class."""


@dataclass(frozen=True)
class Normalisation:
    """How words are spelled before they are counted.

    Args:
        lower: in small letters. Capitals still tell classes of unknown words apart.
        digits: every digit as ``0``.

    Example:
        >>> Normalisation()("IL-2"), Normalisation(lower=False, digits=False)("IL-2")
        ('il-0', 'IL-2')
    """

    lower: bool = True
    digits: bool = True

    def __call__(self, word: str) -> str:
        if self.lower:
            word = word.lower()
        if self.digits and any(map(str.isdecimal, word)):
            word = "".join("0" if sign.isdecimal() else sign for sign in word)
        return word


def class_keys(word: str) -> tuple[str, ...]:
    """Names of the classes that a word falls back to, the narrowest first.

    By its shape with an ending of three and of two letters, its shape alone, and last the class of
    all words.

    Example:
        >>> class_keys("Vancouver")
        ('Aa -ver', 'Aa -er', 'Aa', '')
        >>> class_keys("p53")
        ('a0', '')
    """
    form = short_shape(word)[:LONGEST_SHAPE]
    # The ending of a short word, or of a number, is most of it, and no ending.
    ends = [word[-size:].lower() for size in (3, 2) if len(word) > size + 1 and word.isalpha()]
    return (*(f"{form} -{end}" for end in ends), form, "")


class Lexicon:
    """Rows of a table about words: those of known words, and after them those of classes.

    Args:
        words: the known words, as normalised.
        classes: `class_keys` that have a row.
        normalisation: how words are spelled in `words`.

    Example:
        >>> lexicon = Lexicon(StringTable(["the", "dog"]), StringTable(["Aa"]), Normalisation())
        >>> lexicon.rows(["The", "Bello", "cat"]).tolist(), len(lexicon)
        ([0, 2, -1], 3)
    """

    def __init__(self, words: StringTable, classes: StringTable, normalisation: Normalisation):
        self.words = words
        self.classes = classes
        self.normalisation = normalisation

    def __len__(self) -> int:
        return len(self.words) + len(self.classes)

    def rows(self, words: Sequence[str]) -> np.ndarray:
        """The row of each word, int64; −1 for one that is not known and of no class."""
        rows = self.words.numbers(list(map(self.normalisation, words)))
        for place in np.flatnonzero(rows < 0).tolist():
            known = self.classes.numbers(class_keys(words[place]))
            known = known[known >= 0]
            if len(known):
                rows[place] = len(self.words) + known[0]
        return rows

    def names(self) -> list[str]:
        """What each row is about, for reading: a word, or a class as ``<Aa -er>``."""
        return self.words.strings + [f"<{key}>" for key in self.classes.strings]

    def to_state(self, name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What JSON can hold, and arrays under names that begin with `name`."""
        normalisation = {"lower": self.normalisation.lower, "digits": self.normalisation.digits}
        arrays = self.words.to_arrays(f"{name}.words") | self.classes.to_arrays(f"{name}.classes")
        return normalisation, arrays

    @classmethod
    def from_state(cls, meta: Any, arrays: Mapping[str, Any], name: str) -> Lexicon:
        """The lexicon that `to_state` described; ValueError where the state is not sound."""
        sound = isinstance(meta, Mapping) and set(meta) == {"lower", "digits"}
        if not sound or not all(isinstance(value, bool) for value in meta.values()):
            raise ValueError(f"{name}: expected whether to lower and digits, got {meta!r:.80}")
        words = StringTable.from_arrays(arrays, f"{name}.words")
        classes = StringTable.from_arrays(arrays, f"{name}.classes")
        return cls(words, classes, Normalisation(**meta))


@dataclass(frozen=True)
class Counted:
    """The words of a corpus, their lexicon, and which of the words each row is about.

    Args:
        column: the words of all tokens, as they are spelled.
        lengths: tokens of each sentence.
        lexicon: the rows.
        members: row and string of `column`, two arrays: a known word's spellings, and for a class
            the rare words that are of it.
        counts: tokens of each row, of classes those of their members.
    """

    column: Column
    lengths: np.ndarray
    lexicon: Lexicon
    members: tuple[np.ndarray, np.ndarray]
    counts: np.ndarray

    @property
    def own_rows(self) -> np.ndarray:
        """The row of each string of `column`, −1 for none."""
        return self.lexicon.rows(self.column.strings)


def count_words(
    column: Column,
    lengths: np.ndarray,
    normalisation: Normalisation,
    *,
    min_count: int,
    rare_count: int,
    class_count: int,
    max_words: int,
) -> Counted:
    """Count the words of a corpus, and choose those that get a row.

    Args:
        column: the words of all tokens.
        lengths: tokens of each sentence.
        normalisation: of the words.
        min_count: occurrences that a known word has at least.
        rare_count: words with fewer occurrences stand for the unknown ones, and make the classes.
        class_count: tokens that a class has at least.
        max_words: known words at most, the most frequent ones.

    Cost: O(tokens), and Python for each distinct string.

    Example:
        >>> words = Column.from_cells(["the", "dog", "The", "cat"])
        >>> counted = count_words(
        ...     words, np.array([4]), Normalisation(), min_count=2, rare_count=2, class_count=2,
        ...     max_words=10,
        ... )
        >>> counted.lexicon.names(), counted.counts.tolist()
        (['the', '<a>', '<>'], [2, 2, 2])
    """
    occurrences = np.bincount(column.codes, minlength=len(column.strings))
    table = StringTable()
    normal = table.add(list(map(normalisation, column.strings)))
    totals = np.bincount(normal, occurrences, minlength=len(table)).astype(np.int64)
    # By falling count; of equally frequent words, the one that was read first comes first.
    order = np.argsort(-totals, kind="stable")
    kept = order[totals[order] >= min_count][:max_words]
    place = np.full(len(table), -1)
    place[kept] = np.arange(len(kept))
    spellings = np.flatnonzero(place[normal] >= 0)
    keys = StringTable()
    classes, members = _pairs(
        (keys.add(class_keys(column.strings[string])), string)
        for string in np.flatnonzero(totals[normal] < rare_count).tolist()
    )
    tokens = np.bincount(classes, occurrences[members], minlength=len(keys)).astype(np.int64)
    wanted = np.flatnonzero(tokens >= class_count)
    number = np.full(len(keys), -1)
    number[wanted] = np.arange(len(wanted))
    of_class = number[classes] >= 0
    names = table.strings
    lexicon = Lexicon(
        StringTable(names[word] for word in kept.tolist()),
        StringTable(key for key, keep in zip(keys.strings, (number >= 0).tolist()) if keep),
        normalisation,
    )
    rows = np.concatenate([place[normal[spellings]], len(kept) + number[classes[of_class]]])
    strings = np.concatenate([spellings, members[of_class]])
    counts = np.concatenate([totals[kept], tokens[wanted]])
    return Counted(column, lengths, lexicon, (rows, strings), counts)


def _pairs(each: Iterable[tuple[np.ndarray, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Keys and the string that each is of, in two arrays."""
    keys: list[np.ndarray] = [np.zeros(0, np.int64)]
    strings: list[int] = []
    sizes: list[int] = []
    for numbers, string in each:
        keys.append(numbers)
        strings.append(string)
        sizes.append(len(numbers))
    return np.concatenate(keys), np.repeat(np.array(strings, np.int64), np.array(sizes, np.int64))
