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
from jaxseq.learn.active import Answer

ROUNDS, STATE = "rounds.jsonl", "learner"
KEPT = (
    "round", "labelled_tokens", "labelled_sentences", "guessed_tokens", "informative", "kappa",
    "objective", "start", "iterations", "evaluations", "stop", "why",
)  # fmt: skip
"""What is kept of a round, besides its scores and times."""

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
    """

    learner: jaxseq.ActiveLearner
    pool: Part
    score: Score
    folder: Path | None = None

    def run(
        self, watch: Callable[[Round, jaxseq.ActiveLearner], None] | None = None
    ) -> list[Round]:
        """Rounds to the learner's own stop, a record of each.

        Args:
            watch: called with every record and the learner as it is then.

        Returns:
            The records; ``seconds`` of a round are those of its steps, scoring left out.
        """
        clock = time.perf_counter()
        learner, rounds = self._begin()
        reading = time.perf_counter() - clock
        while not rounds or not rounds[-1]["stop"]:
            seconds = {"reading": 0.0 if rounds else reading}
            if learner.status().round == len(rounds):  # else it was trained and not yet recorded
                seconds |= self._ask_and_train(learner)
            clock = time.perf_counter()
            wanted = learner.status().stop and learner.check_warm_start
            replaced = wanted and learner.recheck()
            seconds["rechecking"] = time.perf_counter() - clock
            rounds.append(self._record(learner, seconds, replaced))
            self._keep(rounds)
            if watch is not None:
                watch(rounds[-1], learner)
        return rounds

    def _begin(self) -> tuple[jaxseq.ActiveLearner, list[Round]]:
        classes = sorted({label for labels in self.pool.labels for label in labels})
        if self.folder is None:
            return self.learner.begin(self.pool.sentences, classes=classes), []
        state = self.folder / STATE
        if (state / "settings.json").is_file():
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
        stages, took = learner.history_[-1]["seconds"], time.perf_counter() - clocks[-1]
        compiling = stages.get("first evaluation, compiling", 0.0)
        return {
            "proposing": proposing,
            "answering": answering,
            "first evaluation, compiling": compiling,
            "training": stages["training"] - compiling,
            "looking": stages["look"],
            "keeping": took - stages["training"] - stages["look"],
        }

    def _record(
        self, learner: jaxseq.ActiveLearner, seconds: dict[str, float], replaced: bool
    ) -> Round:
        told = {**learner.history_[-1], **learner.status().as_dict()}
        seconds = {**seconds, "all": sum(seconds.values())}
        return {
            **{name: told[name] for name in KEPT},
            "replaced": replaced,
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
