"""Active learning against labels that are known to a source, which hands out what is asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import TYPE_CHECKING, Any, cast

from jaxseq._runtime import progress_bar
from jaxseq.active._query import Answer, Query
from jaxseq.crf import best_labels
from jaxseq.metrics import span_scores
from jaxseq.taggers import split_by_sentence

if TYPE_CHECKING:
    from jaxseq.active._learner import ActiveLearner

Watch = Callable[[dict[str, Any]], Any]


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
    (source, classes), dev = _source(gold, sentences), _checked(dev)
    learner.begin(sentences, classes=classes, folder=folder)
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
            # A warm start may end in a worse optimum: the last model is compared with another.
            if records[-1]["stop"] and learner.check_warm_start and learner.recheck():
                records[-1] = _record(learner, score, asking)
            if watch is not None:
                watch(records[-1])
            tick(len(records), records[-1]["labelled_share"])
    return records


def _source(gold: Any, sentences: list[Any]) -> tuple[Callable[[Query], Sequence[str]], list[str]]:
    """What answers queries, the caller's function or all labels, and the labels there are."""
    if callable(gold):
        if not hasattr(gold, "classes"):
            raise ValueError("gold: expected a function with an attribute `classes`, got none")
        return cast(Callable[[Query], Sequence[str]], gold), cast(Any, gold).classes
    y = _labellings("gold", gold, sentences)
    for index, (sentence, labels) in enumerate(zip(sentences, y)):
        for place, label in enumerate(labels):
            if not isinstance(label, str):
                raise ValueError(f"gold[{index}][{place}]: expected a label, got {label!r:.60}")
        if isinstance(sentence, Sized) and len(sentence) != len(labels):
            raise ValueError(f"gold[{index}]: expected {len(sentence)} labels, got {len(labels)}")
    # Only the tokens that are asked for are ever looked at.
    return lambda query: y[query.sentence][query.start : query.stop], sorted(set().union(*y))


def _checked(dev: Any) -> tuple[list[Any], list[list[str]]] | None:
    """Sentences with as many labellings."""
    if dev is None:
        return None
    try:
        X, y = dev
        X = list(X)
    except (TypeError, ValueError):
        raise ValueError(f"dev: expected (sentences, labels), got {dev!r:.60}") from None
    return X, _labellings("dev", y, X)


def _labellings(name: str, y: Any, sentences: list[Any]) -> list[list[Any]]:
    """As many lists of labels as sentences; ValueError otherwise."""
    if not isinstance(y, Iterable) or isinstance(y, str):
        raise ValueError(f"{name}: expected the labels of every sentence, got {y!r:.60}")
    listed = list(y)
    for index, labels in enumerate(listed):
        if not isinstance(labels, Iterable) or isinstance(labels, str):
            raise ValueError(f"{name}[{index}]: expected a list of labels, got {labels!r:.60}")
    if len(listed) != len(sentences):
        raise ValueError(
            f"{name}: expected labels of {len(sentences)} sentences, got those of {len(listed)}"
        )
    return [list(labels) for labels in listed]


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
    """The record of a round: status, training, and scores on held-out sentences."""
    trained, clock = learner.history_[-1], time.perf_counter()
    scores = score()
    seconds = {**trained["seconds"], "asking": asking, "scoring": time.perf_counter() - clock}
    return {**trained, **learner.status().as_dict(), **scores, "seconds": seconds}


def _scorer(learner: ActiveLearner, dev: Any) -> Callable[[], dict[str, float]]:
    """Span F1 and token accuracy of the last tagger."""
    if dev is None:
        return dict
    X, gold = dev
    pool = learner._begun().pool
    features = pool.extractor.transform(X)  # once for all rounds

    def score() -> dict[str, float]:
        best = best_labels(learner.tagger_.model_, features)
        # A sentence without a legal labelling has the label −1, which counts as wrong.
        names = ["" if k < 0 else pool.classes[k] for k in best.tolist()]
        scores = span_scores(gold, split_by_sentence(names, features.lengths))
        return {"dev_f1": scores.overall.f1, "dev_accuracy": scores.accuracy}

    return score
