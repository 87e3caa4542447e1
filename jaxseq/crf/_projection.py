r"""Posterior regularisation: learning from the nearest distribution that meets expectations.

Two steps alternate. The labellings of the unlabelled sentences U get the distribution q that is
nearest to the model's among those that meet the expectations, or nearly,

.. math:: \min_q \mathrm{KL}(q \,\|\, p_\theta) + \sum_k \tfrac{w_k}{r} \, \|v_k(q) - t_k\|^2,
          \qquad \mathrm{least}_k \le t_k \le \mathrm{most}_k;

then the model learns from q as if it were what was known of them,

.. math:: \max_\theta \sum_{(x, y)} \log p_\theta(y|x) - U(\theta)
          + r \sum_{x \in U} E_q[\log p_\theta(y|x)].

Both improve one objective, in which r, the labelled tokens per unlabelled one, lets all of U count
as much as the labelled sentences. By duality q is the model with a tilt of few parameters μ,
:math:`q \propto p_\theta \exp \sum_k \mu_k f_k`, so that the first step is a concave maximisation
over these, of which every step is one forward–backward.

References:
    Ganchev, Graça, Gillenwater & Taskar 2010; Bellare, Druck & McCallum 2009, who alternate the
    same projections.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from jaxseq.crf._expectation_gradient import LabelCounts, SharePenalty

MAX_STEPS = 100
"""Of the search for a tilt: it need not be exact while the model still moves."""

LARGEST_TILT = 30.0
"""Of a label's score: what cannot be met is not worth an overflow."""


@dataclass
class Projection:
    """Searches for tilts, each from the one before it.

    Args:
        penalty: what is expected, whose distances are squared here, whatever they are elsewhere.
        expect: Σ log Z under a tilt, and the expected counts; `Objective.expect` of a model.
        scale: r; weights count like labelled tokens, and the text itself with r per token.

    After a call, `value` is Σ log Z less the least divergence and distance: in an HMM, what the
    alternation increases.
    """

    penalty: SharePenalty
    scale: float

    def __post_init__(self):
        penalty = self.penalty
        self._present = np.asarray(penalty.present)
        totals = np.zeros(len(self._present))
        width = self._present.shape[1]
        totals[np.asarray(penalty.rows) // width] = 1 / np.asarray(penalty.coefficients, float)
        # μ is what a single event adds to a score; the shares that it moves are of so many.
        self._totals = np.broadcast_to(totals[:, None], self._present.shape)[self._present]
        least, most = (np.asarray(a, float)[self._present] for a in (penalty.least, penalty.most))
        # What has no upper end is never pushed down.
        self._bounded = np.isfinite(most)
        self._least = self._totals * least
        self._most = self._totals * np.where(self._bounded, most, 0)
        weights = np.asarray(penalty.weights, float)
        each = np.broadcast_to(weights[:, None], self._present.shape)[self._present]
        self._used = each > 0
        with np.errstate(divide="ignore"):
            self._slack = np.where(self._used, self._totals**2 * self.scale / (4 * each), 0)
        self._mu = np.zeros(len(each))
        self.value = 0.0

    def tilt(self, mu: np.ndarray) -> LabelCounts:
        """What μ adds to the scores of labels and of pairs."""
        by_share = np.zeros(self._present.shape)
        by_share[self._present] = mu * self._totals
        return self.penalty.transposed(jnp.asarray(by_share, self.penalty.coefficients.dtype))

    def __call__(self, expect: Callable[[LabelCounts], tuple[Any, LabelCounts]]) -> LabelCounts:
        """The tilt that makes q of the model."""
        size = len(self._mu)

        def dual(both: np.ndarray) -> tuple[float, np.ndarray]:
            # μ = up − down, both 0 or more: a range is pushed at by its lower end or its upper.
            up, down = both[:size], both[size:]
            mu = up - down
            log_z, counts = expect(self.tilt(mu))
            shares = np.asarray(self.penalty.shares(counts), float)
            counted = shares[self._present] * self._totals
            value = float(log_z) + float(self._most @ down - self._least @ up + self._slack @ mu**2)
            slope = 2 * self._slack * mu
            return value, np.concatenate(
                [counted - self._least + slope, self._most - counted - slope]
            )

        start = np.concatenate([np.maximum(self._mu, 0), np.maximum(-self._mu, 0)])
        may_move = np.concatenate([self._used, self._used & self._bounded])
        most = np.where(may_move, LARGEST_TILT, 0.0)
        result = minimize(
            dual, start, jac=True, method="L-BFGS-B", bounds=[(0.0, high) for high in most],
            options={"maxiter": MAX_STEPS, "gtol": 1e-4 * max(1.0, float(self._totals.min()))},
        )  # fmt: skip
        self._mu, self.value = result.x[:size] - result.x[size:], float(result.fun)
        return self.tilt(self._mu)
