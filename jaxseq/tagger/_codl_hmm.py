"""Hidden Markov models from the best labellings of unlabelled sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from jax.sharding import Mesh

from jaxseq.learn._codl import labelling_counts, mix_models
from jaxseq.learn._counts import known_counts
from jaxseq.models._hmm import HMM
from jaxseq.tagger._codl_labelling import NO_TOKENS
from jaxseq.tagger._hmm_data import numbers_of, read_hmm_data, read_words
from jaxseq.tagger._hmm_plan import hmm_plan_of
from jaxseq.tagger._hmm_search import COUNTED, search_hmm
from jaxseq.tagger._hmm_tagger import HMMTagger
from jaxseq.tagger._notes import fresh
from jaxseq.tagger._together import Together


class HMMLearner:
    r"""θ0 from the labelled sentences, and θ from labellings of the others: relative frequencies.

    Args:
        estimator: with its smoothing and its rule for unknown words, whose vocabulary is that of
            labelled and unlabelled sentences (unless it says ``"labelled"``).
        X, y: labelled sentences. others: unlabelled ones.
        keep: γ of :math:`\gamma \theta_0 + (1 - \gamma) \theta`; None learns from labelled
            sentences and labellings together. θ0 then has the vocabulary of its own sentences, as
            in self-training.
        mesh: devices to share the sentences out to; those of this process, where it spans several.
        together: the processes of the mesh, which do everything here together.
    """

    def __init__(
        self,
        estimator: HMMTagger,
        X: list[Any],
        y: list[Any],
        others: list[Any],
        keep: float | None,
        mesh: Mesh | None = None,
        together: Together | None = None,
    ):
        together = together or Together.alone()
        self._estimator, self._keep, self._sentences = estimator, keep, (X, y)
        self._shared = {"mesh": mesh, "sentence_numbers": together.numbers}
        plan = hmm_plan_of(fresh(estimator), mesh)
        self._plan = plan if keep is not None else replace(plan, vocabulary="all")
        data = read_hmm_data(X, y, others, self._plan, together)
        self._data = replace(data, unlabelled=None)
        self.classes = data.classes
        words, self._lengths = read_words(others, plan.column)
        if not together.total(int(self._lengths.sum())):
            raise ValueError(NO_TOKENS)
        self._words = numbers_of(words, data.vocabulary)
        all_known = all(together.peers.exchange(data.labelled.is_labelled))
        if keep is None and not all_known:
            raise ValueError(
                "y: expected the label of every token, since labelled sentences and labellings are "
                "counted together (pool), got labels that are not known"
            )

    def supervised(self) -> HMMTagger:
        """θ0."""
        tagger = fresh(self._estimator)
        if self._keep is None:
            return tagger.fit(*self._sentences, **self._shared)
        tagger._take_fitted(self._data, search_hmm(self._data, self._plan))
        return tagger

    def learn(self, first: HMMTagger, labels: np.ndarray, weights: np.ndarray) -> HMMTagger:
        """θ from labels [N, k] with weights [B, k], mixed with those of θ0."""
        data, s, dtype = self._data, len(self.classes), self._plan.dtype
        size = len(data.vocabulary)
        labelled = (self._words, labels, self._lengths, weights)
        counts = labelling_counts(*labelled, size, s, dtype=dtype, mesh=self._plan.mesh)
        if self._keep is None:
            known = known_counts(data.labelled, s, dtype, mesh=self._plan.mesh)
            counts = type(counts)(*(a + b for a, b in zip(known, counts)))
        smoothed = (family + amount for family, amount in zip(counts, self._plan.smoothing))
        model = HMM(*smoothed, unknown=data.vocabulary.unknown)
        if self._keep is not None:
            model = mix_models(first.model_, model, self._keep)
        tagger = fresh(self._estimator)
        tagger._take(model, self.classes, data.vocabulary)
        tagger.outcome_, tagger.n_iter_ = COUNTED, 0
        tagger.loss_ = tagger.log_likelihood_ = None
        return tagger
