"""Every checked quantity of one case, by enumeration: NumPy and the oracle only."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from jaxseq.verify._cases import Case
from jaxseq.verify._oracle import Enumeration, Matrix

Pair = tuple[Matrix, Matrix]


class Enumerated:
    """The enumerations of a case's two chains, and what follows from them.

    Gradients are covariances with the right function of the labelling: for any g(y) that does not
    itself depend on the scores, ∂E[g]/∂θ = Cov[features, g], and
    ∂(−Σ P log P)/∂θ = −Cov[features, log P].
    """

    def __init__(self, case: Case):
        self.case = case
        self.length = int(case.length)

    @cached_property
    def chain(self) -> Enumeration:
        return Enumeration(self.case.nodes, self.case.edges, self.length)

    @cached_property
    def other(self) -> Enumeration:
        return Enumeration(self.case.other_nodes, self.case.other_edges, self.length)

    @property
    def tangent(self) -> Pair:
        return np.asarray(self.case.node_tangent), np.asarray(self.case.edge_tangent)

    def marginals(self, which: Enumeration) -> Pair:
        """Node and edge marginals, the latter summed over positions where edges are shared."""
        edges = which.edge_marginals()
        return which.node_marginals(), edges.sum(0) if which.edges.ndim == 2 else edges

    def entropy_hessian_product(self) -> Pair:
        """∂/∂θ of ⟨∂H/∂θ, tangent⟩ = −(third cumulant of features, score and tangent) − Cov·v."""
        along = self.chain.centred_scores(*self.tangent)
        score = self.chain.centred_scores(*self.chain.finite_scores)
        return _minus(self.chain.covariance_with(along * score + along))

    def span_gradient(self) -> Pair:
        probability = self.chain.span_probabilities(int(self.case.start), int(self.case.stop))
        return _minus(self.chain.covariance_with(_log(probability)))

    def rest_gradient(self) -> Pair:
        labels = np.asarray(self.case.labels)
        positions = int(self.case.first) + np.arange(len(labels))
        return self._clamped(positions, labels, self.length).entropy_gradient()

    def lattices_gradient(self) -> Pair:
        """Gradient of the weighted sum of both lattices: clamped chains, one for each entry."""
        n, s = self.chain.nodes.shape
        total = np.zeros((n, s)), np.zeros(self.chain.edges.shape)
        possible = self.chain.node_marginals() > 0
        for t, i in zip(*np.nonzero(possible)):
            whole = self._clamped([t], [i], self.length).entropy_gradient()
            left = self._clamped([t], [i], int(t) + 1).entropy_gradient()
            to_left, to_right = np.asarray(self.case.weights)[:, t, i]
            for sum_, whole_part, left_part in zip(total, whole, left):
                sum_ += to_left * left_part + to_right * (whole_part - left_part)
        return total

    def cross_entropy_gradient_p(self) -> Pair:
        """∂/∂θ_p of cross_entropy(chain, other)."""
        if np.isinf(self.chain.cross_entropy(self.other)):
            return self._nothing()
        return _minus(self.chain.covariance_product(*self.other.finite_scores))

    def kl_divergence_gradient_p(self) -> Pair:
        """∂/∂θ_p of kl_divergence(chain, other)."""
        if np.isinf(self.chain.kl_divergence(self.other)):
            return self._nothing()
        pairs = zip(self.chain.finite_scores, self.other.finite_scores)
        nodes, edges = (own - others for own, others in pairs)
        return self.chain.covariance_product(nodes, edges)

    def divergence_gradient_q(self) -> Pair:
        """∂/∂θ_q of cross_entropy(other, chain), and of kl_divergence(other, chain)."""
        if np.isinf(self.other.cross_entropy(self.chain)) or not self.other.legal:
            return self._nothing()
        pairs = zip(self.marginals(self.chain), self.marginals(self.other))
        nodes, edges = (own - others for own, others in pairs)
        return nodes, edges

    def _nothing(self) -> Pair:
        """What an infinite value, which does not move, has for a gradient."""
        return np.zeros(self.chain.nodes.shape), np.zeros(self.chain.edges.shape)

    def _clamped(self, positions, labels, length: int) -> Enumeration:
        """The chain in which only `labels` are allowed at `positions`."""
        nodes = self.chain.nodes.copy()
        for t, label in zip(positions, labels):
            keep = nodes[t, label]
            nodes[t] = -np.inf
            nodes[t, label] = keep
        return Enumeration(nodes, self.chain.edges, length)


def _minus(pair: Pair) -> Pair:
    return -pair[0], -pair[1]


def _log(probability: Matrix) -> Matrix:
    return np.log(np.where(probability > 0, probability, 1))
