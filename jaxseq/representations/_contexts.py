"""Vectors of words from their neighbours: positive pointwise mutual information, and its SVD."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.utils.extmath import randomized_svd
from threadpoolctl import threadpool_limits

from jaxseq.representations._lexicon import Counted
from jaxseq.text import Column, short_shape

Matrix: TypeAlias = Any
"""A `scipy.sparse.csr_matrix`, of which type checkers know too little."""

SHAPE_TOKENS = 10
"""Neighbours that are not among the frequent words are told apart by shapes with so many tokens."""


def count_contexts(counted: Counted, offsets: tuple[int, ...], max_contexts: int) -> Matrix:
    r"""How often each row of the lexicon has which neighbour at which offset.

    A neighbour is one of the most frequent words, or of a shape, or the end of the sentence. Every
    offset has columns of its own.

    Args:
        counted: of `count_words`.
        offsets: places of the neighbours, such as (−1, 1).
        max_contexts: frequent words that are neighbours of their own.

    Returns:
        float64 [rows, offsets · neighbours].

    Cost: O(tokens · offsets).
    """
    codes, lengths = counted.column.codes, counted.lengths
    neighbour, kinds = _neighbours(counted, max_contexts)
    ends = np.cumsum(lengths)
    before = np.arange(len(codes)) - np.repeat(ends - lengths, lengths)
    after = np.repeat(lengths, lengths) - 1 - before
    columns = []
    for offset in offsets:
        # A neighbour past an end of the sentence is that end, kind 0.
        inside = np.flatnonzero(before >= -offset if offset < 0 else after >= offset)
        kind = np.zeros(len(codes), np.int64)
        kind[inside] = neighbour[codes[inside + offset]]
        columns.append(kind)
    strings = len(counted.column.strings)
    width = kinds * len(offsets)
    keys = np.concatenate(
        [codes * width + (place * kinds + kind) for place, kind in enumerate(columns)]
        or [np.zeros(0, np.int64)]
    )
    distinct, counts = np.unique(keys, return_counts=True)
    by_string: Matrix = sp.csr_matrix(
        (counts.astype(np.float64), (distinct // width, distinct % width)), (strings, width)
    )
    rows, members = counted.members
    belongs: Matrix = sp.csr_matrix(
        (np.ones(len(rows)), (rows, members)), (len(counted.lexicon), strings)
    )
    return (belongs @ by_string).tocsr()


def _neighbours(counted: Counted, max_contexts: int) -> tuple[np.ndarray, int]:
    """What each string of the column is as a neighbour, and how many kinds there are."""
    column: Column = counted.column
    own = counted.lexicon.words.numbers(list(map(counted.lexicon.normalisation, column.strings)))
    frequent = (own >= 0) & (own < max_contexts)  # known words are sorted by falling count
    words = min(max_contexts, len(counted.lexicon.words))
    forms = Column.from_cells([short_shape(string) for string in column.strings])
    occurrences = np.bincount(column.codes, minlength=len(column.strings))
    tokens = np.bincount(
        forms.codes, np.where(frequent, 0, occurrences), minlength=len(forms.strings)
    )
    shapes = np.flatnonzero(tokens >= SHAPE_TOKENS)
    other = 1 + words + len(shapes)
    number = np.full(len(forms.strings), other)
    number[shapes] = 1 + words + np.arange(len(shapes))
    return np.where(frequent, 1 + own, number[forms.codes]), other + 1


def shrink_rare(counts: Matrix, counted: Counted, strength: float) -> Matrix:
    """Add to every word's neighbours those of its class, as if it had occurred so often more.

    So a word that occurred twice is mostly what words spelled like it are, and one that occurred a
    thousand times is itself.

    Args:
        counts: of `count_contexts`.
        counted: of `count_words`.
        strength: occurrences that are added; 0 adds nothing.
    """
    lexicon = counted.lexicon
    if not strength or not len(lexicon.classes):
        return counts
    words = len(lexicon.words)
    rows, members = counted.members
    # The most frequent spelling of a known word says which class it is of.
    first = np.full(words, -1)
    occurrences = np.bincount(counted.column.codes, minlength=len(counted.column.strings))
    order = np.argsort(occurrences[members], kind="stable")
    own = order[rows[order] < words]
    first[rows[own]] = members[own]
    fallback = type(lexicon)(type(lexicon.words)(), lexicon.classes, lexicon.normalisation)
    classes = fallback.rows([counted.column.strings[string] for string in first.tolist()])
    known = np.flatnonzero(classes >= 0)
    totals = np.maximum(counted.counts[words:], 1)
    share = strength / totals[classes[known]]
    mixing: Matrix = sp.csr_matrix((share, (known, words + classes[known])), (counts.shape[0],) * 2)
    return (counts + mixing @ counts).tocsr()


def positive_information(counts: Matrix, words: int, smoothing: float) -> Matrix:
    r"""Positive pointwise mutual information of rows and columns.

    .. math:: \max\Big(0, \log \frac{n_{wc} / n_w}{n_c^\alpha / \sum_c n_c^\alpha}\Big)

    Args:
        counts: [rows, columns].
        words: the first so many rows are words, whose counts make the columns' distribution;
            classes, which come after them, would count tokens twice.
        smoothing: α; below 1, rare neighbours say less.

    References:
        Bullinaria & Levy 2007; Levy, Goldberg & Dagan 2015.
    """
    columns = np.asarray(counts[:words].sum(0)).ravel()
    if not columns.any():
        columns = np.asarray(counts.sum(0)).ravel()
    powers = np.where(columns > 0, columns, 1.0) ** smoothing
    powers[columns == 0] = 0
    total = powers.sum()
    rows = np.asarray(counts.sum(1)).ravel()
    entries = counts.tocoo()
    expected = rows[entries.row] * powers[entries.col]
    # A column of words that no known word has as its neighbour says nothing.
    ratio = np.divide(
        entries.data * total, expected, out=np.ones(len(entries.data)), where=expected > 0
    )
    information: Matrix = sp.csr_matrix(
        (np.maximum(np.log(ratio), 0), (entries.row, entries.col)), counts.shape
    )
    information.eliminate_zeros()
    return information


def reduce_dimensions(information: Matrix, dimensions: int, seed: int, power: float) -> np.ndarray:
    """Rows as vectors of length 1: U · S^power of a truncated singular value decomposition.

    Args:
        information: [rows, columns].
        dimensions: at most, and fewer where the matrix has fewer.
        seed: of the randomised method.
        power: of the singular values.

    Returns:
        float32 [rows, dimensions]; a row of zeros stays one.

    Cost: O(dimensions · entries) for each of a few rounds. On one core, so that the last bits do
    not depend on how many there are.
    """
    size = min(dimensions, *(max(side - 1, 1) for side in information.shape))
    if not information.nnz:
        return np.zeros((information.shape[0], size), np.float32)
    with threadpool_limits(1):
        svd: Any = randomized_svd  # whose stubs take the number of rounds for a string
        left, values, _ = svd(information.astype(np.float32), size, n_iter=4, random_state=seed)
    return unit_rows(left * values**power)


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Each row divided by its length, as float32; zeros stay zeros.

    Example:
        >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).round(1).tolist()
        [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    lengths = np.sqrt((vectors.astype(np.float64) ** 2).sum(1, keepdims=True))
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0).astype(
        np.float32
    )


# ------------------------------------------------ clusters by direction: k-means on the unit sphere

BLOCK = 4096
"""Rows that are compared with all centres at once; fixed, as rounding may depend on it."""


def cluster_directions(
    vectors: np.ndarray, clusters: int, *, seed: int, weights: np.ndarray, iterations: int = 25
) -> tuple[np.ndarray, np.ndarray]:
    """Spherical k-means: the cluster of each row, and the centres.

    Args:
        vectors: float32 [rows, dimensions], of length 1 (or 0: these belong to any cluster).
        clusters: at most; there are no more than there are different rows.
        seed: of the first centres, which k-means++ draws.
        weights: how much each row counts for its centre, [rows].
        iterations: at most.

    Returns:
        int32 [rows], and float32 [clusters, dimensions]. Clusters are numbered by falling number
        of rows, so that numbers do not depend on the order of the first centres.

    Cost: O(rows · clusters · dimensions) an iteration. On one core: a matrix product may round
    differently on another number.

    References:
        Arthur & Vassilvitskii 2007; Dhillon & Modha 2001.

    Example:
        >>> vectors = np.array([[1, 0], [0.9, 0.1], [0, 1]], np.float32)
        >>> cluster_directions(vectors, 2, seed=0, weights=np.ones(3))[0].tolist()
        [0, 0, 1]
    """
    with threadpool_limits(1):
        centres = _first_centres(vectors, clusters, np.random.default_rng(seed), weights)
        assigned = np.full(len(vectors), -1)
        for _ in range(iterations):
            nearest = nearest_centres(vectors, centres)
            if (nearest == assigned).all():
                break
            assigned = nearest
            centres = _means(vectors, assigned, centres, weights)
        assigned = nearest_centres(vectors, centres)
    sizes = np.bincount(assigned, minlength=len(centres))
    order = np.argsort(-sizes, kind="stable")
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return number[assigned].astype(np.int32), centres[order]


def nearest_centres(vectors: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """The centre with the largest inner product with each row, int64 [rows]."""
    nearest = np.empty(len(vectors), np.int64)
    for start in range(0, len(vectors), BLOCK):
        nearest[start : start + BLOCK] = (vectors[start : start + BLOCK] @ centres.T).argmax(1)
    return nearest


def _first_centres(
    vectors: np.ndarray, clusters: int, random: np.random.Generator, weights: np.ndarray
) -> np.ndarray:
    """Rows far apart: each is drawn by its squared distance from those drawn before."""
    chosen: list[int] = []
    chance = weights.astype(np.float64) * (vectors != 0).any(1)
    distance = np.full(len(vectors), 2.0)
    while len(chosen) < clusters and chance.sum() > 0:
        ladder = np.cumsum(chance)
        row = int(np.searchsorted(ladder, random.random() * ladder[-1], side="right"))
        row = min(row, len(vectors) - 1)
        chosen.append(row)
        # |a − b|² of vectors of length 1. What is left of a copy's distance is rounding.
        distance = np.minimum(distance, 2 - 2 * (vectors @ vectors[row]).astype(np.float64))
        distance[distance < 1e-6] = 0
        chance = np.minimum(chance, weights * distance)
    return vectors[chosen] if chosen else np.zeros((1, vectors.shape[1]), np.float32)


def _means(
    vectors: np.ndarray, assigned: np.ndarray, centres: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """The direction of the weighted sum of each cluster; of an empty one, its centre."""
    rows = np.arange(len(vectors))
    belongs = sp.csr_matrix(
        (weights.astype(np.float32), (assigned, rows)), (len(centres), len(vectors))
    )
    sums = belongs @ vectors
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.where(lengths > 0, sums / np.where(lengths > 0, lengths, 1), centres).astype(
        np.float32
    )
