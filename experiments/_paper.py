"""What a paper is to the experiments, and where papers are found.

A paper is a folder ``experiments/NAME`` with four files; a folder that has ``run.py`` is found
by itself.

``config.toml``
    Every hyperparameter, each with a comment that names the paper's section. The table
    ``[default]`` holds all keys; ``[preset.smoke]``, ``[preset.paper]`` and, where there is one,
    ``[preset.overnight]`` replace some of them.
    The key ``seeds`` (a count, or a list) is read here and is not part of `Config`.

``run.py``
    ``CORPORA: tuple[str, ...]``
        names of the corpora (of `experiments.data`) that it reads; they are checked before
        anything is written.
    ``Config``
        a frozen dataclass with a field for every key but ``seeds``. A key that it does not have,
        a value of another type and a ValueError of its ``__post_init__`` are refused with the
        file and the key.
    ``cells(config, seeds) -> Iterable[Cell]``
        the parts of the experiment, in the order of the results file: quick, and the same each
        time. A cell is a string or a dict of JSON values, different from all others.
    ``run_cell(config, cell, data) -> dict``
        the results of one cell, of JSON values only and without NaN. What it returns depends on
        its arguments alone, so that cells can run in any order and in any process: settings of
        JAX are changed in a ``with`` block, if at all. Timings stand under a key ``"seconds"``,
        at any depth: they are left out when results are compared. ``data.corpus(name, split,
        count)`` gives sentences; see `experiments.data.Data`.

``expected.toml``
    The paper's own numbers with their tables, in whatever layout ``report.py`` reads.

``report.py``
    ``report(results, expected, config) -> Section``
        Markdown and figures, see `experiments.Section`. ``results`` is a list of the lines of the
        results file as dicts, ``{"cell": …, "corpora": {name: "real" or "embedded"}, "result": …,
        "seconds": …}``; it may be incomplete. Nothing is trained here.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent

KNOWN = {
    "jiao2006": "Jiao et al. 2006: semi-supervised CRFs by entropy regularisation",
    "mann2007": "Mann & McCallum 2007: entropy gradients in the time of forward–backward",
    "chang2007": "Chang, Ratinov & Roth 2007: constraint-driven learning",
    "haffari2008": "Haffari & Sarkar 2008: homotopy continuation for HMMs",
    "wanvarie2011": "Wanvarie, Takamura & Okumura 2011: active learning of subsequences",
}
"""The papers that this repository is for, those to come too: name → title."""

Cell = str | dict[str, object]
"""A part of an experiment: JSON values that tell it from all other parts."""


class PaperError(RuntimeError):
    """The code of a paper failed; the cause is the exception that it raised."""


@dataclass(frozen=True)
class Paper:
    """A paper that is here: its name and the folder of its files."""

    name: str
    folder: Path

    @property
    def title(self) -> str:
        """What to call it in a heading."""
        return KNOWN.get(self.name, self.name)

    def load_run(self) -> types.ModuleType:
        """The module ``run.py``, with all that it must define.

        Raises:
            ValueError: with the file, for a name that is missing.
        """
        module = self._load("run")
        place = self.folder / "run.py"
        for name in ("cells", "run_cell"):
            if not callable(getattr(module, name, None)):
                raise ValueError(f"{place}: expected a function {name}, found none")
        if not dataclasses.is_dataclass(getattr(module, "Config", None)):
            raise ValueError(f"{place}: expected a dataclass Config, found none")
        return module

    def load_report(self) -> types.ModuleType:
        """The module ``report.py``, which must define ``report``."""
        if not (self.folder / "report.py").is_file():
            raise ValueError(f"{self.folder / 'report.py'}: expected this file, found none")
        module = self._load("report")
        if not callable(getattr(module, "report", None)):
            raise ValueError(f"{self.folder / 'report.py'}: expected a function report")
        return module

    def _load(self, module: str) -> types.ModuleType:
        return importlib.import_module(f"{_package(self.folder.parent)}.{self.name}.{module}")


def discover(papers: Path = HERE) -> dict[str, Paper]:
    """The papers of a folder: its folders that hold ``run.py``, the known ones first.

    Args:
        papers: the folder; by default that of this package.

    Returns:
        name → paper.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> for name in ("zhu2003", "mann2007", "notes"):
        ...     (Path(folder.name) / name).mkdir()
        >>> for name in ("zhu2003", "mann2007"):
        ...     (Path(folder.name) / name / "run.py").touch()
        >>> list(discover(Path(folder.name)))
        ['mann2007', 'zhu2003']
        >>> folder.cleanup()
    """
    names = sorted(path.parent.name for path in papers.glob("*/run.py"))
    order = [name for name in KNOWN if name in names]
    order += [name for name in names if name not in KNOWN]
    return {name: Paper(name, papers / name) for name in order}


def choose(names: Sequence[str], papers: Path = HERE) -> list[Paper]:
    """The papers with these names, each once; ``all`` stands for all that are here.

    Raises:
        ValueError: for a name that is not known, and for one that is known and not here.

    Example:
        >>> choose(["mannn2007"])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: NAME: expected all or one of jiao2006, mann2007, ... got 'mannn2007'
    """
    present = discover(papers)
    chosen: dict[str, Paper] = {}
    for name in names:
        if name == "all":
            chosen |= present
        elif name in present:
            chosen[name] = present[name]
        elif name in KNOWN:
            raise ValueError(
                f"NAME: {name} is not here yet; here now: {', '.join(present) or 'none'}"
            )
        else:
            known = ", ".join(dict.fromkeys([*KNOWN, *present]))
            raise ValueError(f"NAME: expected all or one of {known}, got {name!r}")
    if not chosen:
        raise ValueError(
            f"NAME: expected a paper, none is here: {papers} has no folder with run.py"
        )
    return list(chosen.values())


def _package(papers: Path) -> str:
    """Name of the package whose folder this is; any other folder becomes a package of its own."""
    if papers.resolve() == HERE.resolve():
        return __package__ or "experiments"
    name = f"_papers_{hashlib.sha256(str(papers.resolve()).encode()).hexdigest()[:16]}"
    if name not in sys.modules:
        package = types.ModuleType(name)
        package.__path__ = [str(papers)]
        sys.modules[name] = package
    return name
