"""The enumeration oracle: every quantity of a small chain as a plain sum over all labellings.

NumPy and the standard library only, nothing of jaxseq, no dynamic programming: the definitions
themselves, so that agreement with the library means something. Cost grows as sⁿ.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

MOST_LABELLINGS = 2**20  # that are listed: some hundred megabytes

# NumPy arrays; the shapes stand in the docstrings, next to what each entry means.
Matrix = np.ndarray[Any, np.dtype[Any]]


class Enumeration:
    """The table of all labellings of one chain, and sums over it.

    Positions past `length` do not count. A chain of length 0 has one labelling, the empty one. A
    score of −inf forbids; what no legal labelling contains is called impossible, and whatever
    would be conditioned on it is 0. Conditional entropies are exact also for labels whose
    probability is too small for a float: compare them where the marginals are positive.

    Args:
        nodes: ``[n, s]``, score of label i at position t.
        edges: ``[s, s]`` or ``[n - 1, s, s]``, score of i at t followed by j at t + 1.
        length: 0 … n; None means n.

    Attributes:
        paths: integers ``[m, n]``, one row per labelling, in lexicographic order; −1 past `length`.
        scores: ``[m]``.
        log_partition: log Σ exp(score); −inf when nothing is legal.
        probabilities: ``[m]``; all zero when nothing is legal.

    Raises:
        ValueError: when shapes or length do not fit, or there are too many labellings to list.

    Example:
        >>> import numpy as np
        >>> chain = Enumeration(np.zeros((3, 2)), np.zeros((2, 2)))
        >>> len(chain.paths), round(float(np.exp(chain.log_partition)), 6)
        (8, 8.0)
    """

    def __init__(self, nodes: ArrayLike, edges: ArrayLike, length: int | None = None):
        self.nodes = np.asarray(nodes, np.float64)
        self.edges = np.asarray(edges, np.float64)
        if self.nodes.ndim != 2:
            raise ValueError(f"nodes: expected shape [n, s], got {list(self.nodes.shape)}")
        n, s = self.nodes.shape
        if self.edges.shape not in ((s, s), (n - 1, s, s)):
            raise ValueError(
                f"edges: expected shape [{s}, {s}] or [{n - 1}, {s}, {s}], "
                f"got {list(self.edges.shape)}"
            )
        self.length = n if length is None else int(length)
        if not 0 <= self.length <= n:
            raise ValueError(f"length: expected 0 … {n}, got {self.length}")
        if s**self.length > MOST_LABELLINGS:
            raise ValueError(
                f"nodes: expected at most {MOST_LABELLINGS} labellings to enumerate, "
                f"got {s}**{self.length}"
            )
        self.paths = _all_paths(n, s, self.length)
        self.scores = self._score_paths()
        self.log_partition = _log_sum_exp(self.scores)
        # Not exp(scores − log Z), which would be off by the rounding of the logarithm.
        self.probabilities = _normalised(self.scores)

    @property
    def legal(self) -> bool:
        """Whether any labelling is legal."""
        return self.log_partition > -np.inf

    @property
    def finite_scores(self) -> tuple[Matrix, Matrix]:
        """(nodes, edges) with 0 in place of −inf, where no labelling of positive probability is."""
        nodes, edges = (np.where(np.isneginf(x), 0, x) for x in (self.nodes, self.edges))
        return nodes, edges

    def _score_paths(self) -> Matrix:
        scores = np.zeros(len(self.paths))
        for t in range(self.length):
            scores = scores + self.nodes[t, self.paths[:, t]]
            if t + 1 < self.length:  # no edge leads out of the chain, or into padding
                edge = self.edges if self.edges.ndim == 2 else self.edges[t]
                scores = scores + edge[self.paths[:, t], self.paths[:, t + 1]]
        return scores

    def node_marginals(self) -> Matrix:
        """p(y_t = i), ``[n, s]``; 0 on padding."""
        n, s = self.nodes.shape
        marginals = np.zeros((n, s))
        for t in range(self.length):
            for i in range(s):
                marginals[t, i] = self.probabilities[self.paths[:, t] == i].sum()
        return marginals

    def edge_marginals(self) -> Matrix:
        """p(y_t = i, y_{t+1} = j), ``[n - 1, s, s]``; 0 on padding."""
        n, s = self.nodes.shape
        marginals = np.zeros((n - 1, s, s))
        for t in range(self.length - 1):
            for i in range(s):
                for j in range(s):
                    both = (self.paths[:, t] == i) & (self.paths[:, t + 1] == j)
                    marginals[t, i, j] = self.probabilities[both].sum()
        return marginals

    def entropy(self) -> float:
        """−Σ_y p(y) log p(y), in nats."""
        return self.span_entropy(0, self.length)

    def span_entropy(self, start: int, stop: int) -> float:
        """Entropy of Y[start:stop]; positions past the length do not count."""
        return _entropy(np.bincount(self._codes(range(start, stop)), self.probabilities))

    def span_probabilities(self, start: int, stop: int) -> Matrix:
        """``[m]``: for every labelling y, the probability that Y[start:stop] = y[start:stop]."""
        codes = self._codes(range(start, stop))
        return np.bincount(codes, self.probabilities)[codes]

    def rest_entropy(self, start: int, labels: ArrayLike) -> float:
        """Entropy of all other positions, given `labels` at start, start + 1, …

        Labels past the length are ignored; 0 when the labels are impossible.
        """
        known = np.asarray(labels)[: max(self.length - start, 0)]
        taken = range(start, start + len(known))
        matching = np.ones(len(self.paths), bool)
        for t, label in zip(taken, known):
            matching &= self.paths[:, t] == label
        return self._conditional_entropy(
            [t for t in range(self.length) if t not in taken], matching
        )

    def left_entropies(self) -> Matrix:
        """``[n, s]``: entropy of everything strictly left of t given y_t = i."""
        return self._one_sided(lambda t: range(t))

    def right_entropies(self) -> Matrix:
        """``[n, s]``: entropy of everything strictly right of t given y_t = i."""
        return self._one_sided(lambda t: range(t + 1, self.length))

    def _one_sided(self, side) -> Matrix:
        entropies = np.zeros(self.nodes.shape)
        for t in range(self.length):
            for i in range(self.nodes.shape[1]):
                entropies[t, i] = self._conditional_entropy(side(t), self.paths[:, t] == i)
        return entropies

    def _conditional_entropy(self, positions, among: Matrix) -> float:
        """Entropy of the labels at `positions`, over the labellings `among` renormalised."""
        # From the scores and not the probabilities, of which some may have underflowed to 0.
        conditional = _normalised(np.where(among, self.scores, -np.inf))
        return _entropy(np.bincount(self._codes(positions), conditional))

    def _codes(self, positions) -> Matrix:
        """``[m]``: a number for every labelling, equal where the labels at `positions` are."""
        codes = np.zeros(len(self.paths), np.int64)
        for t in positions:
            if t < self.length:
                codes = codes * self.nodes.shape[1] + self.paths[:, t]  # digits to base s
        return codes

    def k_best_scores(self, k: int) -> Matrix:
        """The k highest scores, descending, ``[k]``; −inf beyond the legal labellings."""
        best = np.sort(self.scores)[::-1][:k]
        return np.concatenate([best, np.full(k - len(best), -np.inf)])

    @cached_property
    def _features(self) -> Matrix:
        """``[m, d]``: node indicators (C order), then edge indicators shaped like the edges."""
        n, s = self.nodes.shape
        node = np.zeros((len(self.paths), n, s))
        edge = np.zeros((len(self.paths), max(n - 1, 0), s, s))
        rows = np.arange(len(self.paths))
        for t in range(self.length):
            node[rows, t, self.paths[:, t]] = 1
        for t in range(self.length - 1):
            edge[rows, t, self.paths[:, t], self.paths[:, t + 1]] = 1
        if self.edges.ndim == 2:  # a shared score is met at every position
            edge = edge.sum(1)
        return np.concatenate([node.reshape(len(rows), -1), edge.reshape(len(rows), -1)], axis=1)

    def covariance(self) -> Matrix:
        """``[d, d]``, E[(F − E F)(F − E F)ᵀ]: node indicators in C order, then edge indicators.

        Edge indicators are summed over positions when the edges given were ``[s, s]``.
        """
        centred = self._centred_features()
        return centred.T @ (self.probabilities[:, None] * centred)

    def covariance_product(
        self, node_tangent: ArrayLike, edge_tangent: ArrayLike
    ) -> tuple[Matrix, Matrix]:
        """Cov · tangent as (nodes, edges), each shaped like the input of that name."""
        return self.covariance_with(self.centred_scores(node_tangent, edge_tangent))

    def entropy_gradient(self) -> tuple[Matrix, Matrix]:
        """∂H/∂(nodes, edges) = −Cov · θ, with θ taken as 0 where it is −inf."""
        by_node, by_edge = self.covariance_product(*self.finite_scores)
        return -by_node, -by_edge

    def covariance_with(self, values: ArrayLike) -> tuple[Matrix, Matrix]:
        """Cov[features, g(Y)] as (nodes, edges), for a g given by its ``[m]`` values."""
        # Centring one of the two factors is enough: E[(F − E F) g] = Cov[F, g].
        return self._split(self._centred_features().T @ (self.probabilities * np.asarray(values)))

    def centred_scores(self, node_scores: ArrayLike, edge_scores: ArrayLike) -> Matrix:
        """``[m]``: what the given scores add up to on each labelling, less their mean."""
        scores = np.concatenate([np.ravel(node_scores), np.ravel(edge_scores)])
        return self._centred_features() @ scores

    def _centred_features(self) -> Matrix:
        return self._features - self.probabilities @ self._features

    def _split(self, vector: Matrix) -> tuple[Matrix, Matrix]:
        size = self.nodes.size
        return vector[:size].reshape(self.nodes.shape), vector[size:].reshape(self.edges.shape)

    def cross_entropy(self, other: Enumeration) -> float:
        """−Σ_y p(y) log q(y), q the `other`; +inf when it forbids what self allows."""
        return self._expected(np.zeros(len(self.paths)), other)

    def kl_divergence(self, other: Enumeration) -> float:
        """Σ_y p(y) log (p(y) / q(y)), q the `other`; +inf when it forbids what self allows."""
        return self._expected(self._log_probabilities(), other)

    def _log_probabilities(self) -> Matrix:
        return self.scores - (self.log_partition if self.legal else 0)

    def _expected(self, log_ratio_to: Matrix, other: Enumeration) -> float:
        """Σ_y p(y) (log_ratio_to(y) − log q(y)) over the labellings that self allows."""
        if self.paths.shape != other.paths.shape or self.length != other.length:
            raise ValueError(
                f"other: expected {list(self.paths.shape)} labels and length {self.length}, "
                f"got {list(other.paths.shape)} and {other.length}"
            )
        allowed = self.scores > -np.inf
        if (allowed & np.isneginf(other.scores)).any():
            return np.inf  # p(y) · ∞, for a y with p(y) > 0
        differences = log_ratio_to[allowed] - other._log_probabilities()[allowed]
        return float((self.probabilities[allowed] * differences).sum())


def _all_paths(n: int, s: int, length: int) -> Matrix:
    code = np.arange(s**length)
    paths = np.full((len(code), n), -1)
    for t in range(length):
        paths[:, t] = code // s ** (length - 1 - t) % s
    return paths


def _log_sum_exp(scores: Matrix) -> float:
    top = scores.max()
    return float(top) if np.isneginf(top) else float(top + np.log(np.exp(scores - top).sum()))


def _normalised(scores: Matrix) -> Matrix:
    """exp(scores) scaled to sum to 1; all 0 when every entry is −inf."""
    top = scores.max()
    if np.isneginf(top):
        return np.zeros_like(scores)
    weights = np.exp(scores - top)
    return weights / weights.sum()


def _entropy(probabilities: Matrix) -> float:
    positive = probabilities[probabilities > 0]
    return float(-(positive * np.log(positive)).sum()) + 0.0  # + 0.0 turns −0 into 0
