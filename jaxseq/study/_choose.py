"""Choosing a way to learn from unlabelled text by cross-validation on the labelled sentences.

All folds are trainings on the same sentences, of which those held out weigh nothing. So they have
the same shapes, and what is compiled for the first one serves all others.
"""

from __future__ import annotations

import numbers
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from jaxseq._io import Fingerprint, SearchStore
from jaxseq._runtime import Outcome, progress_bar
from jaxseq.crf import CRFTagger, usual_scoring
from jaxseq.expectations import Expectation, check_expectations, label_shares
from jaxseq.representations import learn_representation
from jaxseq.study._scores import SentenceCounts, count_by_sentence, resampled_scores
from jaxseq.taggers import SelfTraining, check_number, check_unlabelled, fresh, settings_of

PLAIN = "plain CRF"
L2_VALUES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
REPRESENTATIONS = (("clusters",), ("clusters", "brown"), ("clusters", "brown", "states"))
"""Kinds of representation to try, each with more than the one before it."""
SHARES_WEIGHT = 0.3
"""Of label regularisation, for each labelled token."""
ENTROPY_WEIGHT = 0.03
CONFIDENCE = 0.9
"""Of a label that self-training learns from."""

LARGEST_TRIAL = 1000
"""Unlabelled sentences that a method is tried with; the last training takes all of them."""
PROOF = {"representation": 0.0, "l2": 0.0}
"""Standard errors by which a contender must be ahead. Word representations have gained on nearly
every corpus that anyone has tried, so that the better score will do; other methods have to show
that it is no accident."""
USUAL_PROOF = 1.0
INTERVAL = (2.5, 97.5)
"""Percentiles of resampled scores."""


@dataclass(frozen=True)
class Contender:
    """A way of training, and what cross-validation says of it.

    Attributes:
        name: in words; the first one is ``"plain CRF"``.
        settings: of the tagger and of its training, beside those that the user has set.
        counts: the labellings of all sentences by the folds that did not train on them.
        low, high: the 95 % interval of the score.
        gain: over the plain CRF.
        error: the standard error of the gain.
        seconds: that its trials took.
        note: why it was not tried to the end, or nothing.
    """

    name: str
    settings: dict[str, Any]
    counts: SentenceCounts | None = None
    low: float = float("nan")
    high: float = float("nan")
    gain: float = 0.0
    error: float = 0.0
    seconds: float = 0.0
    note: str = ""

    @property
    def score(self) -> float:
        """F1 of spans, or accuracy of tokens where labels spell no spans."""
        return float("nan") if self.counts is None else self.counts.score


@dataclass(frozen=True)
class Choice:
    """What `fit_semi_supervised` has found.

    Attributes:
        tagger: the best way's, trained on all sentences.
        best: its contender.
        contenders: all that were tried, in that order.
        scoring: ``"span_f1"`` or ``"accuracy"``.
        outcome: a member of `jaxseq.Outcome`: whether Ctrl-C ended the search.
    """

    tagger: Any
    best: Contender
    contenders: list[Contender] = field(repr=False)
    scoring: str
    outcome: Outcome
    _train: Callable[[dict[str, Any]], Any] = field(repr=False)

    def train(self, contender: Contender) -> Any:
        """Another contender's tagger, trained on all sentences."""
        return self._train(contender.settings)

    def table(self) -> str:
        """The contenders with their scores in percent, the chosen one marked."""
        metric = {"span_f1": "F1"}.get(self.scoring, self.scoring)
        lines = [f"  {'':34} {metric:>9}   95 % interval     gain"]
        for each in self.contenders:
            mark = "*" if each is self.best else " "
            if each.counts is None:
                lines.append(f"{mark} {each.name:34} {each.note}")
                continue
            lines.append(
                f"{mark} {each.name:34} {100 * each.score:9.1f}   "
                f"{100 * each.low:5.1f} to {100 * each.high:5.1f}   "
                f"{100 * each.gain:+6.1f} ± {100 * each.error:.1f}"
            )
        return "\n".join(lines)


def fit_semi_supervised(
    X: Iterable[Any],
    y: Sequence[Sequence[str]],
    unlabelled: Iterable[Any],
    *,
    tagger: CRFTagger | None = None,
    expectations: Sequence[Expectation] | None = None,
    folds: int = 5,
    seconds: float | None = None,
    seed: int = 0,
    progress: bool | None = None,
    checkpoint: Any = None,
) -> Choice:
    """Train a CRF on labelled and unlabelled sentences in the way that serves them best.

    Tries, by cross-validation on the labelled sentences: a plain CRF with several l2; word
    representations learnt from all sentences; and on top of the best of these label
    regularisation, entropy regularisation with it, self-training, and the expectations, if there
    are any. A contender takes the lead with a better score; where it is not a representation, by
    more than the standard error of the difference. So the result is hardly ever worse than the
    plain CRF, which it is if nothing helps.

    Args:
        X: labelled sentences, with words: as for `CRFTagger` with templates.
        y: their labels, all known.
        unlabelled: more sentences.
        tagger: other settings, of which l2 and the representation are chosen; None takes
            ``CRFTagger()``. It is cloned, not changed.
        expectations: of the labels of the unlabelled sentences, to be tried too.
        folds: parts of the labelled sentences, each held out once.
        seconds: no further contender is begun after so long; the last training comes on top.
        seed: of folds, samples and representations.
        progress: show a progress bar; None shows it on a terminal.
        checkpoint: a file to keep the trials in, to go on from after an interrupt.

    Returns:
        A `Choice` with the trained tagger. After Ctrl-C it is the best of the contenders that were
        tried by then.

    Raises:
        ValueError: for labels that are not known, and fewer sentences than folds.

    Example:
        >>> import jaxseq
        >>> X = [["the", "dog", "barks"], ["a", "cat"], ["the", "cow"], ["a", "dog", "sleeps"]]
        >>> y = [["D", "N", "V"], ["D", "N"], ["D", "N"], ["D", "N", "V"]]
        >>> more = [["the", "cat", "sleeps"], ["a", "cow", "barks"]] * 5
        >>> chosen = jaxseq.fit_semi_supervised(X, y, more, folds=2, seconds=0)
        >>> chosen.best.name, chosen.tagger.predict([["the", "dog"]])
        ('plain CRF', [['D', 'N']])
    """
    trials = _Trials(X, y, unlabelled, tagger, expectations, folds, seed, checkpoint)
    began, tried, outcome = time.perf_counter(), [], Outcome.COUNTED
    best: Contender | None = None
    total = 4 + len(REPRESENTATIONS) + bool(expectations)
    try:
        bar = progress_bar("contenders", total, progress, trials.scoring)
        with trials.remembering(), bar as tick:
            for kind, group in trials.contenders(lambda: best):
                late = seconds is not None and time.perf_counter() - began > seconds
                if late and best is not None:
                    tried += [replace(group[0], note="not tried: there was no time left")]
                    continue
                results = [trials.evaluate(each) for each in group]
                winner = max(results, key=lambda each: each.score)
                if best is None:
                    best = winner = trials.compared(winner, winner)
                else:
                    winner = trials.compared(winner, tried[0])
                    ahead, error = trials.difference(winner, best)
                    if ahead > PROOF.get(kind, USUAL_PROOF) * error and ahead > 0:
                        best = winner
                tried.append(winner)
                tick(len(tried), winner.score)
    except KeyboardInterrupt:
        if best is None:
            raise
        outcome = Outcome.INTERRUPTED
    assert best is not None
    train = partial(trials.train, without=None)
    final = train(best.settings)
    trials.store.remove()
    return Choice(final, best, tried, trials.scoring, outcome, train)


class _Trials:
    """Trainings of contenders on folds, which are kept as they are done."""

    def __init__(
        self,
        X: Iterable[Any],
        y: Sequence[Sequence[str]],
        unlabelled: Iterable[Any],
        tagger: CRFTagger | None,
        expectations: Sequence[Expectation] | None,
        folds: int,
        seed: int,
        checkpoint: Any,
    ):
        self.X, self.y, self.unlabelled = list(X), list(y), check_unlabelled(unlabelled)
        if tagger is not None and not isinstance(tagger, CRFTagger):
            raise ValueError(f"tagger: expected a CRFTagger, got {tagger!r:.60}")
        self.tagger = fresh(CRFTagger() if tagger is None else tagger)
        self.expectations = check_expectations(expectations or [])
        check_number("folds", folds, 2, numbers.Integral)
        check_number("seed", seed, 0, numbers.Integral)
        self.scoring = _check_sentences(self.X, self.y, folds)
        self.seed = seed
        order = np.random.default_rng(seed).permutation(len(self.X))
        self.held_out = [np.sort(part) for part in np.array_split(order, folds)]
        about = (settings_of(self.tagger), self.expectations, folds, seed)
        self.store = SearchStore(
            checkpoint,
            lambda: Fingerprint("semi-supervised", about, self.X, self.y, self.unlabelled),
        )
        self._known: dict[str, Any] = {}
        self._learnt: dict[str, Any] = {}

    @contextmanager
    def remembering(self) -> Iterator[None]:
        """Inside, the trials of an earlier run are known, and no other run has the file."""
        with self.store.alone():
            saved = self.store.load()
            self._known = {} if saved is None else saved.notes
            yield

    @cached_property
    def trial_pool(self) -> list[Any]:
        """Unlabelled sentences to try methods with."""
        if len(self.unlabelled) <= LARGEST_TRIAL:
            return self.unlabelled
        rng = np.random.default_rng(self.seed)
        some = np.sort(rng.choice(len(self.unlabelled), LARGEST_TRIAL, replace=False))
        return [self.unlabelled[place] for place in some.tolist()]

    def contenders(
        self, lead: Callable[[], Contender | None]
    ) -> Iterator[tuple[str, list[Contender]]]:
        """Kinds of contender, each with some of which only the best is to be kept."""
        yield "l2", [Contender(PLAIN, {"l2": l2}) for l2 in L2_VALUES]
        if not self.unlabelled:
            return
        for kinds in REPRESENTATIONS:
            near = _neighbours(_leader(lead)["l2"])
            name = " + ".join(kinds)
            settings = [{"l2": l2, "representation": kinds} for l2 in near]
            yield "representation", [Contender(name, each) for each in settings]
        settings = {**_leader(lead), "shares": SHARES_WEIGHT}
        yield "shares", [Contender("label regularisation", settings)]
        settings = {"shares": SHARES_WEIGHT, **_leader(lead), "entropy": ENTROPY_WEIGHT}
        yield "entropy", [Contender("entropy regularisation", settings)]
        if self.expectations:
            base = _leader(lead)
            yield "expectations", [Contender("expectations", {**base, "expectations": True})]
        # It learns from labels of its own, and can have no other use of the same sentences.
        base = {name: _leader(lead).get(name) for name in ("l2", "representation")}
        yield "self-training", [Contender("self-training", {**base, "self_training": CONFIDENCE})]

    def evaluate(self, contender: Contender) -> Contender:
        """Train on every fold, or remember, and count what is right where it did not train."""
        began = time.perf_counter()
        labels: list[Any] = [None] * len(self.X)
        for fold, places in enumerate(self.held_out):
            key = f"{contender.name} {contender.settings['l2']:g} {fold}"
            if key not in self._known:
                trained = self.train(contender.settings, places)
                self._known[key] = trained.predict([self.X[place] for place in places.tolist()])
                self.store.save(self._known)
            for place, predicted in zip(places.tolist(), self._known[key]):
                labels[place] = predicted
        counts = count_by_sentence(self.y, labels, self.scoring)
        return replace(contender, counts=counts, seconds=time.perf_counter() - began)

    def difference(self, one: Contender, other: Contender) -> tuple[float, float]:
        """By how much one is ahead, and the standard error of that."""
        assert one.counts is not None
        assert other.counts is not None
        samples = resampled_scores([one.counts, other.counts], self.seed)
        return one.score - other.score, float((samples[0] - samples[1]).std())

    def compared(self, contender: Contender, plain: Contender) -> Contender:
        """With the interval of its score, and what it gains over the plain CRF."""
        assert contender.counts is not None
        low, high = np.percentile(resampled_scores([contender.counts], self.seed)[0], INTERVAL)
        gain, error = self.difference(contender, plain)
        return replace(contender, low=float(low), high=float(high), gain=gain, error=error)

    def train(self, settings: dict[str, Any], without: np.ndarray | None) -> Any:
        """A tagger by these settings, of the labelled sentences but for some places."""
        tagger = fresh(self.tagger).set_params(l2=settings["l2"])
        if kinds := settings.get("representation"):
            tagger.set_params(representation=self._learn(tuple(kinds)))
        is_trial = without is not None
        pool = self.trial_pool if is_trial else self.unlabelled
        places = range(len(self.X))
        left = sorted(set(places) - set(without.tolist())) if is_trial else list(places)
        if confidence := settings.get("self_training"):
            learner = SelfTraining(
                tagger, confidence=confidence, confidence_of="token", max_rounds=1, progress=False
            )
            X, y = [self.X[place] for place in left], [self.y[place] for place in left]
            return _uninterrupted(learner.fit(X, y, unlabelled=pool), is_trial).tagger_
        weights = np.zeros(len(self.X))
        weights[left] = 1
        how: dict[str, Any] = {"sample_weight": weights.tolist() if is_trial else None}
        expected = list(self.expectations) if settings.get("expectations") else []
        known = [self.y[place] for place in left]
        if shares := settings.get("shares"):
            expected.append(label_shares(known, weight=shares * sum(map(len, known))))
        if expected or settings.get("entropy"):
            how |= {"unlabelled": pool, "expectations": expected}
            how["entropy_weight"] = settings.get("entropy", 0.0)
        return _uninterrupted(tagger.fit(self.X, self.y, **how), is_trial)

    def _learn(self, kinds: tuple[str, ...]) -> Any:
        """Kind by kind, as each of them serves several contenders: of the same rows."""
        for kind in kinds:
            if kind not in self._learnt:
                self._learnt[kind] = learn_representation(
                    [*self.X, *self.unlabelled], kinds=kind, seed=self.seed, progress=False
                )
        each = [self._learnt[kind] for kind in kinds]
        return replace(
            each[0],
            clusters={size: one for part in each for size, one in part.clusters.items()},
            brown=next((part.brown for part in each if part.brown is not None), None),
            state_model=next((p.state_model for p in each if p.state_model is not None), None),
            about={**each[0].about, "kinds": list(kinds)},
        )


def _leader(lead: Callable[[], Contender | None]) -> dict[str, Any]:
    best = lead()
    assert best is not None
    return best.settings


def _neighbours(l2: float) -> list[float]:
    place = L2_VALUES.index(l2)
    return list(L2_VALUES[max(0, place - 1) : place + 2])


def _uninterrupted(trained: Any, is_trial: bool) -> Any:
    """The estimator; Ctrl-C ends a training early, of which a trial would say nothing."""
    if is_trial and trained.interrupted_:
        raise KeyboardInterrupt
    return trained


def _check_sentences(X: list[Any], y: list[Any], folds: int) -> str:
    """How to score; ValueError for sentences that cannot be scored."""
    if len(X) != len(y):
        raise ValueError(f"y: expected labels for {len(X)} sentences, got {len(y)}")
    if len(X) < folds:
        raise ValueError(f"X: expected at least {folds} sentences, one per fold, got {len(X)}")
    for sentence, labels in enumerate(y):
        for token, label in enumerate(labels):
            if not isinstance(label, str):
                raise ValueError(
                    f"y[{sentence}][{token}]: expected a known label to score by, got {label!r:.60}"
                )
    return usual_scoring(label for labels in y for label in labels)
