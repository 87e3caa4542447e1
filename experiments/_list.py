"""What is here: papers, corpora and benchmarks, as text."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from experiments._paper import KNOWN, discover
from experiments.bench import BENCHES
from experiments.data import CORPORA, is_missing, locate


def describe(papers: Path, data: Path | None) -> str:
    """The text of ``python -m experiments list``.

    Args:
        papers: the folder of the papers.
        data: the data folder, if there is one.
    """
    present = discover(papers)
    titles = KNOWN | {name: paper.title for name, paper in present.items()}
    lines = ["papers (run NAME)"]
    lines += _columns(
        (name, "here" if name in present else "not here yet", title)
        for name, title in titles.items()
    )
    lines += ["", f"corpora ({data or 'no folder: --data DIR or JAXSEQ_DATA'})"]
    lines += _columns(
        (name, _state(name, data), f"{corpus.title}; {corpus.licence}; from {corpus.where}")
        for name, corpus in CORPORA.items()
    )
    lines += ["", "benchmarks (bench NAME)", *(f"  {name}" for name in BENCHES)]
    return "\n".join(lines)


def _state(corpus: str, data: Path | None) -> str:
    if data is None:
        return "generated"
    if is_missing(corpus, data):
        return "missing"
    try:
        locate(corpus, data)
    except ValueError as error:
        return "wrong checksum" if "sha256" in str(error) else "incomplete"
    return "real"


def _columns(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    return [f"  {name:<14}{state:<16}{text}" for name, state, text in rows]
