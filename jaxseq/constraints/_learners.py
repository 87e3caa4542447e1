"""How constraint-driven learning learns: from labelled sentences, then from labellings of others.

Both learners have the same three things: `classes`; `supervised()`, the tagger of θ0; and
`learn(first, labels, weights)`, the tagger of θ.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxseq._runtime import Outcome
from jaxseq.constraints._mixtures import labelling_counts, mix_models
from jaxseq.crf import (
    CRF,
    CRFTagger,
    EncodedLabels,
    Parameters,
    Plan,
    Problem,
    Spread,
    carry_over,
    make_spread,
    mask_forbidden,
    read_both,
    search,
)
from jaxseq.hmm import (
    HMM,
    HMMTagger,
    known_counts,
    make_hmm_plan,
    read_hmm_data,
    read_words,
    search_hmm,
    word_numbers,
)
from jaxseq.parallel import Devices
from jaxseq.taggers import (
    check_labels,
    check_paths_legal,
    encode_labels,
    find_classes,
    fresh,
    legal_by_scheme,
)
from jaxseq.text import Templates, TokenFeatures, token_rows

NO_TOKENS = "unlabelled: expected at least one sentence with a token, got none"


class CRFLearner:
    r"""θ0 from the labelled sentences, and θ from labellings of the others, as weighted copies.

    Attributes are those of all sentences; one that no labelled sentence has gets weight 0 in θ0,
    which is what its penalty leaves.

    Args:
        estimator: how to train.
        X: labelled sentences.
        y: their labels.
        unlabelled: the other sentences.
        keep: γ of :math:`\gamma \theta_0 + (1 - \gamma) \theta`, where labellings count as much as
            the labelled sentences' tokens do in θ0, so that penalties are as strong in both; None
            learns from labelled sentences and labellings together, each sentence counting 1.
    """

    def __init__(
        self,
        estimator: CRFTagger,
        X: list[Any],
        y: list[Any],
        unlabelled: list[Any],
        keep: float | None,
    ):
        self._estimator, self._keep, self._sentences = estimator, keep, (X, y)
        tagger = fresh(estimator)
        self._plan, self._extractor = Plan.from_tagger(tagger), tagger._new_extractor()
        self._labelled, features = read_both(self._extractor, X, unlabelled, "all")
        if features is None:
            raise ValueError(NO_TOKENS)
        self._unlabelled = features
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
        spread = _choose_weights(problem, once, self._plan.weights)
        end = search(problem, self._plan, None, spread)
        model = spread.model(end.parameters, self._legal)
        if self._keep is not None:
            model = mix_models(self._carried(first), model, self._keep)
        tagger = fresh(self._estimator)
        tagger._take(model, self.classes, self._extractor)
        tagger.loss_, tagger.outcome_ = end.loss, end.outcome
        tagger.n_iter_, tagger.n_evaluations_ = end.iterations, end.evaluations
        return tagger

    def _carried(self, first: CRFTagger) -> CRF:
        """θ0 with the attributes of all sentences."""
        model = carry_over(first, self._extractor, self.classes)
        ends = (model.transitions, model.start, model.stop)
        # The mixture must not allow what the scheme forbids: −inf in θ0 is −inf in the mixture.
        ends = mask_forbidden(Parameters(model.weights, *ends, None), self._legal)
        return CRF(model.weights, *ends, model.edge_weights)

    def _problem(self, labels: np.ndarray, weights: np.ndarray) -> Problem:
        """Labellings of some weight, after the labelled sentences if these belong together."""
        features, gold, each = _copies(self._unlabelled, labels, weights)
        allowed = None
        if self._keep is None:
            known = self._known
            each = np.concatenate([np.ones(len(self._labelled.lengths)), each])
            if known.allowed is not None:
                # Labels known in part are sets; those of a labelling are sets of one.
                allowed = np.concatenate([known.allowed, np.eye(len(self.classes))[gold] > 0])
            gold = np.concatenate([known.gold, gold])
            features = TokenFeatures.concatenate([self._labelled, features])
        else:
            # As many tokens as are labelled, whatever there is of others: l2 is as strong as in θ0.
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


def _choose_weights(problem: Problem, once: Problem, weights: Any) -> Spread:
    """Which weights are learnt; how frequent an attribute is counts sentences, not their copies."""
    if weights != "mixed":  # only this one asks how frequent attributes are
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
    chosen = labels[token_rows(lengths, sentence), np.repeat(rank, lengths[sentence])]
    return features.take(sentence), chosen, weights[sentence, rank]


class HMMLearner:
    r"""θ0 from the labelled sentences, and θ from labellings of the others: relative frequencies.

    Args:
        estimator: with its smoothing and its rule for unknown words, whose vocabulary is that of
            labelled and unlabelled sentences (unless it says ``"labelled"``).
        X: labelled sentences.
        y: their labels.
        unlabelled: the other sentences.
        keep: γ of :math:`\gamma \theta_0 + (1 - \gamma) \theta`; None learns from labelled
            sentences and labellings together. θ0 then has the vocabulary of its own sentences, as
            in self-training.
        mesh: devices to share the sentences out to; those of this process, where it spans several.
        devices: the processes of the mesh, which do everything here together.
    """

    def __init__(
        self,
        estimator: HMMTagger,
        X: list[Any],
        y: list[Any],
        unlabelled: list[Any],
        keep: float | None,
        mesh: Mesh | None = None,
        devices: Devices | None = None,
    ):
        devices = devices or Devices.alone()
        self._estimator, self._keep, self._sentences = estimator, keep, (X, y)
        self._shared = {"mesh": mesh, "sentence_numbers": devices.numbers}
        plan = make_hmm_plan(fresh(estimator), mesh)
        self._plan = plan if keep is not None else replace(plan, vocabulary="all")
        data = read_hmm_data(X, y, unlabelled, self._plan, devices)
        self._data = replace(data, unlabelled=None)  # supervised: EM must not see them
        self.classes = data.classes
        words, self._lengths = read_words(unlabelled, plan.column)
        # The part of one process may be empty, the corpus may not.
        if not devices.total(int(self._lengths.sum())):
            raise ValueError(NO_TOKENS)
        self._words = word_numbers(words, data.vocabulary)
        all_known = devices.all(data.labelled.is_labelled)
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
        if self._keep is None:  # pooled: θ = learn(L ∪ T)
            known = known_counts(data.labelled, s, dtype, mesh=self._plan.mesh)
            counts = type(counts)(*(a + b for a, b in zip(known, counts)))
        smoothed = (family + amount for family, amount in zip(counts, self._plan.smoothing))
        model = HMM(*smoothed, unknown=data.vocabulary.unknown)
        if self._keep is not None:
            model = mix_models(first.model_, model, self._keep)
        tagger = fresh(self._estimator)
        tagger._take(model, self.classes, data.vocabulary)
        tagger.outcome_, tagger.n_iter_ = Outcome.COUNTED, 0
        tagger.loss_ = tagger.log_likelihood_ = None
        return tagger
