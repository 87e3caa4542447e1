"""Agreement of two labellings, token by token."""

from __future__ import annotations

from collections import Counter

from jaxseq.metrics._aligned import Labellings, aligned_labels


def token_accuracy(gold: Labellings, predicted: Labellings) -> float:
    """The share of tokens whose predicted label is right.

    Args:
        gold: the right labels, a sequence a sentence.
        predicted: as many labels.

    Returns:
        A number from 0 to 1.

    Raises:
        ValueError: for labellings that differ in length, or have no token at all.

    Example:
        >>> token_accuracy([["DT", "NN"], ["VB", "NN"]], [["DT", "NN"], ["NN", "NN"]])
        0.75
    """
    pairs = list(aligned_labels(gold=gold, predicted=predicted))
    if not pairs:
        raise ValueError("gold, predicted: expected at least one token, got none")
    return sum(right == guess for right, guess in pairs) / len(pairs)


def cohen_kappa(a: Labellings, b: Labellings) -> float:
    """Cohen's kappa: agreement of two labellings beyond chance, token by token.

    κ = (p − q) / (1 − q), where p is the share of tokens on which they agree and q the share
    expected of two labellings that are independent, with the label frequencies of these.

    Args:
        a: labels, a sequence a sentence.
        b: as many labels.

    Returns:
        At most 1, which is full agreement; 0 is that of chance. When both give one and the same
        label to all tokens q is 1 and the fraction 0/0: they agree fully, so the answer is 1.

    Raises:
        ValueError: for labellings that differ in length, or have no token at all.

    Example:
        >>> cohen_kappa([["x", "x", "y", "y"]], [["x", "x", "y", "x"]])
        0.5

    Reference:
        Cohen (1960), "A coefficient of agreement for nominal scales".
    """
    pairs = list(aligned_labels(a=a, b=b))
    if not pairs:
        raise ValueError("a, b: expected at least one token, got none")
    n = len(pairs)
    agreed = sum(first == second for first, second in pairs)
    first_counts = Counter(first for first, _ in pairs)
    second_counts = Counter(second for _, second in pairs)
    by_chance = sum(count * second_counts[label] for label, count in first_counts.items())
    if by_chance == n * n:
        return 1.0
    return (agreed * n - by_chance) / (n * n - by_chance)  # in whole numbers until here
