"""Conditional random fields from the best labellings of unlabelled sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxseq.learn._codl import mix_models
from jaxseq.learn._corpus import EncodedLabels
from jaxseq.learn._parameters import Parameters, Spread, mask_forbidden
from jaxseq.models._crf import CRF
from jaxseq.tagger._codl_labelling import NO_TOKENS
from jaxseq.tagger._fit import search
from jaxseq.tagger._labels import (
    check_labels,
    check_paths_legal,
    encode_labels,
    find_classes,
    legal_by_scheme,
)
from jaxseq.tagger._notes import fresh
from jaxseq.tagger._plan import EntropyTerm, plan_of
from jaxseq.tagger._problem import Problem, make_spread
from jaxseq.tagger._tagger import CRFTagger
from jaxseq.tagger._unlabelled import read_both
from jaxseq.tagger._warm_start import carry_over
from jaxseq.text import Templates, TokenFeatures


class CRFLearner:
    r"""θ0 from the labelled sentences, and θ from labellings of the others, as weighted copies.

    Attributes are those of all sentences; one that no labelled sentence has gets weight 0 in θ0,
    which is what its penalty leaves.

    Args:
        estimator: how to train. X, y: labelled sentences. others: unlabelled ones.
        keep: γ of :math:`\gamma \theta_0 + (1 - \gamma) \theta`, where labellings count as much as
            the labelled sentences' tokens do in θ0, so that penalties are as strong in both; None
            learns from labelled sentences and labellings together, each sentence counting 1.
    """

    def __init__(
        self,
        estimator: CRFTagger,
        X: list[Any],
        y: list[Any],
        others: list[Any],
        keep: float | None,
    ):
        self._estimator, self._keep, self._sentences = estimator, keep, (X, y)
        tagger = fresh(estimator)
        self._plan = plan_of(tagger)
        self._extractor, self._labelled, rest = read_both(tagger._new_extractor, X, others, "all")
        if rest is None:
            raise ValueError(NO_TOKENS)
        self._rest = rest
        flat = check_labels(y, self._labelled.lengths)
        self.classes = find_classes(flat, self._labelled.lengths)
        self._known = encode_labels(flat, self.classes, self._labelled.lengths)
        self._legal = legal_by_scheme(self.classes, estimator.scheme)
        check_paths_legal(self._known, self._labelled.lengths, self._legal, self.classes)

    def supervised(self) -> CRFTagger:
        """θ0."""
        return fresh(self._estimator).fit(*self._sentences)

    def learn(self, first: CRFTagger, labels: np.ndarray, weights: np.ndarray) -> CRFTagger:
        """θ from labels [N, k] with weights [B, k], mixed with those of θ0."""
        problem = self._problem(labels, weights)
        once = self._problem(labels[:, :1], (weights.sum(1, keepdims=True) > 0).astype(float))
        spread = _spread_of(problem, once, self._plan.weights)
        found = search(problem, self._plan, None, spread, EntropyTerm.of(0.0, "mann"))
        model = spread.model(found.parameters, self._legal)
        if self._keep is not None:
            model = mix_models(self._carried(first), model, self._keep)
        tagger = fresh(self._estimator)
        tagger._take(model, self.classes, self._extractor)
        tagger.loss_, tagger.outcome_ = found.loss, found.outcome.value
        tagger.n_iter_, tagger.n_evaluations_ = found.iterations, found.evaluations
        return tagger

    def _carried(self, first: CRFTagger) -> CRF:
        """θ0 with the attributes of all sentences."""
        model = carry_over(first, self._extractor, self.classes)
        ends = (model.transitions, model.start, model.stop)
        ends = mask_forbidden(Parameters(model.weights, *ends, None), self._legal)
        return CRF(model.weights, *ends, model.edge_weights)

    def _problem(self, labels: np.ndarray, weights: np.ndarray) -> Problem:
        """Labellings of some weight, after the labelled sentences if these belong together."""
        features, gold, each = _copies(self._rest, labels, weights)
        allowed = None
        if self._keep is None:
            known = self._known
            each = np.concatenate([np.ones(len(self._labelled.lengths)), each])
            if known.allowed is not None:
                allowed = np.concatenate([known.allowed, np.eye(len(self.classes))[gold] > 0])
            gold = np.concatenate([known.gold, gold])
            features = _joined(self._labelled, features)
        else:
            each = each * (self._labelled.lengths.sum() / (each * features.lengths).sum())
        templates = self._estimator.templates
        return Problem(
            features=features,
            labels=EncodedLabels(gold.astype(np.int32), allowed),
            classes=self.classes,
            attributes=self._extractor.attribute_count,
            edge_attributes=self._extractor.edge_attribute_count,
            transitions=not isinstance(templates, Templates) or templates.transitions,
            legal=self._legal,
            sentence_weights=each,
        )


def _spread_of(problem: Problem, once: Problem, weights: Any) -> Spread:
    """Which weights are learnt; what is frequent is so in sentences, not in copies of them."""
    if weights != "mixed":
        return make_spread(problem, weights)
    observed, spread = make_spread(problem, "observed"), make_spread(once, "mixed")
    assert observed.places is not None
    assert spread.places is not None
    places = np.union1d(np.asarray(observed.places), np.asarray(spread.places))
    return eqx.tree_at(lambda s: s.places, spread, jnp.asarray(places, jnp.int32))


def _copies(
    features: TokenFeatures, labels: np.ndarray, weights: np.ndarray
) -> tuple[TokenFeatures, np.ndarray, np.ndarray]:
    """The sentences once for each labelling that counts, its labels, and how much it counts."""
    lengths = features.lengths
    sentence, rank = np.nonzero((weights > 0) & (lengths > 0)[:, None])
    copied = lengths[sentence]
    within = np.arange(copied.sum()) - np.repeat(np.cumsum(copied) - copied, copied)
    tokens = np.repeat((np.cumsum(lengths) - lengths)[sentence], copied) + within
    arrays = {
        name: None if getattr(features, name) is None else getattr(features, name)[tokens]
        for name in ("ids", "values", "edge_ids")
    }
    chosen = labels[tokens, np.repeat(rank, copied)]
    return replace(features, lengths=copied, **arrays), chosen, weights[sentence, rank]


def _joined(first: TokenFeatures, second: TokenFeatures) -> TokenFeatures:
    """One corpus after another, of one extractor."""

    def both(name: str) -> Any:
        arrays = [getattr(features, name) for features in (first, second)]
        return None if arrays[0] is None else np.concatenate(arrays)

    return replace(first, **{name: both(name) for name in ("ids", "values", "lengths", "edge_ids")})
