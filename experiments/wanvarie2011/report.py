"""Wanvarie, Takamura & Okumura 2011: results → Markdown and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments import Figure, Section, markdown_table, mean_and_spread
from experiments.wanvarie2011._drawings import SPANS, Rows, draw_figures
from experiments.wanvarie2011._summary import (
    Result,
    at_share,
    by_row,
    first_not_worse,
    is_worse,
    mean_gap,
    mean_result,
    share,
    task_names,
)
from experiments.wanvarie2011._task import TITLES

NONE = "–"
TABLES = {"np": "Tables 4 and 5", "conll2000": "Table 6", "conll2003": "Table 6"}
CLEAR = 0.05
"""F1, in points, below which the mean gap of two curves is called none."""


def report(results: list[dict[str, Any]], expected: dict[str, Any], config: Any) -> Section:
    """Tables 4 to 6 and figures 3 to 9 beside ours, rows at equal labels, and spans."""
    texts: list[str] = []
    figures: list[Figure] = []
    for task in task_names(results):
        rows, paper = by_row(results, task), expected[task]
        drawn = draw_figures(task, rows, paper)
        figures += drawn
        texts += [
            _table(task, rows, paper, config),
            _at_equal_labels(rows, paper),
            _when_enough(rows, expected["goals"][task]),
            _spans(rows),
            _trainings(rows),
            *(f"![]({figure.name})\n" for figure in drawn),
        ]
    return Section("\n".join(filter(None, texts)), tuple(figures))


# --------------------------------------------------------------------------------------- tables


def _table(task: str, rows: Rows, paper: Mapping[str, Any], config: Any) -> str:
    cells = []
    for row, results in rows.items():
        published = paper.get(row, {})
        cells.append(
            [
                row,
                _with(
                    mean_and_spread([one["f1"] for one in results], 2), published.get("f1"), ".2f"
                ),
                _worst_p(results),
                _with(_percent(results, "tokens"), published.get("tokens"), ".2f"),
                _with(_percent(results, "sentences", "sampled"), published.get("sequences"), ".2f"),
                _percent(results, "sentences"),
                _with(f"{mean_result(results, 'seconds'):.0f}", published.get("seconds"), ".0f"),
                _ending(row, results),
            ]
        )
    header = ["", "F1", "p", "labelled tokens, %", "sequences sampled, %", "with a label, %"]
    header += ["seconds", "stopped"]
    first = next(iter(rows.values()))[0]
    return (
        f"### {TABLES[task]}: {TITLES[task]}\n\n"
        f"{first['sentences']:,} sentences, {first['tokens']:,} tokens. The paper's numbers in "
        f"brackets. p: McNemar's test on test tokens against Sup; * where significantly fewer are "
        f"right. Sequences are sampled when they are chosen, also where all their tokens are sure. "
        f"δ = {config.threshold:g} and q = {config.query_size} where not said; "
        f"l2 = {config.l2[task]:g} likewise. The paper's seconds are of 4 processors of its time."
        f"{_on_names(rows)}\n\n" + markdown_table(header, cells)
    )


LEGEND = {
    "each=": "Rows with each = 1 ask at most one token of a sentence a round; this limit is ours, "
    "the published rule has none.",
    "forms=": "forms: at most so many tokens of a word form a round, ours too.",
    "Groups": "Groups, ours too, asks for the tokens that stand for the most expected errors among "
    "those of one word between the same parts of speech.",
    "l2=": "l2: of the row and, where nothing else is said, of the Sup that it is compared with.",
    "last=": "last: l2 of one more tagger, trained on the labels when the row has stopped, that is "
    "scored in place of the one that asked in the last round (a star in the figures); and of the "
    "Sup that it is compared with.",
    "most=": "most: percent of the tokens, at which the row ends.",
    "between=": "between: iterations of a training, at most, as long as more is asked; only the "
    "last round is of a model that is trained to the end.",
}
"""What is in the name of a row → what it means, as the paper has none of these."""


def _on_names(rows: Rows) -> str:
    """What the names of rows mean."""
    return "".join(f" {text}" for sign, text in LEGEND.items() if any(sign in row for row in rows))


def _with(ours: str, theirs: float | None, form: str) -> str:
    return ours if theirs is None else f"{ours} ({theirs:{form}})"


def _percent(results: Sequence[Result], of: str, what: str = "labelled") -> str:
    return mean_and_spread([share(one, of, what) for one in results], 2)


def _p(scores: Mapping[str, Any]) -> str:
    p = scores["p_value"]
    text = "< .001" if p < 0.001 else f"{p:.3f}"
    return f"{text}*" if is_worse(scores) else text


def _worst_p(results: Sequence[Result]) -> str:
    return _p(min(results, key=lambda one: (not is_worse(one), one["p_value"])))


def _ending(row: str, results: Sequence[Result]) -> str:
    """After how many rounds, and whether by a limit that is not the row's own."""
    rounds = [one["rounds"] for one in results if "rounds" in one]
    if not rounds:
        return NONE
    if row.startswith("Partial"):
        return "round 1"
    cut_short = any("number of rounds" in one[-1]["why"] for one in rounds)
    counts = sorted({len(one) - 1 for one in rounds})
    text = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"
    return f"round {text}{', by the limit' if cut_short else ''}"


def _at_equal_labels(rows: Rows, paper: Mapping[str, Any]) -> str:
    """Every row where it has as many labels as the paper's, whenever it stopped."""
    cells = []
    for row, results in rows.items():
        published = paper.get(row, {})
        if "rounds" not in results[0] or published.get("tokens", 100) >= 100:
            continue
        reached = _with_tokens(results, [at_share(one, published["tokens"]) for one in results])
        if reached:
            f1 = mean_result(reached, "f1")
            gap_to_sup = f1 - mean_result(rows["Sup"], "f1") if "Sup" in rows else None
            cells.append(
                [
                    row,
                    f"{_percent(reached, 'tokens')} ({published['tokens']:.2f})",
                    f"{mean_and_spread([one['f1'] for one in reached], 2)} ({published['f1']:.2f})",
                    NONE if gap_to_sup is None else f"{gap_to_sup:+.2f}",
                    _worst_p(reached),
                ]
            )
    if not cells:
        return ""
    header = ["", "labelled tokens, %", "F1", "less that of Sup", "p"]
    return (
        "With as many labels as the paper's row, whether it would have stopped there or not: the "
        "last round with no more.\n\n" + markdown_table(header, cells)
    )


def _with_tokens(
    results: Sequence[Result], rounds: Sequence[Mapping[str, Any] | None]
) -> list[Result]:
    """The round of each result, where there is one, and of how many tokens that was."""
    return [
        {**one, "tokens": result["tokens"]}
        for result, one in zip(results, rounds)
        if one is not None
    ]


def _when_enough(rows: Rows, goal: float) -> str:
    """From which share of labels on each row is no worse than Sup; not for rows that are scored by
    another tagger in the end."""
    said = []
    for row, results in rows.items():
        if "rounds" not in results[0] or "asking" in results[0]:
            continue
        reached = _with_tokens(results, [first_not_worse(one) for one in results])
        of = f" in {len(reached)} of {len(results)} runs" if 0 < len(reached) < len(results) else ""
        if reached:
            scores = f"F1 {mean_and_spread([one['f1'] for one in reached], 2)}"
            said.append(
                f"{row} from {_percent(reached, 'tokens')} % of the tokens on ({scores}){of}"
            )
        else:
            said.append(f"{row} never")
    if not said:
        return ""
    return (
        f"Not significantly below Sup in any later round: {'; '.join(said)}. The paper's claim for "
        f"δ = .90: {goal:g} %.\n"
    )


# ---------------------------------------------------------------------------- beyond the tables


def _spans(rows: Rows) -> str:
    """An honest verdict: at equal labelled tokens, F1 of spans less that of tokens."""
    if not all(row in rows for row in SPANS):
        return ""
    by_token, by_span = (rows[row] for row in SPANS)
    gap = mean_gap(list(zip(by_span, by_token)))
    if gap is None:
        return ""
    verdict = "no better and no worse than"
    if abs(gap.mean) >= CLEAR:
        verdict = "better than" if gap.mean > 0 else "worse than"
    return (
        f"Spans of Mann & McCallum's entropy are {verdict} tokens here, both without a limit of "
        "tokens a sentence: at equal labels, from "
        f"{gap.begin:,} to {gap.end:,} tokens, their F1 is {gap.mean:+.2f} points on average "
        f"({gap.lowest:+.2f} to {gap.highest:+.2f}), and above in {gap.above:.0%} of that "
        "stretch. A span counts as as many labels as it has tokens; for a person, neighbours may "
        "be cheaper than tokens far apart.\n"
    )


def _trainings(rows: Rows) -> str:
    """What rounds cost, by stage."""
    cells = []
    for row, results in rows.items():
        rounds = [one for result in results for one in result.get("rounds", [])]
        if rounds:
            stages = dict.fromkeys(name for one in rounds for name in one["seconds"])
            stages.pop("all")
            spent = {name: sum(one["seconds"].get(name, 0.0) for one in rounds) for name in stages}
            all_seconds = sum(one["seconds"]["all"] for one in rounds)
            most = sorted(spent, key=lambda name: -spent[name])[:3]
            shares = ", ".join(
                f"{name} {spent[name] / max(all_seconds, 1e-9):.0%}" for name in most
            )
            steps = sum(one["iterations"] for one in rounds) / len(rounds)
            cells.append([row, f"{all_seconds / len(rounds):.1f}", f"{steps:.0f}", shares])
    if not cells:
        return ""
    header = ["", "seconds a round", "iterations a round", "where they go"]
    return "What a round costs, scoring left out:\n\n" + markdown_table(header, cells)
