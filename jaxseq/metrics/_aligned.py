"""Checks that two labellings are of the same sentences."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

Labellings = Iterable[Sequence[Hashable]]


def aligned_labels(**labellings: Labellings) -> Iterator[tuple[Hashable, ...]]:
    """The labels of each token under each labelling, sentence after sentence.

    Args:
        labellings: name, for the messages → a sequence of labels a sentence.

    Raises:
        ValueError: for labellings of different numbers of sentences, sentences of different
            lengths, and strings where sequences of labels are expected.
    """
    for sentences in aligned_sentences(**labellings):
        yield from zip(*sentences)


def aligned_sentences(**labellings: Labellings) -> list[tuple[Sequence[Hashable], ...]]:
    """The labels of each sentence under each labelling; see `aligned_labels`."""
    names = tuple(labellings)
    columns = [_as_sentences(name, labelling) for name, labelling in labellings.items()]
    if len({len(column) for column in columns}) > 1:
        counts = _listed(names, map(len, columns))
        raise ValueError(f"{', '.join(names)}: expected equally many sentences, got {counts}")
    rows = list(zip(*columns))
    for index, row in enumerate(rows):
        if len(set(map(len, row))) > 1:
            lengths = _listed(names, map(len, row))
            raise ValueError(f"sentence {index}: expected equal lengths, got {lengths}")
    return rows


def _as_sentences(name: str, labelling: Labellings) -> list[Sequence[Hashable]]:
    """ValueError for a flat list of strings, which would pass for sentences of characters."""
    sentences = list(labelling)
    for index, sentence in enumerate(sentences):
        if isinstance(sentence, (str, bytes)) or not hasattr(sentence, "__len__"):
            raise ValueError(
                f"{name}, sentence {index}: expected a sequence of labels, got {sentence!r}"
            )
    return sentences


def _listed(names: Iterable[str], counts: Iterable[int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in zip(names, counts))
