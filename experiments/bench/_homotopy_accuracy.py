"""Accuracy of HMMs with a λ that is chosen on a path, against supervised ones and against EM."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

from experiments._config import read_config
from experiments.bench._report import Report
from experiments.data import Data, choose_sources
from experiments.haffari2008 import run as paper
from experiments.haffari2008._summary import NAMES, Scores, by_method, gains

SETTING, TRANSITIONS = "cut-off 2", "frozen"
"""Words that are known, chosen on development parts; transitions as published."""
RULE, BESIDE = "monotone", "max_entropy"
"""The rule that has a bar, and another that is shown."""
SUPERVISED_BAR, OVER_SUPERVISED_BAR, OVER_EM_BAR = 86.0, 0.0, 3.0
DECODINGS = {"viterbi": "Viterbi", "sms": "SMS"}


def accuracies(report: Report, folder: Path, splits: int | None = None) -> None:
    """Means over splits of table 1 of the paper, as ``experiments run haffari2008`` has them.

    Args:
        report: to tell them. folder: of the corpora. splits: the first of them; None for all.
    """
    file = Path(paper.__file__).with_name("config.toml")
    config, seeds = read_config(file, "default", paper.Config)
    data = Data(choose_sources(paper.CORPORA, folder, may_stand_in=False))
    cell = {"part": "table", "setting": SETTING, "transitions": TRANSITIONS}
    cell["unlabelled"] = config.unlabelled[-1]
    lines = []
    for seed in seeds[:splits]:
        each = {**cell, "seed": seed}
        lines.append({"cell": each, "result": paper.run_cell(config, each, data)})
    tell(report, by_method(lines), {**cell, "splits": len(lines), "labelled": config.labelled})


def tell(report: Report, methods: dict[str, Scores], measured_on: dict[str, Any]) -> None:
    """The figures, of methods by seed."""
    supervised, em = methods["supervised"], methods["em"]
    for decoding, name in DECODINGS.items():
        report.figure(
            f"token accuracy, {NAMES['supervised']}, {name}, percent",
            supervised.mean(decoding, "accuracy"),
            at_least=SUPERVISED_BAR,
            **measured_on,
        )
        for rule in (RULE, BESIDE):
            for other, called, bar in (
                (supervised, "supervised", OVER_SUPERVISED_BAR),
                (em, "EM at λ of maximum likelihood", OVER_EM_BAR),
            ):
                points = gains(methods[rule], other, decoding)
                report.figure(
                    f"token accuracy, {NAMES[rule]} less {called}, {name}, points",
                    statistics.fmean(points),
                    at_least=bar if rule == RULE else None,
                    standard_error=_standard_error(points),
                    **measured_on,
                )


def _standard_error(values: list[float]) -> float | None:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
