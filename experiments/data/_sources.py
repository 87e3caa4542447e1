"""Which corpus a run uses: the real one, or the generator that stands in for it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from experiments.data._catalogue import corpus_named
from experiments.data._registry import checksums, is_missing, locate

VARIABLE = "JAXSEQ_DATA"


@dataclass(frozen=True)
class Source:
    """Where the sentences of a corpus come from.

    Args:
        corpus: its name.
        folder: the data folder; None for the generator.
        sha256: file → checksum; empty for the generator.
    """

    corpus: str
    folder: Path | None = None
    sha256: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """``real`` or ``embedded``, as results say it."""
        return "embedded" if self.folder is None else "real"

    def as_json(self) -> dict[str, object]:
        """For the provenance: nothing in it depends on where the folder is."""
        if self.folder is None:
            return {"source": self.kind, "generator": corpus_named(self.corpus).stand_in}
        return {"source": self.kind, "sha256": self.sha256}


def data_folder(option: Path | None) -> Path | None:
    """The data folder: the option, else the variable ``JAXSEQ_DATA``, else None.

    Raises:
        ValueError: for one that is not a folder.

    Example:
        >>> data_folder(Path("nowhere"))
        Traceback (most recent call last):
        ValueError: --data: expected a folder, nowhere is none
    """
    variable = os.environ.get(VARIABLE)
    folder = option if option is not None else Path(variable) if variable else None
    if folder is not None and not folder.is_dir():
        name = VARIABLE if option is None else "--data"
        raise ValueError(f"{name}: expected a folder, {folder} is none")
    return folder


def choose_sources(
    corpora: Iterable[str], folder: Path | None, *, may_stand_in: bool
) -> dict[str, Source]:
    """The source of each corpus: the real files if they are there, else the generator.

    Args:
        corpora: names.
        folder: the data folder; None takes the generators.
        may_stand_in: whether a generator may stand in for a corpus that the folder lacks.

    Returns:
        name → source.

    Raises:
        ValueError: for a corpus that is missing and needed, incomplete, or has wrong checksums.

    Example:
        >>> choose_sources(["conll2000"], None, may_stand_in=True)["conll2000"].kind
        'embedded'
    """
    sources = {}
    for name in corpora:
        corpus_named(name)
        if folder is None or (may_stand_in and is_missing(name, folder)):
            sources[name] = Source(name)
        else:
            wanted = checksums(name)
            sha256 = {file: wanted[file] for file in locate(name, folder)}
            sources[name] = Source(name, folder, sha256)
    return sources
