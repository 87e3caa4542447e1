"""What a paper's cell is given to read corpora with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from experiments.data._catalogue import corpus_named
from experiments.data._sources import Source

if TYPE_CHECKING:
    from jaxseq.text import Sentence

SPLIT_SEEDS = {"train": 0, "labelled": 0, "dev": 1, "test": 2, "unlabelled": 3}
"""Seed of the generator for each part, so that parts differ."""


class Data:
    """Sentences of the corpora that a paper has declared, read once.

    Args:
        sources: corpus → where its sentences come from; see `choose_sources`.

    Example:
        >>> data = Data({"conll2000": Source("conll2000")})
        >>> data.source("conll2000")
        'embedded'
    """

    def __init__(self, sources: Mapping[str, Source]):
        self._sources = dict(sources)
        self._read: dict[tuple[str, str, int | None, bool], list[Sentence]] = {}
        self._used: set[str] = set()

    def corpus(
        self, name: str, split: str = "train", count: int | None = None, *, raw: bool = False
    ) -> list[Sentence]:
        """Sentences of a part of a corpus, and a note that the cell has used it.

        Columns are "word", "pos" (not in citations, ads, bc2gm), "chunk" (only in conll2003) and
        "label" (not in unlabelled parts); generated sentences may have a "pos" more.

        Args:
            name: a corpus that the paper lists in ``CORPORA``.
            split: a part: see `experiments.data.CORPORA`.
            count: the first sentences only; None for all, of a generator for its usual number.
            raw: of conll2003 the file as it is: spans in IOB1, and lines ``-DOCSTART-`` as
                sentences of one token. Other corpora have but one form.

        Returns:
            The sentences, in a new list.

        Raises:
            ValueError: for a corpus that is not declared, a part that it does not have, and more
                sentences than there are.
        """
        source = self._declared(name)
        _check_split(name, split)
        if count is not None and count < 0:
            raise ValueError(f"count of {name}: expected at least 0, got {count}")
        self._used.add(name)
        sentences = self._sentences(source, split, count, raw)
        if count is not None and count > len(sentences):
            raise ValueError(
                f"count of {name}, {split}: expected at most {len(sentences)}, got {count}"
            )
        return sentences[:count]

    def alternatives(self, name: str, split: str = "train") -> dict[str, list[tuple[int, int]]]:
        """Spans that count as right as well as the labelled ones that they overlap.

        GENETAG has such a list, for names whose limits are a matter of taste; other corpora, and
        the generators, have none.

        Args:
            name: a corpus that the paper lists in ``CORPORA``.
            split: a part of it.

        Returns:
            Name of a sentence → (start, stop) of each such span; the last token is stop − 1.

        Raises:
            ValueError: as `corpus`.

        Example:
            >>> Data({"genetag": Source("genetag")}).alternatives("genetag")
            {}
        """
        source = self._declared(name)
        _check_split(name, split)
        self._used.add(name)
        if source.folder is None:
            return {}
        from experiments.data._readers import read_alternatives

        return read_alternatives(name, split, source.folder)

    def source(self, name: str) -> str:
        """``real`` or ``embedded``."""
        return self._declared(name).kind

    def take_used(self) -> dict[str, str]:
        """Corpora used since the last call → ``real`` or ``embedded``, by name."""
        used = {name: self._sources[name].kind for name in sorted(self._used)}
        self._used.clear()
        return used

    def _declared(self, name: str) -> Source:
        if name not in self._sources:
            declared = ", ".join(self._sources) or "none"
            raise ValueError(f"corpus: expected one that CORPORA lists ({declared}), got {name!r}")
        return self._sources[name]

    def _sentences(
        self, source: Source, split: str, count: int | None, raw: bool
    ) -> list[Sentence]:
        from experiments.data._readers import generate, read_real

        corpus = corpus_named(source.corpus)
        if source.folder is not None:
            count = None  # a file is read as a whole
        elif count is None:
            count = corpus.splits[split]
        key = (source.corpus, split, count, raw)
        if key not in self._read:
            if source.folder is not None:
                self._read[key] = read_real(source.corpus, split, source.folder, raw=raw)
            else:
                seed = SPLIT_SEEDS[split]
                self._read[key] = generate(corpus.stand_in, source.corpus, split, count or 0, seed)
        return self._read[key]


def _check_split(name: str, split: str) -> None:
    splits = corpus_named(name).splits
    if split not in splits:
        raise ValueError(f"split of {name}: expected one of {', '.join(splits)}, got {split!r}")
