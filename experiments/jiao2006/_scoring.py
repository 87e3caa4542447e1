"""Mentions: which are right, exactly or by an accepted alternative, and tests between taggers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxseq.metrics import SpanCounts, mcnemar, spans
from jaxseq.text import Sentence

Limits = tuple[int, int]
Tags = Sequence[str]


def mentions(tags: Tags) -> list[Limits]:
    """(start, stop) of each mention.

    Example:
        >>> mentions(["B-GENE", "I-GENE", "O", "B-GENE"])
        [(0, 2), (3, 4)]
    """
    return [(start, stop) for start, stop, _ in spans(tags)]


def count_found(
    gold: Sequence[Limits], predicted: Sequence[Limits], alternatives: Iterable[Limits] = ()
) -> int:
    """How many mentions are found: predicted as they are, or as an alternative that overlaps them.

    A predicted mention finds one mention at most. Mentions that are predicted exactly are taken
    first; the others, from left to right, find the leftmost that is not found yet. Since neither
    gold nor predicted mentions overlap among themselves, no other choice finds more.

    Example:
        >>> count_found([(0, 1), (2, 3)], [(0, 1), (2, 5)])
        1
        >>> count_found([(0, 1), (2, 3)], [(0, 1), (2, 5)], alternatives=[(2, 5)])
        2
        >>> count_found([(0, 1), (2, 3)], [(0, 3)], alternatives=[(0, 3)])
        1
    """
    exact = set(gold) & set(predicted)  # first, or an alternative could take what is theirs
    left = sorted(set(gold) - exact)
    count = len(exact)
    for start, stop in sorted((set(predicted) - exact) & set(alternatives)):
        match = next((one for one in left if one[0] < stop and start < one[1]), None)
        if match is not None:
            left.remove(match)  # no mention is found twice
            count += 1
    return count


def score_mentions(
    sentences: Sequence[Sentence],
    predicted: Sequence[Tags],
    alternatives: Mapping[str, Sequence[Limits]] | None = None,
) -> SpanCounts:
    """Mentions that are found, predicted and there to be found.

    Args:
        sentences: with the right labels.
        predicted: labels of each.
        alternatives: name of a sentence → limits that also count; None or empty for exact scores.
    """
    also = alternatives or {}
    right = guessed = wanted = 0
    for sentence, tags in zip(sentences, predicted, strict=True):
        gold, ours = mentions(sentence["label"]), mentions(tags)
        right += count_found(gold, ours, also.get(sentence.name or "", ()))
        guessed, wanted = guessed + len(ours), wanted + len(gold)
    return SpanCounts(right, guessed, wanted)


def compare(
    sentences: Sequence[Sentence], ours: Sequence[Tags], theirs: Sequence[Tags]
) -> dict[str, Any]:
    """McNemar's test on sentences: a tagger is right on one if all its mentions, and no others,
    are predicted. Sentences, unlike the tokens of one, are drawn independently of each other.

    Returns:
        ``only_ours`` and ``only_theirs``, the sentences that one of them alone gets right, and
        the exact ``p_value``.
    """
    verdicts = [
        [str(mentions(tags) == mentions(sentence["label"])) for tags in both]
        for sentence, *both in zip(sentences, ours, theirs, strict=True)
    ]
    columns = [[[verdict[side]] for verdict in verdicts] for side in (0, 1)]
    test = mcnemar([["True"]] * len(verdicts), *columns)
    return {"only_ours": test.n10, "only_theirs": test.n01, "p_value": test.exact_p_value}
