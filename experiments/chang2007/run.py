"""Chang, Ratinov & Roth 2007: do constraints help to learn from unlabelled sentences?"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import jaxseq
from experiments.chang2007._domains import DOMAINS, Domain, Parts, read_rules, rules_about
from experiments.chang2007._evidence import evidence
from experiments.chang2007._methods import (
    HW,
    INFERENCE,
    METHODS,
    PLAIN,
    SUP,
    TOP_K,
    Search,
    Task,
    quietly,
)
from experiments.chang2007._settings import CHANGES, FORM, find_setting
from jaxseq.constraints import Penalised, TransitionsOnlyOn, estimate_penalties

CORPORA = DOMAINS
COMPARED = {
    "learning": ((TOP_K, INFERENCE), (HW, INFERENCE)),
    "inference": ((SUP, INFERENCE), (SUP, PLAIN)),
}
"""Name of a comparison → what is compared with what."""


@dataclass(frozen=True)
class Config:
    """See ``config.toml``."""

    domains: tuple[Literal["citations", "ads"], ...]
    citations_labelled: tuple[int, ...]
    ads_labelled: tuple[int, ...]
    unlabelled: int
    test: int
    apart: int
    top_k: int
    width: int
    keep: float
    cycles: int
    soft_labelled: int
    soft_probability: float
    beyond_labelled: int
    beyond_draws: int
    crf_draws: int
    crf_top_k: int
    crf_unlabelled: int
    crf_iterations: int
    settings: tuple[str, ...]
    settings_labelled: tuple[int, ...]
    settings_methods: tuple[str, ...]
    settings_seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("unlabelled", "test", "apart", "top_k", "cycles", "crf_top_k"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected 1 or more, got {getattr(self, name)}")
        if self.width < self.top_k:
            raise ValueError(f"width: expected {self.top_k} or more, as top_k, got {self.width}")
        if not 0 <= self.keep <= 1:
            raise ValueError(f"keep: expected 0 … 1, got {self.keep}")
        if not 0 < self.soft_probability < 1:
            raise ValueError(f"soft_probability: expected 0 … 1, got {self.soft_probability}")
        if not set(self.settings) <= set(CHANGES):
            known, got = ", ".join(CHANGES), ", ".join(self.settings)
            raise ValueError(f"settings: expected some of {known}, got {got}")
        if not set(self.settings_methods) <= set(METHODS):
            known, got = ", ".join(METHODS), ", ".join(self.settings_methods)
            raise ValueError(f"settings_methods: expected some of {known}, got {got}")

    @property
    def search(self) -> Search:
        """Numbers of the method."""
        return Search(self.top_k, self.width, self.keep, self.cycles)

    def labelled(self, domain: Domain) -> tuple[int, ...]:
        """Numbers of labelled sentences."""
        return self.citations_labelled if domain == "citations" else self.ads_labelled


def cells(config: Config, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Table 2, section 7, what is not in the paper, settings, and the rules on right labels."""
    listed: list[dict[str, Any]] = [
        {"part": "rules", "domain": domain} for domain in config.domains
    ]
    for domain in config.domains:
        listed += [
            {"part": "table", "domain": domain, "labelled": labelled, "seed": seed}
            for labelled in config.labelled(domain)
            for seed in seeds
        ]
    if "ads" in config.domains:
        listed += [{"part": "soft", "domain": "ads", "seed": seed} for seed in seeds]
    for domain in config.domains:
        listed += [
            {"part": part, "domain": domain, "seed": seed}
            for part, draws in (("beyond", config.beyond_draws), ("crf", config.crf_draws))
            for seed in list(seeds)[:draws]
        ]
        listed += [
            {
                "part": "settings",
                "domain": domain,
                "setting": name,
                "labelled": labelled,
                "seed": seed,
            }
            for name in config.settings
            for labelled in config.settings_labelled
            for seed in config.settings_seeds
        ]
    return listed


def run_cell(config: Config, cell: dict[str, Any], data: Any) -> dict[str, Any]:
    """The results of one cell."""
    parts = {
        "rules": _rules,
        "table": _table,
        "soft": _soft,
        "beyond": _beyond,
        "crf": _crf,
        "settings": _setting,
    }
    return parts[cell["part"]](config, cell, data)


@lru_cache(maxsize=len(DOMAINS))
def _parts(data: Any, domain: Domain, apart: int, test: int) -> Parts:
    return Parts(data, domain, apart, test)


def _task(
    config: Config, cell: dict[str, Any], data: Any, labelled: int, unlabelled: int | None = None
) -> Task:
    domain = cell["domain"]
    data.corpus(domain, "unlabelled", 0)  # noted as used, also when the parts are known already
    parts = _parts(data, domain, config.apart, config.test)
    draw = parts.draw_for_settings if cell["part"] == "settings" else parts.draw
    sets = draw(cell["seed"], labelled, config.unlabelled if unlabelled is None else unlabelled)
    setting = find_setting(domain, cell.get("setting", "base"))
    return Task(sets, setting, read_rules(domain), config.search)


# ------------------------------------------------------------------------------------- cells


def _rules(config: Config, cell: dict[str, Any], data: Any) -> dict[str, Any]:
    """How often right labels break the rules, on sentences that are not tested on."""
    domain = cell["domain"]
    parts = Parts(data, domain, config.apart, config.test)
    return evidence(read_rules(domain), parts.evidence)


def _table(config: Config, cell: dict[str, Any], data: Any) -> dict[str, Any]:
    """A row of table 2: all methods, decoded without and with constraints."""
    task = _task(config, cell, data, cell["labelled"])
    labels, methods = {}, {}
    for method in METHODS:
        began = time.perf_counter()  # of training and decoding together
        labels[method] = task.labellings(task.train(method))
        methods[method] = {how: task.accuracy(y) for how, y in labels[method].items()}
        methods[method]["seconds"] = round(time.perf_counter() - began, 2)
    tests = {
        name: task.compare(labels[ours[0]][ours[1]], labels[theirs[0]][theirs[1]])
        for name, (ours, theirs) in COMPARED.items()
    }
    return {"fields": len(task.classes), "methods": methods, "mcnemar": tests}


def _soft(config: Config, cell: dict[str, Any], data: Any) -> dict[str, Any]:
    """Section 7: the supervised model decoded with hard and with soft constraints."""
    task = _task(config, cell, data, config.soft_labelled)
    tagger = task.train(SUP)
    chosen = {
        "C1": [one for one in task.rules if isinstance(one.rule, TransitionsOnlyOn)],
        "all": task.rules,
    }
    penalties = {"soft": -math.log(config.soft_probability), "hard": math.inf}
    accuracy: dict[str, Any] = {}
    for which, rules in chosen.items():
        for how, penalty in penalties.items():
            scores = task.scores(tagger, [one._replace(penalty=penalty) for one in rules])
            # The same each time: decoding without constraints does not depend on them.
            accuracy["none"] = scores[PLAIN]
            accuracy[f"{which}, {how}"] = scores[INFERENCE]
    return {"accuracy": accuracy}


def _beyond(config: Config, cell: dict[str, Any], data: Any) -> dict[str, Any]:
    """Labellings weighed by score, and penalties estimated from the labelled sentences."""
    task = _task(config, cell, data, config.beyond_labelled)
    estimated = _estimated(task)
    methods = {
        TOP_K: task.scores(task.train(TOP_K)),
        "weights by score": task.scores(task.codl(weights="score").tagger_),
        "estimated ρ": task.scores(task.codl(rules=estimated).tagger_, estimated),
    }
    penalties = {str(one.name): float(one.penalty) for one in estimated}
    return {"methods": methods, "penalties": penalties}


def _estimated(task: Task) -> list[Penalised]:
    """The task's rules with the penalties that its labelled sentences suggest."""
    penalties = estimate_penalties(task.rules, task.labelled, task.labels, labels=task.classes)
    return [one._replace(penalty=float(rho)) for one, rho in zip(task.rules, penalties)]


def _crf(config: Config, cell: dict[str, Any], data: Any) -> dict[str, Any]:
    """A conditional random field in place of the hidden Markov model."""
    task = _task(config, cell, data, config.beyond_labelled, config.crf_unlabelled)
    crf = jaxseq.CRFTagger(
        templates=[f"{FORM}[-1]", f"{FORM}[0]", f"{FORM}[1]"],
        l2=1.0,
        max_iterations=config.crf_iterations,
        progress=False,
    )
    seen = {label for labels in task.labels for label in labels}
    rules = rules_about(task.rules, seen)  # a conditional random field knows no other labels
    shared: dict[str, Any] = {"k": config.crf_top_k}
    methods = {
        "CRF, sup": {"k": 1, "keep": 1.0, "cycles": 1, "learn_with_constraints": False},
        "CRF, H&W": {**shared, "learn_with_constraints": False},
        "CRF, H&W&C": shared,
    }
    with quietly():
        return {
            "methods": {
                name: task.scores(task.codl(crf, rules, **changes).tagger_, rules)
                for name, changes in methods.items()
            }
        }


def _setting(config: Config, cell: dict[str, Any], data: Any) -> dict[str, Any]:
    """One way that the paper leaves open, tested on the sentences that are kept apart."""
    task = _task(config, cell, data, cell["labelled"])
    return {"methods": {name: task.scores(task.train(name)) for name in config.settings_methods}}
