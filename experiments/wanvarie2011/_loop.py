"""Active learning against gold labels, scored every round, that can go on where it was stopped."""

from __future__ import annotations

import itertools
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jaxseq
from experiments._files import write_whole
from experiments.wanvarie2011._task import Part
from jaxseq.active import Answer, holds_run

ROUNDS, STATE = "rounds.jsonl", "learner"
KEPT = (
    "round", "labelled_tokens", "labelled_sentences", "sampled_sentences", "guessed_tokens",
    "informative", "new_labels", "kappa", "objective", "start", "iterations", "evaluations",
    "short", "stop", "why",
)  # fmt: skip
"""What is kept of a round, besides its scores and times."""
FIRST = ("start", "objective", "iterations")
"""What is kept of its training before that was compared with one from zeros."""

Score = Callable[[jaxseq.CRFTagger], dict[str, Any]]
Round = dict[str, Any]


@dataclass(frozen=True)
class Loop:
    """A run of active learning on labels that are known.

    Args:
        learner: its settings.
        pool: the sentences, and the labels that are handed out as they are asked for.
        score: what to measure of the tagger of every round.
        folder: where to keep what is done, to go on from there; None keeps nothing.
        last_l2: of a last tagger, of all labels that were gathered; None for none.
    """

    learner: jaxseq.ActiveLearner
    pool: Part
    score: Score
    folder: Path | None = None
    last_l2: float | None = None

    def run(
        self, watch: Callable[[Round, jaxseq.ActiveLearner], None] | None = None
    ) -> list[Round]:
        """Rounds to the learner's own stop, a record of each.

        Args:
            watch: called with every record and the learner as it is then, before a last tagger is
                trained.

        Returns:
            The records; ``seconds`` of a round are those of its steps, scoring left out. With a
            last tagger, the scores of the last round are its own, and those of the tagger that
            asked are in ``"asking"`` there.
        """
        clock = time.perf_counter()
        learner, rounds = self._begin()
        reading = time.perf_counter() - clock
        while not rounds or not rounds[-1]["stop"]:
            seconds = {"reading": 0.0 if rounds else reading}
            if learner.status().round == len(rounds):
                seconds |= self._ask_and_train(learner)
            else:  # it was trained, and stopped before it was recorded
                seconds |= _stages(_trainings(learner, len(rounds))[0])
            seconds["rechecking"] = _recheck(learner, len(rounds))
            rounds.append(self._record(learner, seconds, len(rounds)))
            self._keep(rounds)
            if watch is not None:
                watch(rounds[-1], learner)
        if self.last_l2 is not None and "asking" not in rounds[-1]:
            rounds[-1] = self._with_last(rounds[-1], learner, self.last_l2)
            self._keep(rounds)
        return rounds

    def _with_last(self, one: Round, learner: jaxseq.ActiveLearner, l2: float) -> Round:
        """A record with the scores of a tagger trained on the labels with another l2."""
        clock = time.perf_counter()
        tagger = learner.refit(l2=l2)
        took = round(time.perf_counter() - clock, 4)
        scores, seconds = self.score(tagger), one["seconds"]
        return {
            **one,
            **scores,
            "asking": {name: one[name] for name in scores},
            "seconds": {**seconds, "last training": took, "all": round(seconds["all"] + took, 4)},
        }

    def _begin(self) -> tuple[jaxseq.ActiveLearner, list[Round]]:
        classes = sorted({label for labels in self.pool.labels for label in labels})
        if self.folder is None:
            return self.learner.begin(self.pool.sentences, classes=classes), []
        state = self.folder / STATE
        if holds_run(state):
            learner = jaxseq.ActiveLearner.resume(state, self.pool.sentences)
            return learner, self._kept()[: learner.status().round]
        shutil.rmtree(self.folder, ignore_errors=True)
        learner = self.learner.begin(self.pool.sentences, classes=classes, folder=state)
        return learner, []

    def _ask_and_train(self, learner: jaxseq.ActiveLearner) -> dict[str, float]:
        """A round; the seconds of its steps."""
        gold, clocks = self.pool.labels, [time.perf_counter()]
        queries = learner.propose()
        clocks.append(time.perf_counter())
        learner.answer(
            Answer(query.sentence, position, gold[query.sentence][position])
            for query in queries
            for position in range(query.start, query.stop)
        )
        clocks.append(time.perf_counter())
        learner.train()
        proposing, answering = (b - a for a, b in itertools.pairwise(clocks))
        stages, took = _stages(learner.history_[-1]), time.perf_counter() - clocks[-1]
        keeping = took - sum(stages.values())
        return {"proposing": proposing, "answering": answering, **stages, "keeping": keeping}

    def _record(
        self, learner: jaxseq.ActiveLearner, seconds: dict[str, float], number: int
    ) -> Round:
        last = {**learner.history_[-1], **learner.status().as_dict()}
        trainings = _trainings(learner, number)
        seconds = {**seconds, "all": sum(seconds.values())}
        return {
            **{name: last[name] for name in KEPT},
            "before_recheck": {name: trainings[0][name] for name in FIRST},
            "replaced": len(trainings) > 1,
            **self.score(learner.tagger_),
            "seconds": {name: round(value, 4) for name, value in seconds.items()},
        }

    def _keep(self, rounds: list[Round]) -> None:
        if self.folder is not None:
            write_whole(self.folder / ROUNDS, "".join(f"{json.dumps(one)}\n" for one in rounds))

    def _kept(self) -> list[Round]:
        assert self.folder is not None
        file = self.folder / ROUNDS
        lines = file.read_text("utf-8").splitlines() if file.is_file() else []
        return [json.loads(line) for line in lines]


def _trainings(learner: jaxseq.ActiveLearner, number: int) -> list[dict[str, Any]]:
    """Those of a round: one, and another that has replaced it, if it was worse than that."""
    return [one for one in learner.history_ if one["round"] == number]


def _recheck(learner: jaxseq.ActiveLearner, number: int) -> float:
    """Compare the last model with one from zeros before stopping; the seconds that this took."""
    trainings = _trainings(learner, number)
    if len(trainings) > 1:  # done, and stopped before it was recorded
        return trainings[-1]["seconds"]["all"]
    clock = time.perf_counter()
    if learner.check_warm_start and learner.status().stop:
        learner.recheck()
    return time.perf_counter() - clock


def _stages(training: dict[str, Any]) -> dict[str, float]:
    """The seconds of a training, compiling apart, and of the look at the pool after it."""
    stages = training["seconds"]
    compiling = stages.get("first evaluation, compiling", 0.0)
    return {
        "first evaluation, compiling": compiling,
        "training": stages["training"] - compiling,
        "looking": stages["look"],
    }
