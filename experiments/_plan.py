"""What a run will do, with everything checked that can be wrong before it begins."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments._config import read_config
from experiments._paper import Cell, Paper, PaperError
from experiments._provenance import check_same_plan
from experiments._results import Results
from experiments.data import Source, choose_sources

RESULTS = "results.jsonl"


@dataclass(frozen=True)
class Plan:
    """A paper's run.

    Args:
        paper: the paper.
        preset: name of the preset.
        config: of the paper's own type.
        seeds: the seeds.
        sources: corpus → where its sentences come from.
        results: the file, with the lines that are done.
    """

    paper: Paper
    preset: str
    config: Any
    seeds: tuple[int, ...]
    sources: dict[str, Source]
    results: Results

    @property
    def folder(self) -> Path:
        """Folder of the results."""
        return self.results.path.parent

    @property
    def config_values(self) -> dict[str, Any]:
        """Key → value of the configuration."""
        fields = dataclasses.fields(self.config)
        return {field.name: getattr(self.config, field.name) for field in fields if field.init}

    def as_json(self) -> dict[str, Any]:
        """All that the results depend on, but for code and machine."""
        return {
            "paper": self.paper.name,
            "preset": self.preset,
            "config": self.config_values,
            "seeds": list(self.seeds),
            "corpora": {name: source.as_json() for name, source in self.sources.items()},
            "cells": self.results.planned,
        }


def make_plan(
    paper: Paper,
    preset: str,
    out: Path,
    *,
    seeds: tuple[int, ...] | None = None,
    data: Path | None = None,
    resume: bool = False,
) -> Plan:
    """The plan of a paper's run; nothing is written.

    Args:
        paper: the paper.
        preset: one of `experiments._config.ALL_PRESETS`.
        out: the folder of all results; these go to ``OUT/NAME/PRESET``.
        seeds: instead of those of the configuration.
        data: the data folder, if there is one.
        resume: whether to go on with results that are there.

    Returns:
        The plan.

    Raises:
        ValueError: for a wrong configuration, a corpus that is missing or wrong, and results
            that are there and not to be gone on with.
    """
    module = paper.load_run()
    config, usual_seeds = read_config(paper.folder / "config.toml", preset, module.Config)
    seeds = usual_seeds if seeds is None else seeds
    may_stand_in = preset == "smoke"
    sources = choose_sources(getattr(module, "CORPORA", ()), data, may_stand_in=may_stand_in)
    cells = _cells(paper, module.cells, config, seeds)
    results = Results(out / paper.name / preset / RESULTS, cells)
    plan = Plan(paper, preset, config, seeds, sources, results)
    _check_writable(plan.folder)
    if results.path.exists():
        if not resume:
            raise ValueError(f"{results.path}: is there already; use --resume, or another --out")
        check_same_plan(plan.folder, plan.as_json())
        results.load()
    return plan


def _cells(paper: Paper, cells: Any, config: Any, seeds: tuple[int, ...]) -> list[Cell]:
    try:
        return list(cells(config, seeds))
    except Exception as error:
        raise PaperError(f"{paper.name}: cells failed") from error


def _check_writable(folder: Path) -> None:
    """ValueError if a file stands where the folder or one above it should be."""
    for path in (folder, *folder.parents):  # the nearest that exists decides
        if path.is_dir():
            return
        if path.exists():
            raise ValueError(f"--out: expected a folder, {path} is a file")
