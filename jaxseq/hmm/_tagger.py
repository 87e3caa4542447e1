"""The estimator of hidden Markov models."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from sklearn.utils.validation import check_is_fitted

from jaxseq._runtime import Outcome, forget_programs, progress_bar
from jaxseq.crf import ScoredSentences, best_labels
from jaxseq.expectations import Expectation, check_expectations
from jaxseq.hmm._corpus import WordVocabulary
from jaxseq.hmm._model import EVENT_AXES, HMM, Multinomials
from jaxseq.hmm._search import (
    HMMData,
    HMMFitted,
    check_balance,
    check_hmm_settings,
    conditional_crf,
    make_hmm_plan,
    read_hmm_data,
    read_words,
    search_hmm,
    word_features,
    word_numbers,
)
from jaxseq.parallel import Devices
from jaxseq.taggers import (
    Decodable,
    Label,
    SequenceTagger,
    check_sentences,
    check_stored_numbers,
    fresh,
    register_kind,
    warn_of_drift,
)
from jaxseq.text import StringTable


@register_kind("hmm")
class HMMTagger(SequenceTagger):
    r"""A first-order hidden Markov model for tagging, with scikit-learn's interface.

    .. math::
        P(x, y) = P(y_1) \prod_{t>1} P(y_t \mid y_{t-1}) \prod_t P(x_t \mid y_t)

    Probabilities are relative frequencies of the labelled sentences L, with ε added to each count.
    With unlabelled sentences U, EM goes on from there, iterating

    .. math::
        \Theta \propto (1 - \lambda) \tfrac{1}{|L|} \Big(\sum_L \mathrm{Count} + \varepsilon\Big)
        + \lambda \tfrac{1}{|U|} \sum_U E_\Theta[\mathrm{Count}]

    Args:
        column: of the sentences, the one whose strings the model is of.
        unknown_below: words seen fewer times are one and the same unknown word, as are all words
            that were not seen.
        vocabulary: where words are counted for this: in ``"all"`` sentences, or the
            ``"labelled"`` ones alone.
        initial_smoothing, transition_smoothing, emission_smoothing: ε of the first label, of the
            transitions and of the words.
        em: ``"soft"`` counts all labellings by their probability, ``"hard"`` the best one.
        weight: λ, 0 … 1; 0 trains as if there were no unlabelled sentences, and None is maximum
            likelihood, \|U\| / (\|L\| + \|U\|), where every sentence counts the same: with many of
            U the labels then mean something else in the end than those of L.
        frozen: families that EM on unlabelled sentences leaves as they are: some of
            ``"initial"``, ``"transition"``, ``"emission"``. The transitions of a few labelled
            sentences are better than those that EM learns.
        max_iterations: of EM, at most.
        tolerance: stop when an iteration improves the objective by less than this part of it.
        decoding: ``"viterbi"``, the most probable labelling of a sentence; or ``"max_marginal"``,
            the most probable label of each token.
        cores: threads to train with; None takes all. The sum over sentences is in another order
            with another number, so that the last digits of the model depend on it.
        progress: show a progress bar; None shows it on a terminal.
        checkpoint: a file to keep unfinished EM in, every `checkpoint_every` iterations, and when
            it ends early. If the file is there when `fit` starts, EM goes on from it, with the
            same result as if it had never stopped; on another number of cores or processes, up to
            rounding. It is removed when EM has converged.
        classes: all labels, where the labelled sentences may not show every one of them: those
            that they do not show are as likely as smoothing makes them. None for those of y.
        dtype: ``"float32"``, or ``"float64"`` where JAX has 64-bit numbers switched on.

    Nothing is random. Attributes:
        classes_: the labels, sorted. model_: the HMM. vocabulary_: the numbers of the words.
        objectives_: what EM increases, before its first iteration and after each; loss_: the last
        one, negated. log_likelihood_: Σ log P(x) of the unlabelled sentences (in hard EM of words
        and best labels), None without. n_iter_: iterations of EM. outcome_: why it ended, in words.
        seconds_: where the time of `fit` went.

    Cost: O(N) for counting N tokens; an iteration of EM O(N s² + v s) with s labels and v words.

    Example:
        >>> from jaxseq.hmm import HMMTagger
        >>> X = [["the", "dog", "barks"], ["the", "cat"]]
        >>> y = [["D", "N", "V"], ["D", "N"]]
        >>> tagger = HMMTagger(unknown_below=1).fit(X, y, unlabelled=[["the", "cow", "barks"]])
        >>> tagger.predict([["the", "cow", "barks"]])
        [['D', 'N', 'V']]

    References:
        Rabiner 1989; Haffari & Sarkar 2008, whose smoothing and unknown words the defaults are.
    """

    model_: HMM
    _TRAINING: ClassVar = {
        "loss": "loss_",
        "log_likelihood": "log_likelihood_",
        "outcome": "outcome_",
        "iterations": "n_iter_",
    }
    _K_BEST_MAY_BE_EMPTY = False

    def __init__(
        self,
        column: str = "word",
        *,
        unknown_below: int = 5,
        vocabulary: Literal["all", "labelled"] = "all",
        initial_smoothing: float = 0.2,
        transition_smoothing: float = 0.2,
        emission_smoothing: float = 0.05,
        em: Literal["soft", "hard"] = "soft",
        weight: float | None = 0.2,
        frozen: tuple[str, ...] = ("transition",),
        max_iterations: int = 500,
        tolerance: float = 1e-7,
        decoding: Literal["viterbi", "max_marginal"] = "viterbi",
        cores: int | None = None,
        progress: bool | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 25,
        classes: Collection[str] | None = None,
        dtype: Literal["float32", "float64"] = "float32",
    ):
        self.column = column
        self.unknown_below = unknown_below
        self.vocabulary = vocabulary
        self.initial_smoothing = initial_smoothing
        self.transition_smoothing = transition_smoothing
        self.emission_smoothing = emission_smoothing
        self.em = em
        self.weight = weight
        self.frozen = frozen
        self.max_iterations = max_iterations
        self.tolerance = tolerance
        self.decoding = decoding
        self.cores = cores
        self.progress = progress
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.classes = classes
        self.dtype = dtype

    # ------------------------------------------------------------------------------ training

    def fit(
        self,
        X: Iterable[Any],
        y: Sequence[Sequence[Label]],
        *,
        unlabelled: Iterable[Any] | None = None,
        expectations: Sequence[Expectation] = (),
        mesh: Mesh | None = None,
        sentence_numbers: Sequence[int] | None = None,
    ) -> HMMTagger:
        """Train.

        Args:
            X: sentences: `jaxseq.text.Sentence`, mappings from column to strings, or lists of
                words.
            y: for every sentence its labels; one may be a set of possible labels, or None. The
                supervised model is then that of EM on what is known.
            unlabelled: more sentences, of which no labels are known.
            expectations: of the labels of these, of `jaxseq.expectations`. EM then counts by the
                nearest distribution that meets them (posterior regularisation, with squared
                distances). For soft EM without a mesh and checkpoints.
            mesh: devices to share the sentences out to in EM, in place of `cores`; of
                `jaxseq.parallel.make_mesh`. Where it spans several processes, X, y and `unlabelled`
                are the part of this one, which may be empty; all call `fit` together, and all get
                the model, equal to that of one process up to rounding.
            sentence_numbers: with several processes, the place of each of X in the whole corpus, by
                which words are numbered; None where sentences were dealt out by turns.

        Returns:
            The tagger itself. After Ctrl-C it holds the model of the iteration that was then under
            way; a second Ctrl-C does not wait for that.

        Raises:
            ValueError: for what is no sentence or no label; without a single label; and, where
                smoothing is 0, for a sentence that the supervised model holds impossible: EM could
                learn nothing from it.
        """
        began = time.perf_counter()
        devices = Devices.from_mesh(mesh, sentence_numbers)
        with devices.agreeing():
            plan = make_hmm_plan(self, mesh)
            expectations = check_expectations(expectations)
            if expectations and (plan.hard or mesh is not None or plan.checkpoint is not None):
                raise ValueError(
                    "expectations: expected none with em='hard', a mesh or a checkpoint, got "
                    f"{len(expectations)}"
                )
            classes = None if self.classes is None else sorted(map(str, self.classes))
            devices.check_settings(
                {**self.get_params(deep=False), "classes": classes},
                unlabelled=unlabelled,
                sentence_numbers=sentence_numbers,
                checkpoint=self.checkpoint,
            )
            others = None if plan.weight == 0 else unlabelled
            data = read_hmm_data(X, y, others, plan, devices, expectations)
        seconds = {"features": time.perf_counter() - began}
        self._take_fitted(data, search_hmm(data, plan))
        if data.unlabelled is not None:
            self._warn_of_drift(data, devices)
        self.seconds_ = {**seconds, "all": time.perf_counter() - began}
        return self

    def _warn_of_drift(self, data: HMMData, devices: Devices) -> None:
        assert data.unlabelled is not None
        features = word_features(data.unlabelled.words, data.unlabelled.lengths)
        predicted = best_labels(conditional_crf(self.model_), features)
        labelled, now = (
            devices.sum(np.bincount(labels[labels >= 0], minlength=len(data.classes)))
            for labels in (data.labelled.labels, predicted)
        )
        warn_of_drift(data.classes, labelled, now)

    def _take(self, model: HMM, classes: list[str], vocabulary: WordVocabulary) -> None:
        self.model_, self.vocabulary_ = model, vocabulary
        self.classes_ = np.array(classes, dtype=object)

    def _take_fitted(self, data: HMMData, found: HMMFitted) -> None:
        self._take(found.model, data.classes, data.vocabulary)
        self.objectives_, self.loss_ = found.objectives, -found.objectives[-1]
        self.log_likelihood_, self.outcome_ = found.log_likelihood, found.outcome
        self.n_iter_ = found.iterations
        self._remove_when_saved(found.unsaved)

    # ---------------------------------------------------------------------------- prediction

    def _scored(self, X: Iterable[Any]) -> ScoredSentences:
        check_is_fitted(self, "model_")
        forget_programs()
        sentences = list(check_sentences(X))  # read twice: for words, and by constraints
        words, lengths = read_words(sentences, self.column)
        features = word_features(word_numbers(words, self.vocabulary_), lengths)
        return ScoredSentences(conditional_crf(self.model_), features, sentences)

    def _decode(self, scored: Decodable, mesh: Mesh | None) -> np.ndarray:
        if self.decoding == "viterbi":
            return scored.best_labels(mesh)
        if self.decoding == "max_marginal":
            marginals = scored.marginals(mesh)
            # All are 0 where the sentence is impossible, and argmax would name the first label.
            return np.where(marginals.sum(1) > 0, marginals.argmax(1), -1)
        raise ValueError(
            f"decoding: expected 'viterbi' or 'max_marginal', got {self.decoding!r:.60}"
        )

    def _impossible(self, sentence: int, length: int) -> ValueError:
        advice = "training with smoothing above 0, and a weight below 1, makes all possible"
        if self.weight == 1:
            advice = (
                "at weight 1 (λ = 1) labelled sentences and smoothing count for nothing, and words "
                "that the unlabelled ones lack are impossible: train with a weight below 1"
            )
        return ImpossibleSentence(
            f"X[{sentence}]: expected a sentence that the model holds possible, got one of "
            f"probability 0; {advice}"
        )

    # ------------------------------------------------------------------------------- storage

    def settings_to_json(self) -> dict[str, Any]:
        """The parameters, as JSON can hold them."""
        settings = super().settings_to_json()
        settings["frozen"] = list(settings["frozen"])  # JSON has no tuples
        return settings

    @classmethod
    def settings_from_json(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Arguments of the constructor, from what `settings_to_json` gave."""
        settings = super().settings_from_json(settings)
        settings["frozen"] = tuple(settings["frozen"])
        return settings

    def _describe(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        arrays = StringTable(self.vocabulary_.words).to_arrays(WORDS)
        for name, family in self.model_.probabilities._asdict().items():
            arrays[name] = np.ascontiguousarray(family)
        return {}, arrays

    def _restore(
        self, about: dict[str, Any], labels: list[str], arrays: dict[str, np.ndarray]
    ) -> None:
        check_hmm_settings(self)
        words = StringTable.from_arrays(arrays, WORDS).strings
        vocabulary = WordVocabulary([words], min_count=1)
        s, v = len(labels), len(vocabulary)
        shapes = Multinomials((s,), (s, s), (v, s))  # pyright: ignore
        families = {name: arrays[name] for name in Multinomials._fields}
        check_stored_numbers(families)
        for (name, array), shape, axis in zip(families.items(), shapes, EVENT_AXES):
            if array.shape != shape:
                raise ValueError(f"{name}: expected shape {list(shape)}, got {list(array.shape)}")
            sums = array.sum(axis, dtype=np.float64)  # of many words, more exact than the array
            # At weight 1 a label may occur nowhere: then its probabilities are all 0.
            sound = (np.abs(sums - 1) < LARGEST_DEVIATION) | (sums == 0)
            if (array < 0).any() or not sound.all():
                raise ValueError(
                    f"{name}: expected probabilities, whose sums are 1 or all of them 0"
                )
        model = HMM(**families, unknown=vocabulary.unknown)
        # To the bit what was stored: normalising again changes last digits.
        exact = Multinomials(**{name: jnp.asarray(array) for name, array in families.items()})
        model = eqx.tree_at(lambda hmm: hmm.probabilities, model, exact)
        self._take(model, labels, vocabulary)


WORDS = "words"
"""Prefix of the names of the vocabulary's arrays in files."""

LARGEST_DEVIATION = 1e-3
"""Of the sum of probabilities from 1, in single precision and for any number of words."""


class ImpossibleSentence(ValueError):
    """A sentence that a model gives the probability 0, whatever its labels."""


# -------------------------------------------------------------------------------------------------
# EM between labelled and unlabelled sentences for many values of the balance λ between them.


WEIGHT_STEP = 0.025
"""Between two values of λ, as in figure 2 of Haffari & Sarkar."""


@dataclass(frozen=True)
class WeightSweep:
    """The trained tagger and its score for each of `weights`.

    A score is NaN where the tagger holds a sentence impossible that it was to be scored on: at
    λ = 1 nothing is smoothed. Such a λ is never the best.

    Example:
        >>> sweep = WeightSweep((0.0, 0.5, 1.0), (), np.array([0.7, 0.9, 0.9]))
        >>> sweep.best
        0.5
    """

    weights: tuple[float, ...]
    taggers: tuple[HMMTagger, ...]
    scores: np.ndarray

    @property
    def best_index(self) -> int:
        """Where the best score is; the first place, where several have it."""
        if np.isnan(self.scores).all():
            raise ValueError(f"scores: expected a number at some λ, got NaN at {self.weights}")
        return int(np.nanargmax(self.scores))

    @property
    def best(self) -> float:
        """λ of the best score."""
        return self.weights[self.best_index]


def sweep_weights(
    tagger: HMMTagger,
    X: Iterable[Any],
    y: Sequence[Sequence[Label]],
    *,
    unlabelled: Iterable[Any],
    scoring: Callable[[HMMTagger], float],
    weights: Sequence[float] | None = None,
    warm_start: bool = False,
    progress: bool | None = None,
) -> WeightSweep:
    r"""Train by EM at each λ, and score what comes out.

    The baselines of the choice of λ: with sentences that are held out for `scoring`, the held-out
    λ; with the test sentences, the oracle's, which no method that chooses λ alone can beat.

    Args:
        tagger: settings; it is cloned, not changed. Its own weight and checkpoint are not used.
        X, y, unlabelled: as in `HMMTagger.fit`.
        scoring: of a trained tagger; higher is better. Where it meets a sentence of probability
            0, as λ = 1 has it of words that are not in `unlabelled`, the score is NaN.
        weights: λ, in the order in which to train; 0, .025, …, 1 if None.
        warm_start: start EM at each λ from the model of the one before; otherwise all start from
            the supervised model. The vocabulary is the same for all.
        progress: show a progress bar; None shows it on a terminal.

    Returns:
        A `WeightSweep`.

    Raises:
        ValueError: as `HMMTagger.fit`; for weights outside 0 … 1; without an unlabelled token.
        KeyboardInterrupt: after Ctrl-C.

    Cost: that of `HMMTagger.fit` once for every weight.

    Example:
        >>> X, y = [["the", "dog", "barks"]], [["D", "N", "V"]]
        >>> more = [["the", "cow", "barks"], ["the", "cow"]]
        >>> sweep = sweep_weights(
        ...     HMMTagger(unknown_below=1), X, y, unlabelled=more, weights=(0, 0.5),
        ...     scoring=lambda trained: trained.score([["the", "cow"]], [["D", "N"]]),
        ... )
        >>> sweep.weights, sweep.scores.tolist()
        ((0.0, 0.5), [1.0, 1.0])

    References:
        Haffari & Sarkar 2008, section 5.1 and figure 2: (a) cold, (b) warm starts.
    """
    lambdas = _check_weights(weights)
    plan = replace(make_hmm_plan(fresh(tagger)), progress=False)
    data = read_hmm_data(X, y, unlabelled, plan)
    if data.unlabelled is None:
        raise ValueError("unlabelled: expected at least one token, got none")
    # Read once: all weights share the vocabulary, and the supervised model where EM begins.
    supervised = _uninterrupted(search_hmm(replace(data, unlabelled=None), plan))
    begin, taggers, scores = supervised.model, [], []
    with progress_bar("sweep over λ", len(lambdas), progress) as tick:
        for balance in lambdas:
            fitted = supervised
            if balance != 0:
                fitted = _uninterrupted(search_hmm(data, replace(plan, weight=balance), begin))
            trained = fresh(tagger).set_params(weight=balance)
            trained._take_fitted(data, fitted)
            taggers.append(trained)
            scores.append(_score(scoring, trained))
            begin = fitted.model if warm_start else begin
            tick(len(scores), scores[-1])
    return WeightSweep(lambdas, tuple(taggers), np.array(scores))


def _score(scoring: Callable[[HMMTagger], float], trained: HMMTagger) -> float:
    try:
        return float(scoring(trained))
    except ImpossibleSentence:
        return math.nan


def _check_weights(weights: Sequence[float] | None) -> tuple[float, ...]:
    if weights is None:
        return tuple(np.linspace(0, 1, round(1 / WEIGHT_STEP) + 1).tolist())
    if not len(weights):
        raise ValueError("weights: expected at least one, got none")
    for index, weight in enumerate(weights):
        if weight is None:
            raise ValueError(f"weights[{index}]: expected a number from 0 to 1, got None")
        check_balance(f"weights[{index}]", weight)
    return tuple(float(weight) for weight in weights)


def _uninterrupted(fitted: HMMFitted) -> HMMFitted:
    """KeyboardInterrupt after a training that Ctrl-C ended early: its score would not count."""
    if fitted.outcome is Outcome.INTERRUPTED:
        raise KeyboardInterrupt
    return fitted
