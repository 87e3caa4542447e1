"""Clusters of vectors by direction: k-means on the unit sphere."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

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
