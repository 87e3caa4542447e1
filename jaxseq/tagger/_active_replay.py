"""The state of active learning, and how it is rebuilt from settings and journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from jaxseq.learn.active import (
    Answer,
    Groups,
    Look,
    Proposal,
    Query,
    Sequences,
    Spans,
    Strategy,
    Tokens,
)
from jaxseq.tagger._active_folder import StateFolder
from jaxseq.tagger._active_known import KnownLabels
from jaxseq.tagger._active_pool import Pool
from jaxseq.tagger._store import _settings as tagger_settings
from jaxseq.tagger._tagger import CRFTagger
from jaxseq.text import Templates

STRATEGIES: dict[str, type[Strategy]] = {
    "tokens": Tokens,
    "groups": Groups,
    "spans": Spans,
    "sequences": Sequences,
}
PLAIN = ("initial", "initial_how", "kappa", "max_rounds", "budget", "seed", "check_warm_start")
LATER = ("between",)
"""Settings that folders from before they were there do not have: None."""


@dataclass(eq=False)
class Run:
    """Everything that changes from step to step.

    round: trainings done. queries: of this round; None before they are proposed. look: of the
    last model; None where it has to be taken (anew). has_news: whether a label was given, changed
    or taken back since the last training. answered: sentence and position of the tokens that were
    answered since then, the last one last.
    """

    pool: Pool
    known: KnownLabels
    folder: StateFolder | None = None
    round: int = 0
    queries: list[Query] | None = None
    tagger: CRFTagger | None = None
    look: Look | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    has_news: bool = False
    answered: dict[tuple[int, int], None] = field(default_factory=dict)

    def note(self, tokens: Iterable[tuple[int, int]], *, answered: bool) -> None:
        """That tokens were answered, or that their answers were taken back."""
        for token in tokens:
            self.answered.pop(token, None)
            if answered:
                self.answered[token] = None

    def end_round(self, number: int) -> None:
        """That the model of a round was trained."""
        self.round, self.queries, self.has_news = number + 1, None, False
        self.answered.clear()

    def take(self, proposal: Proposal) -> None:
        """The queries of a round, and the labels that the model gives itself."""
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

    def write(self, lines: list[dict[str, Any]]) -> None:
        """Add to the journal, if there is one."""
        if self.folder is not None and lines:
            self.folder.append(lines)


# ---------------------------------------------------------------------------------- settings


def learner_settings(learner: Any, pool: Pool) -> dict[str, Any]:
    """What `settings.json` holds."""
    strategy = learner.strategy
    kind = next(name for name, of in STRATEGIES.items() if isinstance(strategy, of))
    plain = {name: getattr(learner, name) for name in (*PLAIN, *LATER)}
    return {
        "estimator": tagger_settings(learner.estimator),
        "strategy": {"kind": kind, **asdict(strategy)},
        **{name: getattr(value, "item", lambda v=value: v)() for name, value in plain.items()},
        "classes": pool.classes,
        "sentences": len(pool.lengths),
        "tokens": int(pool.lengths.sum()),
        "pool": pool.digest(),
    }


def settings_from(found: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the learner; ValueError where they are not sound."""
    try:
        tagger = dict(found["estimator"])
        if tagger["templates"] is not None:
            tagger["templates"] = Templates.from_json(tagger["templates"])
        strategy = dict(found["strategy"])
        chosen = STRATEGIES[strategy.pop("kind")](**strategy)
        plain = {name: found[name] for name in PLAIN}
        plain |= {name: found.get(name) for name in LATER}
        return {"estimator": CRFTagger(**tagger), "strategy": chosen, **plain}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"settings: expected those of active learning, got {error!r}") from error


# ----------------------------------------------------------------------------------- journal


def given_lines(y: Sequence[Any]) -> list[dict[str, Any]]:
    """A line for every sentence of which something is known from the start."""

    def plain(label: Any) -> Any:
        return label if label is None or isinstance(label, str) else sorted(label)

    return [
        {"kind": "given", "sentence": sentence, "labels": [plain(label) for label in labels]}
        for sentence, labels in enumerate(y)
        if labels is not None and any(label is not None for label in labels)
    ]


def proposal_lines(number: int, proposal: Proposal) -> list[dict[str, Any]]:
    """A line for every query, and one that ends them."""
    queries = [{"kind": "query", "round": number, **q._asdict()} for q in proposal.queries]
    end = {
        "kind": "proposed",
        "round": number,
        "queries": len(queries),
        "guesses": proposal.guesses.tolist(),
        "labels": proposal.labels.tolist(),
        "sampled": proposal.sampled.tolist(),
    }
    return [*queries, end]


def answer_lines(number: int, answers: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """One line for sentences, positions and labels that came at once, None to take one back."""
    rows = [list(answer) for answer in answers]
    return [{"kind": "answers", "round": number, "answers": rows}] if rows else []


def replay(run: Run, lines: list[dict[str, Any]], add_labels: Callable[[Any], None]) -> None:
    """Do again what the journal says; ValueError where that is not possible.

    Args:
        run: as it began. lines: of the journal. add_labels: gives the run more labels.
    """
    try:
        _replay(run, lines, add_labels)
    except (KeyError, TypeError, IndexError, OverflowError) as error:
        raise ValueError(f"journal: expected the lines of this run, got {error!r}") from error


def _replay(run: Run, lines: list[dict[str, Any]], add_labels: Callable[[Any], None]) -> None:
    given = {line["sentence"]: line["labels"] for line in lines if line["kind"] == "given"}
    if given:
        known = [given.get(sentence) for sentence in range(len(run.pool.lengths))]
        run.known.given([None if labels is None else _sets(labels) for labels in known])
        run.has_news = True
    queries: list[Query] = []
    last: dict[tuple[Any, Any], Any] = {}
    for line in lines:
        kind = line["kind"]
        if kind == "query":
            queries.append(Query(*(line[name] for name in Query._fields)))
        elif kind == "proposed":
            # Queries that were cut off before their end are not asked: another proposal follows.
            of_round = queries[len(queries) - line["queries"] :]
            numbers = (np.array(line[n], np.int64) for n in ("guesses", "labels", "sampled"))
            run.take(Proposal(of_round, *numbers))
            queries = []
        elif kind in ("answer", "answers"):
            single = [[line[name] for name in Answer._fields]] if kind == "answer" else None
            said = {(s, t): _plain(label) for s, t, label in single or line["answers"]}
            run.has_news |= any(_is_news(run.known, last, *one) for one in said.items())
            last |= said
            for token, label in said.items():
                run.note([token], answered=label is not None)
        elif kind == "labels":
            add_labels(line["labels"])
        elif kind == "trained":
            run.end_round(line["round"])
            queries = []
            record = {n: v for n, v in line.items() if n not in ("kind", "model")}
            run.history.append({"short": False, **record})  # as all were before it was noted
    _take_last(run.known, last)
    _load_model(run, lines)


def _is_news(known: KnownLabels, last: dict[Any, Any], token: Any, label: Any) -> bool:
    """Whether an answer differs from the last one to the token, or from what was given of it."""
    (plain,) = known.check_places([token])
    before = last[token] if token in last else known.label_of(*plain)
    return before != label


def _take_last(known: KnownLabels, last: dict[tuple[Any, Any], Any]) -> None:
    """Only the last word on a token counts: a retraction, or an answer."""
    known.retract(known.check_places(token for token, label in last.items() if label is None))
    answers = [Answer(*token, label) for token, label in last.items() if label is not None]
    known.answer(known.check(answers))


def _plain(label: Any) -> Any:
    return tuple(label) if isinstance(label, list) else label


def _sets(labels: list[Any]) -> list[Any]:
    return [set(label) if isinstance(label, list) else label for label in labels]


def _load_model(run: Run, lines: list[dict[str, Any]]) -> None:
    named = [line["model"] for line in lines if line["kind"] == "trained"]
    assert run.folder is not None
    run.folder.drop_litter()
    if not named:
        run.folder.drop_unfinished()
        return
    run.tagger = run.folder.model(named[-1])
    if not set(run.tagger.classes_) <= set(run.pool.classes):
        raise ValueError("model: expected one with the labels of the settings, got another")
