"""From labelled and unlabelled words to the probabilities of a hidden Markov model.

Where every label is known, the supervised model is a matter of counting. Where labels are known in
part, EM on the labelled sentences finds it: the first stage. With unlabelled sentences, EM between
the two goes on from there: the second.
"""

from __future__ import annotations

import numbers
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxseq._io import Before, Fingerprint, SearchStore, Stages
from jaxseq._runtime import (
    Outcome,
    forget_programs,
    interrupts_deferred,
    progress_bar,
    usable_cores,
)
from jaxseq.crf import (
    CRF,
    ExpectationTerm,
    Objective,
    Parameters,
    Projection,
    SharePenalty,
    Spread,
    lay_out,
    make_shards,
    share_corpus,
)
from jaxseq.expectations import EncodedExpectations, Expectation, encode_expectations
from jaxseq.hmm._corpus import WordCorpus, WordVocabulary, word_corpus
from jaxseq.hmm._counts import FAMILIES, Tally, check_families, known_counts
from jaxseq.hmm._em import EMOperator, EMState, Evaluation, Smoothing, iterate_em
from jaxseq.hmm._model import HMM, Multinomials
from jaxseq.parallel import Devices, check_mesh, mesh_peers, spans_processes
from jaxseq.taggers import (
    MAX_CORES,
    Label,
    check_classes,
    check_labels,
    check_number,
    check_sentences,
    check_unlabelled,
    encode_labels,
    find_classes,
)
from jaxseq.text import Column, TokenFeatures, read_corpus

if TYPE_CHECKING:
    from jaxseq.hmm._tagger import HMMTagger

# -------------------------------------------------------------------------------------------------
# The parameters of an `HMMTagger`, checked.

CHOICES = {
    "em": ("soft", "hard"),
    "vocabulary": ("all", "labelled"),
    "decoding": ("viterbi", "max_marginal"),
    "dtype": ("float32", "float64"),
}
"""Parameters that are one of a few words."""


@dataclass(frozen=True)
class HMMPlan:
    """How to read sentences, and how to search."""

    column: str
    unknown_below: int
    vocabulary: str
    smoothing: Smoothing
    hard: bool
    weight: float | None
    frozen: tuple[str, ...]
    max_iterations: int
    tolerance: float
    cores: int
    progress: bool | None
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: int
    classes: tuple[str, ...] | None
    dtype: str
    mesh: Mesh | None = None


def check_own_mesh(mesh: Any, instead: str = "") -> Mesh | None:
    """The mesh, or None for none; ValueError where it has devices of other processes, `instead` of
    which the message names what takes those."""
    if mesh is not None and spans_processes(mesh := check_mesh(mesh)):
        raise ValueError(
            "mesh: expected devices of this process alone, got those of several processes" + instead
        )
    return mesh


def make_hmm_plan(tagger: HMMTagger, mesh: Mesh | None = None) -> HMMPlan:
    """How to train, by the estimator's parameters; ValueError on one that makes no sense."""
    check_hmm_settings(tagger)
    # Otherwise JAX would round to float32 without a word.
    if jax.dtypes.canonicalize_dtype(tagger.dtype) != tagger.dtype:
        raise ValueError(
            "dtype: expected JAX to have 64-bit numbers switched on (jax_enable_x64) for float64, "
            "got them switched off"
        )
    mesh = None if mesh is None else check_mesh(mesh)
    return HMMPlan(
        column=tagger.column,
        unknown_below=int(tagger.unknown_below),
        vocabulary=tagger.vocabulary,
        smoothing=Smoothing(
            **{name: float(getattr(tagger, f"{name}_smoothing")) for name in FAMILIES}
        ),
        hard=tagger.em == "hard",
        weight=None if tagger.weight is None else float(tagger.weight),
        frozen=tuple(tagger.frozen),
        max_iterations=int(tagger.max_iterations),
        tolerance=float(tagger.tolerance),
        cores=int(tagger.cores or usable_cores()),
        progress=tagger.progress,
        checkpoint=tagger.checkpoint,
        checkpoint_every=int(tagger.checkpoint_every),
        classes=None if tagger.classes is None else tuple(tagger.classes),
        dtype=tagger.dtype,
        mesh=mesh,
    )


def check_hmm_settings(tagger: HMMTagger) -> None:
    """ValueError on a parameter that makes no sense on any machine."""
    if not isinstance(tagger.column, str):
        raise ValueError(f"column: expected the name of one, a string, got {tagger.column!r:.60}")
    for name in (*(f"{family}_smoothing" for family in FAMILIES), "tolerance"):
        check_number(name, getattr(tagger, name), 0, numbers.Real)
    for name, low in {"unknown_below": 1, "max_iterations": 0, "checkpoint_every": 1}.items():
        check_number(name, getattr(tagger, name), low, numbers.Integral)
    if tagger.cores is not None:
        check_number("cores", tagger.cores, 1, numbers.Integral, MAX_CORES)
    check_balance("weight", tagger.weight)
    for name, among in CHOICES.items():
        if getattr(tagger, name) not in among:
            raise ValueError(
                f"{name}: expected one of {list(among)}, got {getattr(tagger, name)!r:.60}"
            )
    check_families("frozen", tagger.frozen)
    check_classes(tagger.classes)
    if not isinstance(tagger.checkpoint, str | os.PathLike | None):
        raise ValueError(f"checkpoint: expected a path or None, got {tagger.checkpoint!r:.60}")


def check_balance(name: str, balance: Any) -> None:
    """ValueError unless it is a λ: a number from 0 to 1, or None for that of most likelihood."""
    if balance is None:
        return
    check_number(name, balance, 0, numbers.Real)
    if balance > 1:
        raise ValueError(f"{name}: expected a number from 0 to 1, or None, got {balance}")


# -------------------------------------------------------------------------------------------------
# Sentences and labels as the numbers that a hidden Markov model is estimated from.


@dataclass(frozen=True)
class HMMData:
    """What a model is estimated from; `unlabelled` is None where there is no unlabelled token.

    With several processes, the corpora are those of this one.
    """

    classes: list[str]
    vocabulary: WordVocabulary
    labelled: WordCorpus
    unlabelled: WordCorpus | None
    expectations: EncodedExpectations | None = None


def read_hmm_data(
    X: Iterable[Any],
    y: Sequence[Sequence[Label]],
    unlabelled: Iterable[Any] | None,
    plan: HMMPlan,
    devices: Devices | None = None,
    expectations: Sequence[Expectation] = (),
) -> HMMData:
    """Vocabulary, classes and corpora; ValueError on what is no sentence or no label.

    With several processes the sentences are those of this one, vocabulary and classes
    those of all; all call this together, inside their guard.
    """
    devices = devices or Devices.alone()
    words, lengths = read_words(check_sentences(X), plan.column)
    # This process may have none as long as another has one.
    if not devices.total(len(lengths)):
        raise ValueError("X: expected at least one sentence, got none")
    flat = check_labels(y, lengths)
    classes = find_classes(flat, lengths, devices, plan.classes)
    # The classes are those of all processes: one has labels that another never sees.
    labels = encode_labels(flat, classes, lengths)
    sentences = None if unlabelled is None else check_unlabelled(unlabelled)  # read twice
    others = None if sentences is None else _read_unlabelled(sentences, plan.column)
    both = [(words, lengths)]
    if others is not None and plan.vocabulary == "all":
        both.append(others)
    vocabulary = _make_vocabulary(both, plan.unknown_below, devices)
    known = labels.gold if labels.allowed is None else labels.allowed
    labelled = word_corpus(
        _by_sentence(word_numbers(words, vocabulary), lengths),
        len(vocabulary),
        labels=_by_sentence(known, lengths),
        num_labels=len(classes),
        cores=plan.cores,
    )
    if others is None or not devices.total(int(others[1].sum())):
        return HMMData(classes, vocabulary, labelled, None)
    numbers = _by_sentence(word_numbers(others[0], vocabulary), others[1])
    rest = word_corpus(numbers, len(vocabulary), cores=plan.cores)
    encoded = None
    if expectations and sentences is not None:
        encoded = encode_expectations(expectations, sentences, others[1], classes, devices=devices)
    return HMMData(classes, vocabulary, labelled, rest, encoded)


def read_words(sentences: Iterable[Any], column: str) -> tuple[Column, np.ndarray]:
    """The words of all sentences, and how many each has."""
    columns, lengths = read_corpus(sentences, [column])
    return columns[column], lengths


def _read_unlabelled(sentences: Any, column: str) -> tuple[Column, np.ndarray]:
    try:
        return read_words(check_unlabelled(sentences), column)
    except ValueError as error:
        message = str(error)
        is_named = message.startswith("unlabelled")
        raise ValueError(message if is_named else f"unlabelled: {message}") from None


def _make_vocabulary(
    parts: list[tuple[Column, np.ndarray]], unknown_below: int, devices: Devices
) -> WordVocabulary:
    """Of the labelled sentences and perhaps others, in all processes; by first occurrence."""
    column, lengths = _one_column([column for column, _ in parts]), [part[1] for part in parts]
    shared = share_corpus(devices, *map(len, lengths))
    if shared is not None:
        shared.check(sum(map(len, lengths)))
        column = shared.share_column(column, np.concatenate(lengths))
    counts = devices.sum(np.bincount(column.codes, minlength=len(column.strings)))
    counted = zip(column.strings, counts.tolist())
    # A NumPy string becomes a plain one, which JSON can hold.
    frequent = [str(word) for word, count in counted if count >= unknown_below]
    return WordVocabulary([frequent], min_count=1)


def _one_column(columns: list[Column]) -> Column:
    """One after another."""
    if len(columns) == 1:
        return columns[0]
    # In the order of first occurrence, by which words are numbered.
    strings = list(dict.fromkeys(word for column in columns for word in column.strings))
    number = {word: code for code, word in enumerate(strings)}
    codes = [
        np.array([number[word] for word in column.strings], np.int64)[column.codes]
        for column in columns
    ]
    return Column(strings, np.concatenate(codes))


def word_numbers(words: Column, vocabulary: WordVocabulary) -> np.ndarray:
    """The number of each token's word, int32 [N]; of the unknown word for one that is not known."""
    return vocabulary.encode([words.strings])[0][words.codes]


def _by_sentence(values: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    return np.split(values, np.cumsum(lengths))[:-1]


# -------------------------------------------------------------------------------------------------
# A hidden Markov model on new sentences, as the conditional random field that it is.
#
# Given the words, P(y | x) is that of a CRF with one attribute per token, its word, and with the
# logarithms of the probabilities as weights; so all that a CRF predicts with serves here too.


def conditional_crf(model: HMM) -> CRF:
    r"""The CRF whose :math:`p(y \mid x)` is that of the model. Cost O(v s)."""
    scores = model.probabilities.log()
    return CRF(scores.emission, scores.transition, start=scores.initial)


def word_features(words: np.ndarray, lengths: np.ndarray) -> TokenFeatures:
    """Each token's word as its only attribute."""
    return TokenFeatures(ids=words[:, None], values=None, lengths=lengths, edge_ids=None)


# -------------------------------------------------------------------------------------------------
# Which search for a hidden Markov model a checkpoint is of.


def hmm_fingerprint(
    data: HMMData, plan: HMMPlan, start: HMM | None, devices: Devices
) -> Fingerprint:
    """All processes' data, the settings, and the starting point where one is given.

    Neither the number of processes or cores nor the order of the sentences is in it, but for that
    of the words: a search that was stopped on some goes on, up to rounding, on others. All
    processes call this together.
    """
    digest = Fingerprint("hmm", plan.smoothing, plan.hard, plan.weight, plan.frozen)
    digest.add(plan.tolerance, plan.dtype, data.classes, data.vocabulary.words)
    for corpus in (data.labelled, data.unlabelled):
        if corpus is None:
            continue
        possible = corpus.allowed
        if possible is None:  # all are known, or nothing is
            known = corpus.labels[:, None]
            possible = (known == np.arange(len(data.classes))) | (known < 0)
        columns = (corpus.words, np.packbits(possible, axis=1))
        digest.add_unordered(corpus.lengths, *columns, devices=devices)
    return digest.add(*(() if start is None else start.probabilities))


class HMMFitted(NamedTuple):
    """Where a search ended."""

    model: HMM
    parameters: Multinomials  # unnormalised, Θ̃
    objectives: tuple[float, ...]  # of the last stage, before its first step and after each
    log_likelihood: float | None  # of the unlabelled (in hard EM, with their best labels), if any
    iterations: int  # of all stages
    outcome: Outcome
    unsaved: SearchStore | None = None  # of a search that is over: to be removed with a model saved


def search_hmm(data: HMMData, plan: HMMPlan, start: HMM | None = None) -> HMMFitted:
    """Estimate the model: EM between labelled and unlabelled sentences begins with `start`, or with
    the supervised model, which is then estimated first.

    On a mesh of several processes, the data are those of this one, and all call this together.
    """
    forget_programs()
    # Of all processes: where labels are missing in one, all need the first stage.
    known = all(mesh_peers(plan.mesh).exchange(data.labelled.is_labelled))
    stages = _stages(data, plan, known or start is not None)
    begun = _count_model(data, plan) if start is None else start
    if not stages:
        return _counted(begun, data, plan)
    devices = Devices.from_mesh(plan.mesh)
    digest = lambda: hmm_fingerprint(data, plan, start, devices)  # noqa: E731
    store = SearchStore(plan.checkpoint, digest, devices)
    fitted, before = None, Before()
    total = plan.max_iterations * len(stages)
    with (
        store.alone(),
        progress_bar("EM", total, plan.progress) as tick,
        interrupts_deferred() as pressed,
    ):
        kept = Stages(store)
        for number in range(kept.first, len(stages)):
            operator, model = stages[number], begun if fitted is None else fitted.model
            state, before = kept.resume(number, EMState(model.probabilities), before)
            if not state.iteration:  # a state on disk has passed this before
                advice = "; smoothing above 0 makes all possible"
                operator.check_possible(model.probabilities, "X", "the supervised model", advice)

            def watch(state: EMState, now: Evaluation) -> None:
                if state.iteration:
                    tick(before.iterations + state.iteration, -now.objective)

            def keep(state: EMState) -> None:
                if state.iteration % plan.checkpoint_every == 0:
                    kept.keep(number, state, before)

            if kept.outcome is not None:  # an earlier call has come to the end
                now, outcome = operator(state.parameters), Outcome(kept.outcome)
            else:
                limits = plan.max_iterations, plan.tolerance
                state, now, outcome = iterate_em(operator, state, *limits, watch, pressed, keep)
            goes_on = number + 1 < len(stages)
            goes_on |= outcome in (Outcome.INTERRUPTED, Outcome.MAX_ITERATIONS)
            unsaved = kept.finish(number, state, before, None if goes_on else outcome)
            fitted = HMMFitted(
                HMM(*state.parameters, unknown=model.unknown),
                state.parameters,
                state.values,
                None if operator.unlabelled is None else now.log_likelihood,
                before.iterations + state.iteration,
                outcome,
                unsaved,
            )
            before = Before(fitted.iterations)
            if outcome is Outcome.INTERRUPTED:
                break
    assert fitted is not None
    return fitted


def _stages(data: HMMData, plan: HMMPlan, supervised: bool) -> list[EMOperator]:
    """In the order that they run in; without the first, where there is a supervised model."""
    shared = {"smoothing": plan.smoothing, "hard": plan.hard, "mesh": plan.mesh}
    stages = []
    if not supervised:  # nothing is frozen then: it finds what frozen families are frozen at
        stages.append(EMOperator(data.labelled, None, 0.0, **shared))
    if data.unlabelled is not None:
        corpora = data.labelled, data.unlabelled
        if data.expectations is not None:
            shared["count_unlabelled"] = _ProjectedCounts(data, plan)
        stages.append(EMOperator(*corpora, plan.weight, frozen=plan.frozen, **shared))
    return stages


class _ProjectedCounts:
    """Counts of the unlabelled sentences by the nearest distribution that meets expectations.

    The model is a CRF whose scores are logarithms of probabilities, so that its expected features
    are the counts, and its log Z the likelihood of the words.
    """

    def __init__(self, data: HMMData, plan: HMMPlan):
        assert data.unlabelled is not None
        assert data.expectations is not None
        expected, words = data.expectations, data.unlabelled.words
        lengths, self._sizes = (
            expected.predicates.lengths,
            (len(data.vocabulary), len(data.classes)),
        )
        layout = lay_out(lengths, plan.cores)
        shards = make_shards(layout, word_features(words, lengths), self._sizes[0])
        penalty = SharePenalty.from_encoded(expected, plan.dtype)
        marks = make_shards(layout, expected.predicates, expected.sizes[0])
        self._objective = Objective(
            [], Spread(*self._sizes), 0.0, None, shards, 1.0,
            expectations=ExpectationTerm(penalty, marks),
        )  # fmt: skip
        self._projection = Projection(penalty, data.labelled.num_tokens / len(words))

    def __call__(self, theta: Multinomials) -> Tally:
        (words, labels), scores = self._sizes, theta.log()
        crf = CRF(scores.emission, scores.transition, start=scores.initial)
        point = Parameters(crf.table, crf.transitions, crf.start, crf.stop, None)
        tilt = self._projection(lambda tilt: self._objective.expect(point, tilt))
        counts = self._objective.expected_features(point, tilt)
        emission = counts.weights[:words, :labels]
        value = jnp.asarray(self._projection.value, emission.dtype)
        return Tally(Multinomials(counts.start, counts.transitions, emission), value)


def _count_model(data: HMMData, plan: HMMPlan) -> HMM:
    """Relative frequencies of what is known for sure, smoothed."""
    known = known_counts(data.labelled, len(data.classes), plan.dtype, mesh=plan.mesh)
    smoothed = (family + amount for family, amount in zip(known, plan.smoothing))
    return HMM(*smoothed, unknown=data.vocabulary.unknown)


def _counted(model: HMM, data: HMMData, plan: HMMPlan) -> HMMFitted:
    """Where counting alone is the answer: its objective is still reported."""
    operator = EMOperator(data.labelled, None, 0.0, plan.smoothing, mesh=plan.mesh)
    objective = operator(model.probabilities).objective
    return HMMFitted(model, model.probabilities, (objective,), None, 0, Outcome.COUNTED)
