r"""A hidden Markov model on new sentences, as the conditional random field that it is.

Given the words, :math:`P(y \mid x)` is that of a CRF with one attribute a token, its word, and the
logarithms of the probabilities for weights; so all that a CRF predicts with serves here too.
"""

from __future__ import annotations

import numpy as np

from jaxseq.models._crf import CRF
from jaxseq.models._hmm import HMM
from jaxseq.text import TokenFeatures


def conditional_of(model: HMM) -> CRF:
    """The CRF whose :math:`p(y \\mid x)` is that of the model. Cost O(v s).

    Example:
        >>> import jax.numpy as jnp
        >>> crf = conditional_of(HMM(jnp.ones(1), jnp.ones((1, 1)), jnp.ones((1, 1))))
        >>> crf.weights.tolist(), crf.transitions.tolist()
        ([[0.0]], [[0.0]])
    """
    scores = model.probabilities.log()
    return CRF(scores.emission, scores.transition, start=scores.initial)


def features_of(words: np.ndarray, lengths: np.ndarray) -> TokenFeatures:
    """Each token's word as its only attribute."""
    return TokenFeatures(ids=words[:, None], values=None, lengths=lengths, edge_ids=None)
