"""Models of CRFsuite, read from the text that it dumps them as."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from jaxseq._runtime import Outcome
from jaxseq.crf._model import CRF
from jaxseq.crf._tagger import CRFTagger
from jaxseq.text import DictExtractor

SECTIONS = ("FILEHEADER", "LABELS", "ATTRIBUTES", "TRANSITIONS", "STATE_FEATURES")
ARROW = " --> "

_NAME = re.compile(r" *(\d+): (.*)", re.DOTALL)
_FEATURE = re.compile(r"  \((\d+)\) (.*): (\S+)", re.DOTALL)


def import_crfsuite(path: str | os.PathLike[str]) -> CRFTagger:
    """A tagger with the weights of a CRFsuite model, from its dump.

    ``crfsuite dump MODEL > FILE`` writes a dump, and so does python-crfsuite's
    ``Tagger.dump(FILE)``. It gives weights to six decimals, so that scores agree with CRFsuite's
    to about that. CRFsuite has no scores of starting and stopping: they are 0 here.

    Args:
        path: the dump. Names may hold anything but a line that looks like the dump's own.

    Returns:
        A trained tagger without templates: it takes sentences as python-crfsuite does, lists of
        tokens with a dict or list of attributes each. Its labels are sorted. It can be saved, and
        be a `warm_start_from`.

    Raises:
        ValueError: with path and line, where the file is not such a dump.

    Example:
        >>> import os, tempfile, jaxseq
        >>> dump = '''FILEHEADER = {
        ...   num_labels: 2
        ...   num_attrs: 1
        ... }
        ...
        ... LABELS = {
        ...       0: V
        ...       1: N
        ... }
        ...
        ... ATTRIBUTES = {
        ...       0: w:dog
        ... }
        ...
        ... TRANSITIONS = {
        ...   (1) N --> V: 2.000000
        ... }
        ...
        ... STATE_FEATURES = {
        ...   (0) w:dog --> N: 1.500000
        ... }
        ... '''
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "dump.txt")
        ...     _ = open(path, "w").write(dump)
        ...     tagger = jaxseq.import_crfsuite(path)
        >>> tagger.predict([[{"w": "dog"}, {"w": "barks"}]])
        [['N', 'V']]

    References:
        Okazaki 2007, CRFsuite.
    """
    dump = _Dump(Path(path))
    sections = {name: dump.section(name) for name in SECTIONS}
    dump.end()
    header = dump.header(sections["FILEHEADER"])
    labels = dump.names(sections["LABELS"], header, "num_labels")
    attributes = dump.names(sections["ATTRIBUTES"], header, "num_attrs")
    if not labels:
        dump.fail(sections["LABELS"][0].line, "expected at least one label, found none")
    order = {label: place for place, label in enumerate(sorted(labels))}
    rows = {attribute: row for row, attribute in enumerate(attributes)}
    transitions = dump.weights(sections["TRANSITIONS"], "1", order, order)
    weights = dump.weights(sections["STATE_FEATURES"], "0", rows, order)
    extractor = DictExtractor()
    # CRFsuite's numbers of attributes are kept, those of labels are sorted as everywhere here.
    extractor.fit_transform([[attributes]])  # a token that has them all numbers them in order
    tagger = CRFTagger()
    tagger._take(CRF(weights, transitions), sorted(labels), extractor)
    tagger.outcome_ = Outcome.IMPORTED
    return tagger


@dataclass(frozen=True)
class _Entry:
    """A line of a section, or several when a name holds line breaks; `line` numbers the first."""

    line: int
    text: str


class _Dump:
    """A dump, read section after section."""

    def __init__(self, path: Path):
        self._path = path
        try:
            text = path.read_bytes().decode()
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            self.fail(line, f"expected text in UTF-8, found the byte {error.object[error.start]}")
        # Only the dump's own line ends are cut: names may hold any other kind.
        self._ending = "\r\n" if text.partition("\n")[0].endswith("\r") else "\n"
        self._lines = text.split(self._ending)
        self._next = 0

    def fail(self, line: int, message: str) -> NoReturn:
        """ValueError that names the place."""
        raise ValueError(f"{self._path}:{line}: {message}")

    def _skip_blank(self) -> None:
        while self._next < len(self._lines) and not self._lines[self._next].strip():
            self._next += 1

    def section(self, name: str) -> list[_Entry]:
        """The entries of the next section, which must have this name; entry 0 is its head."""
        self._skip_blank()
        head, opening = self._next + 1, f"{name} = {{"
        if self._next >= len(self._lines) or self._lines[self._next] != opening:
            at_end = self._next >= len(self._lines)
            line = "the end" if at_end else repr(self._lines[self._next])[:80]
            self.fail(min(head, len(self._lines)), f"expected {opening!r}, found {line}")
        entries = [_Entry(head, opening)]
        for line in self._lines[self._next + 1 :]:
            self._next += 1
            if line == "}" and self._closes(self._next):
                self._next += 1
                return entries
            if self._begins_entry(name, line, len(entries) - 1):
                entries.append(_Entry(self._next + 1, line))
            elif len(entries) > 1 and name != "FILEHEADER":
                # A name with a line break in it: the entry goes on.
                text = f"{entries[-1].text}{self._ending}{line}"
                entries[-1] = _Entry(entries[-1].line, text)
            else:
                self.fail(self._next + 1, f"{name}: expected an entry or '}}', found {line!r:.80}")
        self.fail(len(self._lines), f"{name}: expected '}}', found the end: the file is cut off")

    def _closes(self, place: int) -> bool:
        """Whether a brace ends its section: a blank line or nothing follows."""
        # A name may be a brace by itself; but sections are parted by a blank line.
        following = self._lines[place + 1 : place + 2]
        return not following or not following[0]

    @staticmethod
    def _begins_entry(name: str, line: str, count: int) -> bool:
        if name == "FILEHEADER":
            return line.startswith("  ") and ": " in line
        if name in ("LABELS", "ATTRIBUTES"):  # numbered in order: a line of a name would not be
            return line.startswith(f"  {count:>5}: ")  # wider from 100,000 on
        return line.startswith("  (1) " if name == "TRANSITIONS" else "  (0) ")

    def end(self) -> None:
        """ValueError if anything follows the last section."""
        self._skip_blank()
        if self._next < len(self._lines):
            line = self._lines[self._next]
            self.fail(self._next + 1, f"expected the end of the dump, found {line!r:.80}")

    def header(self, entries: list[_Entry]) -> dict[str, tuple[int, str]]:
        """Line and value of each field."""
        fields = {}
        for entry in entries[1:]:
            name, _, value = entry.text.strip().partition(": ")
            fields[name] = (entry.line, value)
        return fields

    def names(
        self, entries: list[_Entry], header: dict[str, tuple[int, str]], field: str
    ) -> list[str]:
        """Labels or attributes by number, as many as the header says."""
        names: dict[str, None] = {}  # a set in order
        for entry in entries[1:]:
            match = _NAME.fullmatch(entry.text)
            assert match, entry
            if match[2] in names:
                self.fail(entry.line, f"expected different names, found twice {match[2]!r:.80}")
            names[match[2]] = None
        if field not in header:
            self.fail(entries[0].line, f"expected {field!r} in the FILEHEADER, found none")
        line, value = header[field]
        if value != str(len(names)):
            self.fail(line, f"{field}: expected the number of names, {len(names)}, found {value!r}")
        return list(names)

    def weights(
        self, entries: list[_Entry], kind: str, rows: dict[str, int], columns: dict[str, int]
    ) -> np.ndarray:
        """The table [rows, columns] of a section's features; 0 where there is none."""
        table = np.zeros((len(rows), len(columns)), np.float32)
        seen: set[tuple[int, int]] = set()
        for entry in entries[1:]:
            match = _FEATURE.fullmatch(entry.text)
            weight = _finite(match[3]) if match else None
            if match is None or weight is None or match[1] != kind:
                wanted = f"'  ({kind}) name{ARROW}label: number'"
                self.fail(entry.line, f"expected {wanted}, found {entry.text!r:.80}")
            ends = [
                (rows[left], columns[right])
                for left, right in _splits(match[2])
                if left in rows and right in columns
            ]
            if len(ends) != 1:  # names hold arrays, so that a line may be read in several ways
                ways = "no way" if not ends else f"{len(ends)} ways"
                self.fail(
                    entry.line,
                    f"expected two names of the dump with {ARROW!r} between, found {ways} to read "
                    f"{match[2]!r:.80} so",
                )
            if ends[0] in seen:
                self.fail(entry.line, f"expected a feature once, found again {match[2]!r:.80}")
            seen.add(ends[0])
            table[ends[0]] = weight
        return table


def _splits(text: str) -> Iterator[tuple[str, str]]:
    """Everything before and after each arrow: names may hold arrows too."""
    place = text.find(ARROW)
    while place >= 0:
        yield text[:place], text[place + len(ARROW) :]
        place = text.find(ARROW, place + 1)


def _finite(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
