"""Active learning on chunking: minutes to its own stop, its F1 against all labels, and spans."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jaxseq
from experiments._config import read_config
from experiments._figures import draw
from experiments._files import write_whole
from experiments.bench._report import Report
from experiments.data import Data, choose_sources
from experiments.wanvarie2011 import run as paper
from experiments.wanvarie2011._drawings import SPANS, draw_figures
from experiments.wanvarie2011._loop import Loop, Round
from experiments.wanvarie2011._rows import Row, row_named
from experiments.wanvarie2011._summary import Curve, Gap, at_share, gap, is_worse
from experiments.wanvarie2011._task import CORPUS, TITLES, Judge, Task
from jaxseq.metrics import span_scores

OVERNIGHT = "JAXSEQ_OVERNIGHT"
"""Variable that is set to measure on CoNLL-2003 too."""
MINUTES_BAR = {"np": 15.0, "conll2000": 60.0, "conll2003": None}
SHARE = {"np": 4.73, "conll2000": 6.98, "conll2003": 7.01}
"""Labelled tokens of the paper's Proposed δ = .90, percent."""
P_BAR = 0.05
PUBLISHED = "Proposed δ=.90"
DRAWN = {
    "np": "Groups δ=.90 q=100 each=1 initial=10 start=random between=20 l2=.3",
    "conll2000": "Groups δ=.90 q=100 each=1 initial=10 start=random between=20 l2=.1",
    "conll2003": "Groups δ=.90 q=100 each=1 initial=10 start=random between=20 l2=1 last=.1",
}
"""Ours, beside the paper's rule: tokens by the errors expected among those like them, few a round,
from fewer initial sentences. All trainings but the last are short, as there are many rounds. Models
of a larger l2 are less sure, so that more is below δ: the l2 are those whose tokens below δ = .90
last for about the paper's share of labels, which no test sentence tells. They and the l2 of the
last tagger were chosen on held-out training sentences and, for CoNLL-2003, on its development part
(``config.toml`` of wanvarie2011)."""
RUNS = 5
"""Rows of `DRAWN` are run from as many random starts. One run says little: those that differ in the
last bit differ by some 35 tokens of a test part, as many as make p = .05 of .5. Their median does
not depend on the luck of one, and their number and seeds were fixed before the first of them."""
CALLED = {
    PUBLISHED: "published rule, δ = .90",
    **dict.fromkeys(DRAWN.values(), "groups of tokens from random starts, δ = .90"),
}
OTHER_L2 = 1.0
"""Of a second Sup that rows are compared with."""
SHARES_SHOWN = (2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
EARLY = 6
"""A round, besides the last one, at which a warm start is compared with one from zeros."""
WORSE = 1e-3


def run(report: Report, out: Path) -> None:
    """All figures of ``python -m experiments bench active``."""
    folder = os.environ.get("JAXSEQ_DATA")
    tasks = ["np", "conll2000", *(["conll2003"] if os.environ.get(OVERNIGHT) else [])]
    config, _ = read_config(Path(paper.__file__).with_name("config.toml"), "default", paper.Config)
    for name in tasks:
        if not folder or not (Path(folder) / CORPUS[name]).is_dir():
            report.figure(
                f"minutes to its own stop, {TITLES[name]}, {CALLED[PUBLISHED]}",
                None,
                at_most=MINUTES_BAR[name],
                needs=f"{CORPUS[name]}, by JAXSEQ_DATA",
            )
            continue
        data = Data(choose_sources([CORPUS[name]], Path(folder), may_stand_in=False))
        bench = Bench(report, config, name, data)
        rounds = bench.tokens()
        bench.drawn(DRAWN[name])
        if name == "np":
            bench.early_start()
            bench.spans(rounds, out)


class Bench:
    """The figures of one task.

    Args:
        report: to print them. config: the paper's default settings. name: of the task. data: with
            its sentences.
    """

    def __init__(self, report: Report, config: Any, name: str, data: Data):
        self._report, self._config, self._name, self._data = report, config, name, data
        self._task = paper.make_task(config, name, data)
        other = replace(self._task, l2=OTHER_L2).supervised()
        self._other = other.predict(self._task.test.sentences)
        self._other_f1 = 100 * span_scores(self._task.test.labels, self._other).overall.f1

    def tokens(self) -> list[Round]:
        """The published rule to its own stop."""
        row = PUBLISHED
        cold: list[Mapping[str, Any]] = []

        def watch(one: Round, learner: jaxseq.ActiveLearner) -> None:
            if one["stop"]:
                cold.append(learner.train(start="cold").history_[-1])

        rounds = self._loop(row).run(watch)
        last = rounds[-1]
        self._report.figure(
            f"minutes to its own stop, {self._title(row)}",
            sum(one["seconds"]["all"] for one in rounds) / 60,
            at_most=MINUTES_BAR[self._name],
            **self._about(row),
            rounds=len(rounds) - 1,
            **self._scores(row, last),
            why=last["why"],
            minutes_of_sup=self._sup(row)["seconds"] / 60,
        )
        self._stages(row, rounds)
        self._against_sup(row, rounds)
        self._starts(row, "the last round", last, cold[0])
        return rounds

    def drawn(self, row: str, runs: int = RUNS) -> list[list[Round]]:
        """A row of ours from several random starts, up to the paper's share: its median run has
        the bar."""
        percent, tokens = SHARE[self._name], self._task.pool.tokens
        every: list[list[Round]] = []
        reached: list[Mapping[str, Any]] = []
        for seed in range(runs):
            rounds = self._loop(f"{row} most={percent}", seed=seed).run()
            every.append(rounds)
            scored = at_share({"tokens": tokens, "rounds": rounds}, percent)
            scores = {}
            if scored is not None:
                reached.append(scored)
                scores = {n: scored[n] for n in ("only_sup", "only_ours")}
                scores |= self._scores(row, scored)
            self._report.figure(
                f"McNemar's p against Sup, {self._title(row)}, seed {seed}",
                None if scored is None else not_below(scored),
                **self._about(row),
                **scores,
                minutes=round(sum(one["seconds"]["all"] for one in rounds) / 60, 2),
                why=rounds[-1]["why"],
            )
        where = f"{self._title(row)}, at most {percent:g} % labelled, median of {runs} runs"
        complete = len(reached) == runs
        self._report.figure(
            f"McNemar's p against Sup, {where}",
            statistics.median(map(not_below, reached)) if complete else None,
            at_least=P_BAR,
            **self._about(row),
            f1_of_sup=round(self._sup(row)["f1"], 2),
            f1=[round(one["f1"], 2) for one in reached],
            runs_not_below=sum(not_below(one) > P_BAR for one in reached),
        )
        self._report.figure(
            f"McNemar's p against Sup of l2 = {OTHER_L2:g}, {where}",
            statistics.median(not_below(one["other_sup"]) for one in reached) if complete else None,
            **self._about(row),
            f1_of_other_sup=round(self._other_f1, 2),
            runs_not_below=sum(not_below(one["other_sup"]) > P_BAR for one in reached),
        )
        return every

    def early_start(self) -> None:
        """A warm start against one from zeros where most is still to be learnt."""
        row = self._row(PUBLISHED)
        learner = paper.make_learner(self._config, row, self._task, most_rounds=EARLY)
        learner.check_warm_start = False
        last = Loop(learner, self._task.pool, lambda tagger: {}).run()[-1]
        cold = learner.train(start="cold").history_[-1]
        self._starts(PUBLISHED, f"round {last['round'] - 1}", last, cold)

    def spans(self, by_token: Sequence[Round], out: Path) -> None:
        """Queries of spans for as many rounds, and both curves; neither has a limit a sentence."""
        by_span = self._loop(SPANS[1], most_rounds=len(by_token) - 1).run()
        results = {
            row: [{"tokens": self._task.pool.tokens, "rounds": rounds}]
            for row, rounds in zip(SPANS, (by_token, by_span))
        }
        tokens, spans = (results[row][0] for row in SPANS)
        ahead = gap(Curve.of(spans), Curve.of(tokens))
        self._report.figure(
            "F1 of queries of spans less that of tokens, mean at equal labelled tokens",
            None if ahead is None else ahead.mean,
            **self._about(SPANS[1]),
            width=self._config.span_width,
            **(Gap._asdict(ahead) if ahead else {}),
        )
        for percent in SHARES_SHOWN:
            by_token_then, by_span_then = at_share(tokens, percent), at_share(spans, percent)
            if by_token_then and by_span_then and percent <= self._reached(by_token, by_span):
                self._report.figure(
                    f"the same at {percent:g} % of the tokens",
                    by_span_then["f1"] - by_token_then["f1"],
                    **self._about(SPANS[1]),
                    by_token=self._scores(SPANS[0], by_token_then),
                    by_span=self._scores(SPANS[1], by_span_then),
                )
        figure = next(f for f in draw_figures(self._name, results, {}) if "spans" in f.name)
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / "active_spans.png", draw(figure, "light", "png"))

    def _reached(self, *runs: Sequence[Round]) -> float:
        """Percent of the tokens that all runs have come to."""
        return 100 * min(one[-1]["labelled_tokens"] for one in runs) / self._task.pool.tokens

    # ------------------------------------------------------------------------------- figures

    def _row(self, name: str) -> Row:
        return row_named(name, self._config.usual)

    def _make_task(self, row: str) -> Task:
        """The task with the row's l2, one object for all that have the same."""
        return paper.make_task(self._config, self._name, self._data, self._row(row).l2)

    def _sup_task(self, row: str) -> Task:
        """The task with the l2 of the Sup that the row is compared with."""
        return paper.make_task(self._config, self._name, self._data, self._row(row).sup_l2)

    def _sup(self, row: str) -> dict[str, Any]:
        return paper.train_sup(self._sup_task(row))[1]

    def _about(self, row: str) -> dict[str, Any]:
        task, asked = self._make_task(row), self._row(row)
        about = {"task": TITLES[self._name], "tokens": task.pool.tokens, "l2": task.l2}
        about |= {} if asked.last_l2 is None else {"l2_of_last": asked.last_l2}
        return {**about, "δ": asked.threshold, "q": asked.query_size}

    def _title(self, row: str) -> str:
        return f"{TITLES[self._name]}, {CALLED[row]}"

    def _loop(self, name: str, most_rounds: int | None = None, seed: int = 0) -> Loop:
        task, row = self._make_task(name), self._row(name)
        judge = Judge(task, paper.train_sup(self._sup_task(name))[0], self._other)
        learner = paper.make_learner(self._config, row, task, seed, most_rounds)
        return Loop(learner, task.pool, judge, last_l2=row.last_l2)

    def _scores(self, row: str, one: Mapping[str, Any]) -> dict[str, Any]:
        percent = 100 * one["labelled_tokens"] / self._task.pool.tokens
        return {
            "labelled_percent": round(percent, 2),
            "f1": round(one["f1"], 2),
            "f1_of_sup": round(self._sup(row)["f1"], 2),
        }

    def _stages(self, row: str, rounds: Sequence[Round]) -> None:
        later = [one["seconds"] for one in rounds[1:]] or [rounds[0]["seconds"]]
        for stage in dict.fromkeys(name for one in rounds for name in one["seconds"]):
            self._report.figure(
                f"seconds a round, {self._title(row)}: {stage}",
                sum(one.get(stage, 0.0) for one in later) / len(later),
                l2=self._make_task(row).l2,
                rounds=len(later),
                first_round=rounds[0]["seconds"].get(stage, 0.0),
            )

    def _against_sup(self, row: str, rounds: Sequence[Round]) -> None:
        """At the paper's share of labels, without a bar: that is for rows of ours, as this one is
        below Sup there whatever its l2 (``config.toml`` of wanvarie2011)."""
        percent = SHARE[self._name]
        scored = at_share({"tokens": self._task.pool.tokens, "rounds": rounds}, percent)
        where = f"{self._title(row)}, at most {percent:g} % labelled"
        scores = {} if scored is None else {"round": scored["round"], **self._scores(row, scored)}
        counts = ("only_sup", "only_ours")
        self._report.figure(
            f"McNemar's p against Sup, {where}",
            None if scored is None else not_below(scored),
            **self._about(row),
            **scores,
            **({} if scored is None else {n: scored[n] for n in counts}),
        )
        other = {} if scored is None else scored["other_sup"]
        self._report.figure(
            f"McNemar's p against Sup of l2 = {OTHER_L2:g}, {where}",
            None if scored is None else not_below(other),
            **self._about(row),
            **scores,
            f1_of_other_sup=round(self._other_f1, 2),
            **{name: other[name] for name in counts if name in other},
        )

    def _starts(self, row: str, when: str, one: Mapping[str, Any], cold: Mapping[str, Any]) -> None:
        """The warm start as it ended, whether it was replaced then or not, against zeros."""
        warm = one["before_recheck"]
        about = {
            "l2": self._make_task(row).l2,
            "round": one["round"] - 1,
            "start": warm["start"],
            "replaced": one["replaced"],
            "iterations": [warm["iterations"], cold["iterations"]],
            "objectives": [warm["objective"], cold["objective"]],
        }
        self._report.figure(
            f"iterations, from zeros / warm-started, {self._title(row)}, {when}",
            cold["iterations"] / max(1, warm["iterations"]),
            **about,
        )
        self._report.figure(
            f"objective, warm-started / from zeros − 1, {self._title(row)}, {when}",
            warm["objective"] / cold["objective"] - 1,
            at_most=WORSE,
            **about,
        )


def not_below(scores: Mapping[str, Any]) -> float:
    """McNemar's p where Sup has more tokens right; 1 where it has not.

    Example:
        >>> not_below({"p_value": 0.01, "only_sup": 3, "only_ours": 20})
        1.0
    """
    ahead = scores["only_ours"] >= scores["only_sup"]
    p_value = 1.0 if ahead else float(scores["p_value"])
    assert (p_value < P_BAR) == is_worse(scores)
    return p_value
