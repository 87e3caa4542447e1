"""The report: results of all papers as Markdown, pictures and one page of HTML."""

from __future__ import annotations

import html
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments._config import ALL_PRESETS, build_config
from experiments._figures import draw
from experiments._files import write_whole
from experiments._page import as_page
from experiments._paper import Paper, PaperError, discover
from experiments._plan import RESULTS
from experiments._provenance import FILE, read_provenance
from experiments._results import read_results
from experiments._section import Figure, Section

TITLE = "jaxseq: the papers' numbers and ours"
FIGURES = "figures"


@dataclass(frozen=True)
class _Part:
    """A paper's results in one preset, and what it says about them."""

    paper: Paper
    preset: str
    section: Section
    provenance: dict[str, Any]
    results: list[dict[str, Any]]

    def address(self, figure: Figure) -> str:
        """Where the figure's file is, seen from the report."""
        return f"{FIGURES}/{self.paper.name}-{self.preset}-{figure.name}.png"


def write_report(out: Path, papers: Path, preset: str | None = None) -> Path:
    """Write ``report.html``, ``report.md`` and the figures of the results of a folder.

    Args:
        out: the folder of all results.
        papers: the folder of the papers.
        preset: only this; None for all that have results.

    Returns:
        Path of the page.

    Raises:
        ValueError: if there are no results.
        PaperError: when the code of a paper's ``report.py`` fails.
    """
    presets = ALL_PRESETS if preset is None else (preset,)
    parts = [
        _make_part(paper, one, out / paper.name / one)
        for paper in discover(papers).values()
        for one in presets
        if (out / paper.name / one / RESULTS).is_file()
    ]
    if not parts:
        of_preset = f" of preset {preset}" if preset else ""
        raise ValueError(
            f"{out}: expected results{of_preset}, found none; python -m experiments run makes them"
        )
    figures = {part.address(figure): figure for part in parts for figure in part.section.figures}
    # Everything is drawn before anything is written: a failure leaves the old report whole.
    pictures = {
        name: (draw(one, "light", "svg"), draw(one, "dark", "svg")) for name, one in figures.items()
    }
    files = {name: draw(figure, "light", "png") for name, figure in figures.items()}
    markdown = f"# {TITLE}\n\n" + "\n".join(map(_as_markdown, parts))
    page = as_page(TITLE, markdown, pictures.get)
    if files:
        (out / FIGURES).mkdir(exist_ok=True)
    for name, content in files.items():
        write_whole(out / name, content)
    write_whole(out / "report.md", markdown)
    write_whole(out / "report.html", page)
    return out / "report.html"


def _make_part(paper: Paper, preset: str, folder: Path) -> _Part:
    """Ask the paper for its section, with the configuration that the results were made with."""
    provenance, results = read_provenance(folder), read_results(folder / RESULTS)
    config = build_config(
        paper.load_run().Config, provenance["plan"]["config"], f"{folder / FILE}: plan.config"
    )
    expected = _read_expected(paper.folder / "expected.toml")
    report = paper.load_report().report
    # Code of a paper may fail in any way; the message must say whose it was.
    try:
        section = report(results, expected, config)
    except Exception as error:
        raise PaperError(f"{paper.name}: report failed: {type(error).__name__}: {error}") from error
    if not isinstance(section, Section):
        raise PaperError(f"{paper.name}: report: expected a Section, got {section!r}")
    return _Part(paper, preset, section, provenance, results)


def _read_expected(path: Path) -> dict[str, Any]:
    """The paper's numbers; none if it has no such file."""
    if not path.is_file():
        return {}
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: expected TOML: {error}") from None


def _as_markdown(part: _Part) -> str:
    heading = f"## {part.paper.title} ({part.preset})\n\n"
    notes = "".join(f"> {note}\n\n" for note in _notes(part))
    return f"{heading}{notes}{_placed(part)}\n{_origin(part)}"


def _notes(part: _Part) -> list[str]:
    """What a reader must know before the numbers."""
    notes = []
    planned, done = part.provenance["plan"]["cells"], len(part.results)
    if done < planned:
        notes.append(f"**Not finished**: {done} of {planned} cells; `--resume` goes on.")
    corpora = part.provenance["plan"]["corpora"]
    generated = [name for name, source in corpora.items() if source["source"] == "embedded"]
    if generated:
        notes.append(
            f"**Generated text** stands in for {', '.join(generated)}: the numbers show that the "
            "code works and are not to be compared with the paper's. `--data` gives real corpora."
        )
    return notes


def _placed(part: _Part) -> str:
    """The section's text with its figures where it wants them, the others last."""
    figures = {figure.name: figure for figure in part.section.figures}
    placed: set[str] = set()

    def image(match: re.Match[str]) -> str:
        figure = figures.get(match[1])
        if figure is None:
            raise PaperError(f"{part.paper.name}: report: there is no figure {match[1]}")
        placed.add(figure.name)
        return _image(part, figure)

    text = re.sub(r"^!\[\]\(([\w-]+)\)$", image, part.section.markdown, flags=re.MULTILINE)
    last = [_image(part, figure) for name, figure in figures.items() if name not in placed]
    return "\n\n".join([text.strip(), *last]) + "\n"


def _image(part: _Part, figure: Figure) -> str:
    caption = figure.caption.replace("[", "\\[").replace("]", "\\]").replace("\n", " ")
    return f"![{caption}]({part.address(figure)})"


def _origin(part: _Part) -> str:
    """One line on code, machine and data."""
    plan, run = part.provenance["plan"], part.provenance["runs"][-1]
    commit = (run["commit"] or "unknown")[:12] + (" with changes" if run["dirty"] else "")
    corpora = [f"{name} {source['source']}" for name, source in plan["corpora"].items()]
    seeds = ", ".join(map(str, plan["seeds"]))
    device = run["device"]
    return (
        f"*Commit {commit}; jax {run['versions']['jax']} on {device['platform']} "
        f"({html.escape(str(device['kind']))}, {run['cores']} cores); seeds {seeds}; "
        f"corpora: {', '.join(corpora) or 'none'}.*\n"
    )
