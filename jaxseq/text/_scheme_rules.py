"""The rules of the label schemes: which tags there are, and what each means after another."""

from __future__ import annotations

from typing import NamedTuple

SCHEMES = ("IOB2", "IOB1", "IOBES", "BILOU")  # a scheme stands before those that include it
ALIASES = {"BIO": "IOB2", "BIOES": "IOBES"}
# Letters of each scheme → roles: one set of rules then serves IOBES and BILOU.
_ROLES = {
    "IOB1": {"B": "B", "I": "I"},
    "IOB2": {"B": "B", "I": "I"},
    "IOBES": {"B": "B", "I": "I", "E": "E", "S": "S"},
    "BILOU": {"B": "B", "I": "I", "L": "E", "U": "S"},
}


def scheme_name(scheme: str) -> str:
    """The name of a scheme without aliases; ValueError for what is none."""
    name = ALIASES.get(scheme, scheme)
    if name not in SCHEMES:
        names = ", ".join([*SCHEMES, *ALIASES])
        raise ValueError(f"scheme: expected one of {names}, got {scheme!r}")
    return name


def parse_tag(scheme: str, tag: str) -> tuple[str, str] | None:
    """(role, type) of a tag, ("O", "") for O, None for what is no tag of the scheme."""
    if tag == "O":
        return "O", ""
    letter, dash, kind = tag.partition("-")
    role = _ROLES[scheme].get(letter)
    return None if role is None or (dash and not kind) else (role, kind)


class _Step(NamedTuple):
    """What a tag means after another."""

    legal: bool
    starts: bool  # a span
    kind: str | None  # the type; None for O


class _Steps(dict[tuple[str | None, str], _Step]):
    """(tag before or None, tag) → step; worked out once, since a corpus has few pairs."""

    def __init__(self, scheme: str):
        self.scheme = scheme

    def __missing__(self, pair: tuple[str | None, str]) -> _Step:
        if len(self) >= 1 << 16:  # no corpus: text taken for tags must not fill the memory
            self.clear()
        self[pair] = _step(self.scheme, *pair)
        return self[pair]


def _step(scheme: str, before: str | None, tag: str) -> _Step:
    """What a tag means after another that is legal, or first."""
    parsed = parse_tag(scheme, tag)
    if parsed is None:
        return _Step(False, False, None)
    role, kind = parsed
    last_role, last_kind = (parse_tag(scheme, before) if before is not None else None) or ("O", "")
    continues = last_role in "BI" and last_kind == kind and role in "IE"
    if scheme == "IOB1":
        legal, starts = True, role == "B" or (role == "I" and not continues)
    elif scheme == "IOB2":
        legal, starts = role != "I" or continues, role == "B"
    else:
        legal = continues if last_role in "BI" else role in "OBS"
        starts = role in "BS"
    return _Step(legal, starts, None if role == "O" else kind)


STEPS = {scheme: _Steps(scheme) for scheme in SCHEMES}


def may_stop(scheme: str, tag: str) -> bool:
    """Whether a tag of the scheme may stand last."""
    role, _ = parse_tag(scheme, tag) or ("O", "")
    return scheme in ("IOB1", "IOB2") or role in "OES"


def span_letters(scheme: str, length: int, touching: bool) -> list[str]:
    """The letters of a span; touching: one of the same type ends where it begins."""
    if scheme == "IOB1":
        return ["B" if touching else "I"] + ["I"] * (length - 1)
    if scheme == "IOB2":
        return ["B"] + ["I"] * (length - 1)
    last, single = "ES" if scheme == "IOBES" else "LU"
    return [single] if length == 1 else ["B"] + ["I"] * (length - 2) + [last]


def why_illegal(scheme: str, before: str | None, tag: str) -> str:
    """The message for a tag that is illegal after another."""
    if parse_tag(scheme, tag) is None:
        return not_a_tag(scheme, tag)
    where = "first" if before is None else f"after {before!r}"
    return f"{tag!r} may not stand {where} in {scheme}"


def not_a_tag(scheme: str, tag: str) -> str:
    """The message for what is no tag of the scheme."""
    letters = ", ".join(f"{letter}-TYPE" for letter in _ROLES[scheme])
    return f"expected a tag of {scheme} (O, {letters}), got {tag!r}"
