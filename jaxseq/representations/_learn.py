"""From sentences without labels to a `Representation`."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jaxseq._runtime import progress_bar
from jaxseq.representations._brown import brown_clusters, neighbour_counts
from jaxseq.representations._contexts import (
    cluster_directions,
    count_contexts,
    positive_information,
    reduce_dimensions,
    shrink_rare,
)
from jaxseq.representations._lexicon import Counted, Normalisation, count_words
from jaxseq.representations._representation import Representation
from jaxseq.representations._states import StateModel, learn_states
from jaxseq.text import read_corpus

KINDS = ("clusters", "brown", "states")
SIZES = (16, 64, 256, 1024)
"""Numbers of clusters: coarse ones for words that few labelled sentences speak of."""

RARE_COUNT, CLASS_COUNT = 3, 10
"""Words with fewer occurrences stand for unknown ones; tokens that a class of them has at least."""
OWN_COUNT = 3.0
"""Occurrences by which the neighbours of a word are shrunk towards those of its class."""
SMOOTHING, POWER = 0.75, 0.5
"""Of the neighbours' counts, and of the singular values; as in Levy, Goldberg & Dagan 2015."""


def learn_representation(
    sentences: Iterable[Any],
    *,
    kinds: Sequence[str] = ("clusters",),
    sizes: Sequence[int] = SIZES,
    brown_classes: int = 256,
    num_states: int = 64,
    offsets: Sequence[int] = (-1, 1),
    max_contexts: int = 2000,
    dimensions: int = 64,
    min_count: int = 2,
    max_words: int = 100_000,
    state_tokens: int = 300_000,
    state_iterations: int = 10,
    lower: bool = True,
    digits: bool = True,
    column: str = "word",
    seed: int = 0,
    progress: bool | None = None,
) -> Representation:
    """Learn what words have in common from the company that they keep.

    Features of a tagger that has seen few labelled sentences say little about the many words that
    these do not hold. Words with the same neighbours in unlabelled text are alike, and mostly have
    the same labels: given the cluster of a word as a feature, the tagger knows what it has learnt
    of any word of the cluster.

    - ``"clusters"``: k-means of word vectors, at several sizes. A vector is the singular value
      decomposition of the positive pointwise mutual information of words and their neighbours.
    - ``"brown"``: Brown clusters, whose bit strings give coarse and fine classes at once.
    - ``"states"``: of a hidden Markov model trained by EM. They depend on the neighbours of the
      token, too: *bank* may have another state in another sentence.

    Rare words borrow from those that are spelled like them, and unknown words are taken for these.

    Args:
        sentences: as for a tagger, without labels; those that will be tagged may be among them.
        kinds: one or more of those above.
        sizes: numbers of clusters.
        brown_classes: number of Brown clusters.
        num_states: states of the hidden Markov model.
        offsets: which neighbours make the vector of a word.
        max_contexts: so many of the most frequent words are neighbours of their own; others are
            told apart by their shape.
        dimensions: of the vectors.
        min_count: occurrences of a word that is to be known by itself.
        max_words: known words at most, the most frequent ones.
        state_tokens: EM reads the first sentences up to so many tokens.
        state_iterations: of EM.
        lower: take ``The`` for ``the``.
        digits: take all digits for one.
        column: of the sentences, that has the words.
        seed: of the vectors and the first centres of clusters.
        progress: show progress bars; None shows them on a terminal.

    Returns:
        A `Representation`. The same sentences and seed give the same one, whatever the number of
        cores.

    Raises:
        ValueError: for sentences without a token, and for settings that make no sense.

    Cost: a million tokens take about half a minute for clusters; Brown clusters of ten thousand
    words as long, and more than in proportion for more words and classes.

    References:
        Miller, Guinness & Zamanian 2004; Koo, Carreras & Collins 2008; Huang & Yates 2009; Turian,
        Ratinov & Bengio 2010.

    Example:
        >>> text = [["the", "dog", "barks"], ["the", "cat", "sleeps"], ["a", "dog", "sleeps"]] * 9
        >>> learn_representation(text, sizes=(3,))
        <Representation: 6 words; clusters 3>
    """
    about: dict[str, Any] = {
        "kinds": _check_kinds(kinds),
        "sizes": _whole_numbers("sizes", sizes, 1),
        "offsets": _whole_numbers("offsets", offsets, None),
        "lower": bool(lower),
        "digits": bool(digits),
        "column": column,
    }
    for name, value, least in (
        ("brown_classes", brown_classes, 1),
        ("num_states", num_states, 1),
        ("max_contexts", max_contexts, 1),
        ("dimensions", dimensions, 1),
        ("min_count", min_count, 1),
        ("max_words", max_words, 1),
        ("state_tokens", state_tokens, 1),
        ("state_iterations", state_iterations, 0),
        ("seed", seed, 0),
    ):
        about[name] = _whole_numbers(name, [value], least)[0]
    if not isinstance(column, str):
        raise ValueError(f"column: expected the name of one, a string, got {column!r:.60}")
    if isinstance(sentences, str | bytes) or not isinstance(sentences, Iterable):
        raise ValueError(f"sentences: expected sentences, got {sentences!r:.60}")
    columns, lengths = read_corpus(sentences, [column])
    if not lengths.sum():
        raise ValueError("sentences: expected at least one with a token, got none")
    counted = count_words(
        columns[column],
        lengths,
        Normalisation(about["lower"], about["digits"]),
        min_count=about["min_count"],
        rare_count=RARE_COUNT,
        class_count=CLASS_COUNT,
        max_words=about["max_words"],
    )
    if not len(counted.lexicon):
        raise ValueError(
            f"sentences: expected a word that occurs {about['min_count']} times (min_count), or "
            f"{CLASS_COUNT} rare words, got {int(lengths.sum())} different tokens"
        )
    about |= {"sentences": len(lengths), "tokens": int(lengths.sum())}
    clusters: dict[int, np.ndarray] = {}
    brown = states = None
    wanted = list(about["sizes"]) if "clusters" in kinds else []
    if "states" in kinds and num_states not in wanted:
        wanted.append(about["num_states"])
    if wanted:
        clusters = _learn_clusters(counted, wanted, about, progress)
    if "states" in kinds:
        states = _learn_states(counted, clusters[about["num_states"]], about, progress)
    if "brown" in kinds:
        brown = _learn_brown(counted, about["brown_classes"], progress)
    kept = {size: clusters[size] for size in about["sizes"]} if "clusters" in kinds else {}
    return Representation(counted.lexicon, kept, brown, states, column, about)


def _learn_clusters(
    counted: Counted, sizes: list[int], about: dict[str, Any], progress: bool | None
) -> dict[int, np.ndarray]:
    with progress_bar("clusters", 1 + len(sizes), progress, "size") as tick:
        counts = count_contexts(counted, tuple(about["offsets"]), about["max_contexts"])
        counts = shrink_rare(counts, counted, OWN_COUNT)
        information = positive_information(counts, len(counted.lexicon.words), SMOOTHING)
        vectors = reduce_dimensions(information, about["dimensions"], about["seed"], POWER)
        tick(1, 0)
        # A word counts for its cluster by the logarithm of its frequency: by the frequency, "the"
        # would be most of a cluster, and by none, the rarest words would be.
        weights = np.log1p(counted.counts)
        clusters = {}
        for done, size in enumerate(sizes, start=2):
            clusters[size], _ = cluster_directions(
                vectors, size, seed=about["seed"], weights=weights
            )
            tick(done, size)
    return clusters


def _learn_states(
    counted: Counted, first: np.ndarray, about: dict[str, Any], progress: bool | None
) -> StateModel:
    return learn_states(
        counted,
        counted.own_rows[counted.column.codes],
        first,
        max_tokens=about["state_tokens"],
        iterations=about["state_iterations"],
        progress=False if progress is None else progress,
    )


def _learn_brown(
    counted: Counted, classes: int, progress: bool | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The class of each row: of known words and of narrow classes, whose tokens stand for them."""
    own = counted.own_rows
    rows = len(counted.lexicon)
    with progress_bar("Brown clusters", rows, progress) as tick:
        counts = neighbour_counts(own[counted.column.codes], counted.lengths, rows)
        tree = brown_clusters(counts, classes, tick)
    found = tree.classes.copy()
    # A wide class may have no tokens of its own, as all of them are in narrower ones: it is where
    # most tokens of its words are.
    row, string = counted.members
    occurrences = np.bincount(counted.column.codes, minlength=len(own))
    number = np.where(own >= 0, found[own], -1)[string]
    chosen = (found[row] < 0) & (number >= 0)
    keys = row[chosen].astype(np.int64) * len(tree.paths) + number[chosen]
    if len(keys):
        distinct, place = np.unique(keys, return_inverse=True)
        totals = np.bincount(place, occurrences[string[chosen]])
        for key in distinct[np.argsort(totals, kind="stable")].tolist():
            found[key // len(tree.paths)] = key % len(tree.paths)  # the largest is last
    return found, tree.paths


def _check_kinds(kinds: Any) -> list[str]:
    listed = [kinds] if isinstance(kinds, str) else list(kinds)
    if not listed or not set(listed) <= set(KINDS):
        raise ValueError(f"kinds: expected some of {', '.join(KINDS)}, got {kinds!r:.60}")
    return listed


def _whole_numbers(name: str, values: Any, least: int | None) -> list[int]:
    """Different whole numbers, at least so large, or other than 0, as Python's."""
    listed = list(values) if isinstance(values, Iterable) else [values]
    for value in listed:
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if not whole or (value == 0 if least is None else value < least):
            what = "other than 0" if least is None else f"from {least} on"
            raise ValueError(f"{name}: expected whole numbers {what}, got {value!r:.60}")
    if not listed or len(set(listed)) < len(listed):
        raise ValueError(f"{name}: expected one or more different numbers, got {values!r:.60}")
    return [int(value) for value in listed]
