"""Files of constraints that people write without a program: TOML or YAML."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from jaxseq.constraints._file_rules import check_keys, rule_of, string_of
from jaxseq.constraints._file_table import Table, read_text, shown
from jaxseq.constraints._file_toml import parse_toml
from jaxseq.constraints._file_yaml import parse_yaml
from jaxseq.constraints._labels import Labels, Scheme
from jaxseq.constraints._set import Constraints, Penalised, bind_constraints

PARSERS = {".toml": parse_toml, ".yaml": parse_yaml, ".yml": parse_yaml}
SCHEMES = ("plain", "iob2", "iobes")
OF_THE_FILE = ("scheme", "penalty", "probability", "constraint")


@dataclass(frozen=True)
class ConstraintFile:
    """The constraints of a file.

    Args:
        rules: with their penalties and names, all names different.
        scheme: how labels stand for fields.

    Example:
        >>> from jaxseq.constraints import StartsWith
        >>> found = ConstraintFile([Penalised(StartsWith(["A"]), 2.5, "start")], "plain")
        >>> found.bind(["A", "B"]).names
        ('start',)
    """

    rules: list[Penalised]
    scheme: Scheme = "plain"

    def bind(self, labels: Sequence[str]) -> Constraints:
        """The constraints for a model with these labels: a tagger's `classes_`."""
        return bind_constraints(self.rules, labels, scheme=self.scheme)


def read_constraints(
    path: str | os.PathLike[str], labels: Sequence[str] | None = None
) -> ConstraintFile:
    r"""Read a file of constraints, in TOML (``.toml``) or YAML (``.yaml``, ``.yml``).

    In TOML::

        scheme = "plain"                  # or "iob2", "iobes"; how labels stand for fields
        penalty = 4.5                     # ρ of the constraints that do not say

        [[constraint]]
        kind = "words_imply"
        name = "pages"                    # for reports; by default its kind
        words = ["pp", "pages"]
        labels = ["PAGES"]
        probability = 1e-4                # instead of a penalty

        [[constraint]]
        kind = "transitions_only_on"
        punctuation = true

    In YAML the same keys, with a list of mappings under ``constraint``.

    Kinds and their keys, named as the arguments of the rules:

    - ``words_imply``, ``only_on``: labels, and tokens; ``transitions_only_on``: tokens
      (punctuation marks by default), side
    - ``starts_with``, ``ends_with``, ``must_appear``, ``order``: labels; ``at_most_once``: labels
      or all
    - ``field_length``: at_least, at_most, labels or all; ``count``: labels, at_least, at_most, unit

    Tokens: ``words``, a list; ``words_from``, a file with a word a line, relative to this one;
    ``pattern``, a regular expression for the whole token; or ``punctuation = true``. Also
    ``ignore_case`` (true) and ``column`` (word).

    A penalty is a number, 0 or more, or ``inf`` for a hard constraint. A probability of violation p
    is the penalty :math:`\rho = -\log p`.

    Args:
        path: the file.
        labels: of the model, to find a label that it does not have; None checks none.

    Raises:
        ValueError: for whatever is wrong, with the file and the line: ``FILE:LINE: …``.

    Example:
        >>> import os, tempfile
        >>> text = 'penalty = inf\n[[constraint]]\nkind = "starts_with"\nlabels = ["A"]\n'
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "rules.toml")
        ...     with open(path, "w") as file:
        ...         _ = file.write(text)
        ...     found = read_constraints(path, ["A", "B"])
        >>> found.rules[0].penalty, found.scheme, found.bind(["A", "B"]).names
        (inf, 'plain', ('starts_with',))

    References:
        Chang, Ratinov & Roth 2007, table 1, for the constraints that such a file can say.
    """
    name = os.fspath(path)
    parse = PARSERS.get(Path(name).suffix.lower())
    if parse is None:
        raise ValueError(f"{name}: expected a file whose name ends with {', '.join(PARSERS)}")
    top = parse(read_text(Path(name), name), name)
    check_keys(top, OF_THE_FILE, "a file of constraints")
    scheme = _scheme(top)
    known = None if labels is None else Labels(labels, scheme)
    usual = _penalty(top)
    kinds, rules, names = [], [], []
    for table in _tables(top):
        kind, rule = rule_of(table)
        if known is not None:
            _check_labels(table, rule, known)
        penalty = _penalty(table)
        penalty = usual if penalty is None else penalty
        if penalty is None:
            wanted = "expected the key penalty or probability, here or for all constraints"
            raise table.wrong(None, f"{wanted}, got none")
        kinds.append(kind)
        rules.append(Penalised(rule, penalty))
        names.append(_name(table, names))
    whole = [rule._replace(name=n) for rule, n in zip(rules, _all_named(kinds, names))]
    return ConstraintFile(whole, scheme)


def _scheme(top: Table) -> Scheme:
    scheme = top.get("scheme") if "scheme" in top else "plain"
    if scheme not in SCHEMES:
        raise top.wrong("scheme", f"expected one of {', '.join(SCHEMES)}, got {shown(scheme)}")
    return cast(Scheme, scheme)


def _tables(top: Table) -> list[Table]:
    found = top.get("constraint")
    if found is None or found == []:
        raise top.wrong("constraint" if found == [] else None, "expected a constraint, found none")
    if not isinstance(found, list) or not all(isinstance(item, Table) for item in found):
        wanted = "expected a list of tables ([[constraint]] in TOML, - in YAML)"
        raise top.wrong("constraint", f"{wanted}, got {shown(found)}")
    return found


def _check_labels(table: Table, rule: Any, labels: Labels) -> None:
    try:
        rule.bind(labels)
    except ValueError as error:
        raise table.wrong("labels", str(error).removeprefix("labels: ")) from None


# ------------------------------------------------------------------------------------ penalties


def _penalty(table: Table) -> float | None:
    """ρ, by either key; None for neither."""
    if "penalty" in table and "probability" in table:
        raise table.wrong("probability", "expected no penalty along with it, got both")
    if "penalty" in table:
        penalty = _number(table, "penalty")
        if not penalty >= 0:
            got = shown(table.get("penalty"))
            raise table.wrong("penalty", f"expected a number, 0 or more, or inf, got {got}")
        return penalty
    if "probability" not in table:
        return None
    probability = _number(table, "probability")
    if not 0 < probability <= 1:
        got = shown(table.get("probability"))
        raise table.wrong("probability", f"expected more than 0 and at most 1, got {got}")
    return 0.0 - math.log(probability)


def _number(table: Table, key: str) -> float:
    """A number, or a string that is one (as 1e-4 is in YAML); NaN for what is neither."""
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


# ---------------------------------------------------------------------------------------- names


def _name(table: Table, before: Sequence[str | None]) -> str | None:
    if "name" not in table:
        return None
    name = string_of(table, "name")
    if name in before:
        raise table.wrong("name", f"expected one that no other constraint has, got {name!r} again")
    return name


def _all_named(kinds: Sequence[str], names: Sequence[str | None]) -> list[str]:
    """Names for those without: their kinds, numbered from the second one on."""
    taken = {name for name in names if name is not None}
    whole = []
    for kind, name in zip(kinds, names):
        number = 1
        while name is None:
            name = kind if number == 1 else f"{kind} {number}"
            name = None if name in taken else name
            number += 1
        taken.add(name)
        whole.append(name)
    return whole
