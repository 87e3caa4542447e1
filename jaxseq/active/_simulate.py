"""Active learning against labels that are known to a source, which hands out what is asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import TYPE_CHECKING, Any

from jaxseq._runtime import progress_bar
from jaxseq.active._query import Answer, Query
from jaxseq.crf import best_labels
from jaxseq.metrics import span_scores
from jaxseq.taggers import split_by_sentence

if TYPE_CHECKING:
    from jaxseq.active._learner import ActiveLearner

Watch = Callable[[dict[str, Any]], Any]


class GoldLabels:
    """Labels of a whole pool, handed out as they are asked for.

    Args:
        gold: for every sentence its labels.

    Example:
        >>> source = GoldLabels([["D", "N"], ["V"]])
        >>> source(Query(0, 1, 2, 0.0)), source.classes
        (['N'], ['D', 'N', 'V'])
    """

    def __init__(self, gold: Iterable[Sequence[str]]):
        self._gold = [list(labels) for labels in gold]
        for index, labels in enumerate(self._gold):
            for place, label in enumerate(labels):
                if not isinstance(label, str):
                    raise ValueError(f"gold[{index}][{place}]: expected a label, got {label!r:.60}")
        self.classes = sorted({label for labels in self._gold for label in labels})

    def check(self, sentences: Sequence[Any]) -> None:
        """ValueError unless every sentence has as many labels as tokens."""
        if len(self._gold) != len(sentences):
            raise ValueError(
                f"gold: expected labels of {len(sentences)} sentences, got those of "
                f"{len(self._gold)}"
            )
        for index, (sentence, labels) in enumerate(zip(sentences, self._gold)):
            if isinstance(sentence, Sized) and len(sentence) != len(labels):
                raise ValueError(
                    f"gold[{index}]: expected {len(sentence)} labels, got {len(labels)}"
                )

    def __call__(self, query: Query) -> list[str]:
        """Of the tokens that are asked for, and no others."""
        return self._gold[query.sentence][query.start : query.stop]


def run_simulation(
    learner: ActiveLearner,
    X: Iterable[Any],
    gold: Any,
    dev: Any,
    watch: Watch | None,
    folder: Any,
) -> list[dict[str, Any]]:
    """Rounds until it is time to stop; see `ActiveLearner.simulate`."""
    sentences = list(X)
    source, dev = _source(gold, sentences), _checked(dev)
    learner.begin(sentences, classes=source.classes, folder=folder)
    score = _scorer(learner, dev)
    records: list[dict[str, Any]] = []
    most = 50 if learner.max_rounds is None else learner.max_rounds + 1  # a guess, for the bar
    with progress_bar("active learning", most, learner.progress, "labelled share") as tick:
        while not records or not records[-1]["stop"]:
            clock = time.perf_counter()
            learner.answer(_answers(learner.propose(), source))
            asking = time.perf_counter() - clock
            learner.train()
            records.append(_record(learner, score, asking))
            if records[-1]["stop"] and learner.check_warm_start and learner.recheck():
                records[-1] = _record(learner, score, asking)
            if watch is not None:
                watch(records[-1])
            tick(len(records), records[-1]["labelled_share"])
    return records


def _source(gold: Any, sentences: list[Any]) -> Any:
    """What answers queries: the caller's function, or the labels of all sentences."""
    if callable(gold):
        if not hasattr(gold, "classes"):
            raise ValueError("gold: expected a function with an attribute `classes`, got none")
        return gold
    source = GoldLabels(_labellings("gold", gold))
    source.check(sentences)
    return source


def _labellings(name: str, y: Any) -> list[Any]:
    if not isinstance(y, Iterable) or isinstance(y, str):
        raise ValueError(f"{name}: expected the labels of every sentence, got {y!r:.60}")
    listed = list(y)
    for index, labels in enumerate(listed):
        if not isinstance(labels, Iterable) or isinstance(labels, str):
            raise ValueError(f"{name}[{index}]: expected a list of labels, got {labels!r:.60}")
    return listed


def _checked(dev: Any) -> tuple[list[Any], list[list[str]]] | None:
    """Sentences with as many labellings."""
    if dev is None:
        return None
    try:
        X, y = dev
        X = list(X)
    except (TypeError, ValueError):
        raise ValueError(f"dev: expected (sentences, labels), got {dev!r:.60}") from None
    y = [list(labels) for labels in _labellings("dev", y)]
    if len(X) != len(y):
        raise ValueError(f"dev: expected labels of {len(X)} sentences, got those of {len(y)}")
    return X, y


def _answers(queries: list[Query], source: Callable[[Query], Sequence[Any]]) -> list[Answer]:
    answers = []
    for query in queries:
        labels = list(source(query))
        if len(labels) != query.stop - query.start:
            raise ValueError(
                f"gold: expected {query.stop - query.start} labels for {query}, got {len(labels)}"
            )
        answers += [
            Answer(query.sentence, query.start + t, label) for t, label in enumerate(labels)
        ]
    return answers


def _record(
    learner: ActiveLearner, score: Callable[[], dict[str, float]], asking: float
) -> dict[str, Any]:
    """A round for the record: status, training, and scores on held-out sentences."""
    trained, clock = learner.history_[-1], time.perf_counter()
    scores = score()
    seconds = {**trained["seconds"], "asking": asking, "scoring": time.perf_counter() - clock}
    return {**trained, **learner.status().as_dict(), **scores, "seconds": seconds}


def _scorer(learner: ActiveLearner, dev: Any) -> Callable[[], dict[str, float]]:
    """Span F1 and token accuracy of the last tagger; the features are extracted once."""
    if dev is None:
        return dict
    X, gold = dev
    pool = learner._begun().pool
    features = pool.extractor.transform(X)

    def score() -> dict[str, float]:
        best = best_labels(learner.tagger_.model_, features)
        names = ["" if k < 0 else pool.classes[k] for k in best.tolist()]
        scores = span_scores(gold, split_by_sentence(names, features.lengths))
        return {"dev_f1": scores.overall.f1, "dev_accuracy": scores.accuracy}

    return score
