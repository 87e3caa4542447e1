"""The state of a run of active learning, and how it is rebuilt from settings and events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from jaxseq.active._journal import RunFolder
from jaxseq.active._labels import KnownLabels, new_label_names, with_labels
from jaxseq.active._pool import Pool
from jaxseq.active._query import STRATEGIES, Answer, Look, Proposal, Query
from jaxseq.crf import CRFTagger
from jaxseq.taggers import legal_by_scheme
from jaxseq.text import Templates

PLAIN = ("initial", "initial_how", "kappa", "max_rounds", "budget", "seed", "check_warm_start",
         "between")  # fmt: skip
"""Settings of a learner that JSON holds as they are."""


@dataclass(eq=False)
class Run:
    """Everything that changes from step to step.

    Args:
        pool: the sentences.
        known: their labels.
        folder: where it is kept; None for nowhere.
        round: trainings done.
        queries: of this round; None before they are proposed.
        tagger: of the last round.
        look: of the last model; None where it has to be taken (anew).
        history: a record of every training.
        has_news: whether a label was given, changed or taken back since the last training.
        answered: sentence and position of the tokens that were answered since then, the last one
            last.
    """

    pool: Pool
    known: KnownLabels
    folder: RunFolder | None = None
    round: int = 0
    queries: list[Query] | None = None
    tagger: CRFTagger | None = None
    look: Look | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    has_news: bool = False
    answered: dict[tuple[int, int], None] = field(default_factory=dict)

    def note(self, tokens: Iterable[tuple[int, int]], *, answered: bool) -> None:
        """Note that tokens were answered, or that their answers were taken back."""
        for token in tokens:
            self.answered.pop(token, None)  # a second answer counts as the last one
            if answered:
                self.answered[token] = None

    def end_round(self, number: int) -> None:
        """Note that the model of a round was trained."""
        self.round, self.queries, self.has_news = number + 1, None, False
        self.answered.clear()

    def take(self, proposal: Proposal) -> None:
        """Take the queries of a round, and the labels that the model gives itself."""
        self.queries = proposal.queries
        self.known.guess(proposal.guesses, proposal.labels)
        self.known.sampled[proposal.sampled] = True
        self.has_news |= len(proposal.guesses) > 0

    def waiting(self) -> list[Query]:
        """Queries of this round with a token that has no answer."""
        starts, answered = np.cumsum(self.pool.lengths) - self.pool.lengths, self.known.answered
        begins = [int(starts[query.sentence]) for query in self.queries or []]
        return [
            query
            for query, begin in zip(self.queries or [], begins)
            if not answered[begin + query.start : begin + query.stop].all()
        ]

    def add_labels(self, names: Any, estimator: CRFTagger) -> None:
        """Allow more labels: what is known of the tokens stays as it is, and the model does too.

        Args:
            names: of the labels.
            estimator: whose scheme the labels have.
        """
        classes = sorted([*self.pool.classes, *new_label_names(names, self.pool.classes)])
        legal = legal_by_scheme(classes, estimator.scheme)
        self.pool = replace(self.pool, classes=classes, legal=legal)
        self.known = self.known.with_classes(classes, legal)
        self.look = None  # its labels are numbers of the old classes
        if self.tagger is not None:
            self.tagger = with_labels(self.tagger, classes)

    def write(self, kind: str, **event: Any) -> None:
        """Add an event to the folder, if there is one."""
        if self.folder is not None:
            self.folder.append([{"kind": kind, "round": self.round, **event}])


def learner_settings(learner: Any, pool: Pool) -> dict[str, Any]:
    """The settings of a learner and its pool, for JSON."""

    def plain(value: Any) -> Any:  # also where it is a number of NumPy
        return value.item() if isinstance(value, np.generic) else value

    name = learner.strategy.name
    if name not in STRATEGIES:  # nobody could go on with it
        raise ValueError(f"strategy: expected a registered one to be kept, got {learner.strategy}")
    strategy = {name: plain(value) for name, value in asdict(learner.strategy).items()}
    return {
        "estimator": learner.estimator.settings_to_json(),
        "strategy": {"kind": name, **strategy},
        **{name: plain(getattr(learner, name)) for name in PLAIN},
        "classes": pool.classes,
        "sentences": len(pool.lengths),
        "tokens": int(pool.lengths.sum()),
        "pool": pool.digest(),
    }


def settings_from_json(kept: dict[str, Any], path: Path) -> dict[str, Any]:
    """The arguments of the learner; ValueError with the path where they are not sound."""
    try:
        tagger, strategy = dict(kept["estimator"]), dict(kept["strategy"])
        if tagger["templates"] is not None:
            tagger["templates"] = Templates.from_json(tagger["templates"])
        chosen = STRATEGIES[strategy.pop("kind")](**strategy)
        plain = {name: kept[name] for name in PLAIN}
        return {"estimator": CRFTagger(**tagger), "strategy": chosen, **plain}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path}: expected settings of active learning, got {error!r:.200}"
        ) from error


def initial_events(y: Sequence[Any]) -> list[dict[str, Any]]:
    """One for every sentence of which something is known from the start."""

    def plain(label: Any) -> Any:
        return label if label is None or isinstance(label, str) else sorted(label)

    return [
        {"kind": "initial", "sentence": sentence, "labels": [plain(label) for label in labels]}
        for sentence, labels in enumerate(y)
        if labels is not None and any(label is not None for label in labels)
    ]


def proposal_as_json(proposal: Proposal) -> dict[str, Any]:
    """The queries, and the labels that the model gives itself."""
    return {
        "queries": [list(query) for query in proposal.queries],
        "guesses": proposal.guesses.tolist(),
        "labels": proposal.labels.tolist(),
        "sampled": proposal.sampled.tolist(),
    }


def read_run(folder: RunFolder, learner: Any, settings: Mapping[str, Any], X: Iterable[Any]) -> Run:
    """The run of a folder: its events done again on its pool.

    Args:
        folder: of the run.
        learner: with its settings.
        settings: as the folder has them.
        X: the sentences of the pool.

    Raises:
        ValueError: for another pool, and for a folder that is not sound.
    """
    pool = Pool.read(learner.estimator, X, None, settings.get("classes"), learner.strategy)
    # Answers are by number of sentence and token: in another pool they would mean other words.
    if pool.digest() != settings.get("pool"):
        raise ValueError(
            f"X: expected the pool of {folder.path} ({settings.get('sentences')} sentences, "
            f"{settings.get('tokens')} tokens), got another ({len(pool.lengths)} sentences, "
            f"{int(pool.lengths.sum())} tokens)"
        )
    run = Run(pool, KnownLabels(pool.lengths, pool.classes, pool.legal), folder)
    try:
        digest = _replay(run, folder.events(), learner.estimator)
    except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
        what = str(error) if isinstance(error, ValueError) else repr(error)
        raise ValueError(f"{folder.path}: expected the events of this run: {what}") from error
    if digest is not None:
        tagger = folder.model(digest)
        if not set(tagger.classes_) <= set(run.pool.classes):
            raise ValueError(f"{folder.path}: expected a model with the labels of the settings")
        run.tagger = with_labels(tagger, run.pool.classes)  # those added since it was trained
    folder.drop_litter()  # after the model, which may be waiting among it
    return run


def _replay(run: Run, events: list[dict[str, Any]], estimator: CRFTagger) -> str | None:
    """Do the events again; the digest of the last model, if there is one."""
    initial = {e["sentence"]: e["labels"] for e in events if e["kind"] == "initial"}
    if initial:
        y = [initial.get(sentence) for sentence in range(len(run.pool.lengths))]
        run.known.take_initial([None if labels is None else _as_sets(labels) for labels in y])
        run.has_news = True
    last: dict[tuple[int, int], Any] = {}
    digest = None
    for event in events:
        kind = event["kind"]
        if kind == "proposed":
            numbers = (np.array(event[n], np.int64) for n in ("guesses", "labels", "sampled"))
            # As it was: another proposal of the same model could differ by rounding.
            run.take(Proposal([Query(*query) for query in event["queries"]], *numbers))
        elif kind == "answers":
            answers = {
                (sentence, position): tuple(label) if isinstance(label, list) else label
                for sentence, position, label in event["answers"]
            }
            run.has_news |= any(_is_news(run.known, last, *one) for one in answers.items())
            last |= answers
            for token, label in answers.items():
                run.note([token], answered=label is not None)
        elif kind == "labels":
            run.add_labels(event["labels"], estimator)
        elif kind == "trained":  # also of a round that was rechecked, which has two
            run.end_round(event["round"])
            digest = event["model"]
            run.history.append({n: v for n, v in event.items() if n not in ("kind", "model")})
        elif kind != "initial":
            raise ValueError(f"journal: expected an event of active learning, got {kind!r:.60}")
    # Only the last word on a token counts, a retraction or an answer. All answers are checked
    # together: half of a correction could be illegal.
    run.known.retract(run.known.check_places(token for token in last if last[token] is None))
    answers = [Answer(*token, label) for token, label in last.items() if label is not None]
    run.known.answer(run.known.check(answers))
    return digest


def _is_news(known: KnownLabels, last: dict[Any, Any], token: Any, label: Any) -> bool:
    """Whether an answer differs from the last one to the token, or from its initial label."""
    (plain,) = known.check_places([token])
    return label != (last[token] if token in last else known.label_at(*plain))


def _as_sets(labels: list[Any]) -> list[Any]:
    return [set(label) if isinstance(label, list) else label for label in labels]
