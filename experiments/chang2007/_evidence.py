"""How often labelled sentences break the rules, and where their fields meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxseq.constraints import PUNCTUATION, Penalised, Words, bind_constraints, count_violations
from jaxseq.text import Sentence

SIDES: tuple[str, ...] = ("before", "after", "both", "neither")


def violation_counts(rules: Sequence[Penalised], sentences: Sequence[Sentence]) -> np.ndarray:
    """Violations [sentences, rules] of the right labels.

    Example:
        >>> from jaxseq.constraints import AtMostOnce, Penalised
        >>> one = Sentence({"word": ["a", "b", "c"], "label": ["X", "Y", "X"]})
        >>> violation_counts([Penalised(AtMostOnce(), 1.0)], [one]).tolist()
        [[1]]
    """
    labels = _all_labels(rules, sentences)
    constraints = bind_constraints(rules, labels)
    lengths = np.array([len(sentence) for sentence in sentences], np.int32)
    longest = int(lengths.max())  # one shape, and so one program for all sentences
    number = {label: index for index, label in enumerate(labels)}
    paths = np.zeros((len(sentences), longest), np.int32)
    for row, sentence in zip(paths, sentences):
        row[: len(sentence)] = [number[label] for label in sentence["label"]]
    seen = [jax.tree.map(lambda a: _padded(a, longest), constraints.observe(s)) for s in sentences]
    x = jax.tree.map(lambda *arrays: np.stack(arrays), *seen)

    def count(x: Any, path: Any, length: Any) -> Any:
        return count_violations(constraints, x, path, length)

    return np.asarray(jax.jit(jax.vmap(count))(x, paths, lengths))


def _all_labels(rules: Sequence[Penalised], sentences: Sequence[Sentence]) -> list[str]:
    named = {label for one in rules for label in getattr(one.rule, "labels", None) or ()}
    return sorted(named | {label for sentence in sentences for label in sentence["label"]})


def _padded(array: np.ndarray, length: int) -> np.ndarray:
    return np.pad(array, [(0, length - len(array)), *[(0, 0)] * (array.ndim - 1)])


def occasions(rule: Any, sentences: Sequence[Sentence]) -> int | None:
    """Tokens that a rule about words is about; None for other rules."""
    tokens = getattr(rule, "tokens", None)
    # A rule about transitions has tokens as well, but is not about each of them.
    if tokens is None or getattr(rule, "side", None) is not None:
        return None
    return int(sum(tokens.marks(sentence).sum() for sentence in sentences))


def meetings(sentences: Sequence[Sentence]) -> dict[str, int]:
    """Places where one field follows another, by where punctuation stands there.

    Example:
        >>> meetings([Sentence({"word": ["A", ".", "B", "C"], "label": list("XXYZ")})])
        {'before': 1, 'after': 0, 'both': 0, 'neither': 1}
    """
    counts = dict.fromkeys(SIDES, 0)
    marks = Words(pattern=PUNCTUATION)
    for sentence in sentences:
        marked, labels = marks.marks(sentence), sentence["label"]
        for t in range(1, len(labels)):
            if labels[t] != labels[t - 1]:
                pair = (bool(marked[t - 1]), bool(marked[t]))
                names = {(True, False): "before", (False, True): "after", (True, True): "both"}
                counts[names.get(pair, "neither")] += 1
    return counts


def evidence(rules: Sequence[Penalised], sentences: Sequence[Sentence]) -> dict[str, Any]:
    """What a cell says of the rules of a domain."""
    counts = violation_counts(rules, sentences)
    listed = [
        {
            "name": one.name or type(one.rule).__name__,
            "violations": int(counts[:, index].sum()),
            "sentences": int((counts[:, index] > 0).sum()),
            "occasions": occasions(one.rule, sentences),
        }
        for index, one in enumerate(rules)
    ]
    tokens = sum(len(sentence) for sentence in sentences)
    return {
        "sentences": len(sentences),
        "tokens": tokens,
        "without_any": int((counts.sum(1) == 0).sum()),
        "rules": listed,
        "meetings": meetings(sentences),
    }
