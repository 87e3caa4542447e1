"""Label schemes: how tags such as B-NP and I-NP spell out spans of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

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
    """The name of a scheme without aliases; ValueError for an unknown one."""
    name = ALIASES.get(scheme, scheme)
    if name not in SCHEMES:
        names = ", ".join([*SCHEMES, *ALIASES])
        raise ValueError(f"scheme: expected one of {names}, got {scheme!r}")
    return name


def parse_tag(scheme: str, tag: str) -> tuple[str, str] | None:
    """(role, type) of a tag, ("O", "") for O, None for a string that is no tag of the scheme."""
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
        if len(self) >= 1 << 16:  # this is no corpus: text taken for tags must not fill the memory
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
    # Whether the tag goes on with the span of the one before it.
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
    """The message for a string that is no tag of the scheme."""
    letters = ", ".join(f"{letter}-TYPE" for letter in _ROLES[scheme])
    return f"expected a tag of {scheme} (O, {letters}), got {tag!r}"


Span = tuple[int, int, str]


class IllegalTagError(ValueError):
    """A tag that its scheme does not allow where it stands.

    Args:
        position: index of the tag in its sequence.
        reason: what was expected and what came.

    Example:
        >>> try:
        ...     tag_spans(["O", "I-NP"], "IOB2")
        ... except IllegalTagError as error:
        ...     error.position
        1
    """

    def __init__(self, position: int, reason: str):
        super().__init__(f"tag {position}: {reason}")
        self.position = position
        self.reason = reason


class LegalTransitions(NamedTuple):
    """What a scheme allows between the labels of a list; see `legal_transitions`.

    Example:
        >>> legal_transitions(["O", "B-X", "I-X"], "IOB2").start
        array([ True,  True, False])
    """

    allowed: np.ndarray  # bool [s, s]: label j may follow label i
    start: np.ndarray  # bool [s]: may stand first
    stop: np.ndarray  # bool [s]: may stand last


def tag_spans(tags: Sequence[str], scheme: str) -> list[Span]:
    """The spans that a sequence of tags spells out.

    A tag is ``O`` or a letter and a type, joined by the first dash (``B-NP``, ``I-NP-X``), or a
    letter alone, whose type is then empty. What the schemes allow:

    - IOB2 (also called BIO): the first token of a span is B, the others I.
    - IOB1: all tokens of a span are I, but the first is B where a span of the same type ends just
      before it. Elsewhere B is not needed, but it is read as what it is, the start of a span:
      the training file of CoNLL-2003 holds two such tags. It is never written.
    - IOBES (BIOES): B first, I inside, E last; S for a span of one token.
    - BILOU: the same, with L for E and U for S.

    Args:
        tags: one sequence.
        scheme: one of these names.

    Returns:
        (start, stop, type) of each span, in order; the last token is stop − 1.

    Raises:
        IllegalTagError: a ValueError, at the first tag that the scheme does not allow.

    Example:
        >>> tag_spans(["B-NP", "I-NP", "O", "B-VP"], "IOB2")
        [(0, 2, 'NP'), (3, 4, 'VP')]

    Reference:
        Ramshaw & Marcus (1995), "Text chunking using transformation-based learning"; Tjong Kim
        Sang & Veenstra (1999), "Representing text chunks".
    """
    scheme = scheme_name(scheme)
    spans: list[Span] = []
    steps = STEPS[scheme]
    before, start, kind = None, -1, ""
    for position, tag in enumerate(tags):
        legal, starts, tag_kind = steps[before, tag]
        if not legal:
            raise IllegalTagError(position, why_illegal(scheme, before, tag))
        # A span ends where another begins, or at an O: the tag that ends it says nothing more.
        if start >= 0 and (starts or tag_kind is None):
            spans.append((start, position, kind))
            start = -1
        if starts:
            start, kind = position, tag_kind or ""
        before = tag
    if before is not None and not may_stop(scheme, before):
        raise IllegalTagError(len(tags) - 1, f"{before!r} may not stand last in {scheme}")
    if start >= 0:
        spans.append((start, len(tags), kind))
    return spans


def convert_tags(tags: Sequence[str], source: str, target: str) -> list[str]:
    """The same spans, spelled out in another scheme.

    Args:
        tags: one sequence.
        source: the scheme of the tags: IOB1, IOB2 (or BIO), IOBES (or BIOES), or BILOU.
        target: the scheme wanted.

    Returns:
        As many tags.

    Raises:
        IllegalTagError: a ValueError, at the first tag that the source scheme does not allow.

    Example:
        >>> convert_tags(["I-NP", "I-NP", "B-NP", "O"], "IOB1", "IOBES")
        ['B-NP', 'E-NP', 'S-NP', 'O']
    """
    target = scheme_name(target)
    spans = tag_spans(tags, source)
    converted = ["O"] * len(tags)
    before = (-1, "")  # where the last span ended, and its type: IOB1 marks where two touch
    for start, stop, kind in spans:
        letters = span_letters(target, stop - start, touching=before == (start, kind))
        ending = f"-{kind}" if kind else ""
        converted[start:stop] = [letter + ending for letter in letters]
        before = (stop, kind)
    return converted


def detect_scheme(tag_sequences: Iterable[Sequence[str]]) -> str:
    """The most specific scheme that all sequences obey.

    IOB2 is tried before IOB1, which allows whatever IOB2 does. No other two of the schemes agree
    on a sequence with a span in it. When every tag is O all fit, and the answer is IOB2.

    Args:
        tag_sequences: the corpus; it is gone through once.

    Returns:
        "IOB1", "IOB2", "IOBES" or "BILOU".

    Raises:
        ValueError: when no scheme fits, at the first tag that rules out the last one.

    Example:
        >>> detect_scheme([["O", "I-NP", "I-NP", "B-NP"], ["I-VP"]])
        'IOB1'
    """
    left: tuple[str, ...] = SCHEMES
    for index, tags in enumerate(tag_sequences):
        try:
            left = schemes_obeyed(tags, left)
        except IllegalTagError as error:
            raise ValueError(f"sequence {index}, {error}") from None
    return left[0]


def corpus_scheme(tag_sequences: Iterable[Sequence[str]]) -> str | None:
    """The scheme of `detect_scheme`; None where there is no span, or the tags are of no scheme.

    Only the pairs of neighbours that occur are looked at, which are few.

    Example:
        >>> [corpus_scheme([["O"], labels]) for labels in (["I-NP"], ["O"], ["NN"])]
        ['IOB1', None, None]
    """
    pairs: set[tuple[str | None, str]] = set()
    last: set[str] = set()
    for tags in tag_sequences:
        pairs.update(zip((None, *tags), tags))
        last.update(tags[-1:])
    if all(tag == "O" for _, tag in pairs):
        return None
    for scheme in SCHEMES:
        steps = STEPS[scheme]
        if all(steps[p].legal for p in pairs) and all(may_stop(scheme, tag) for tag in last):
            return scheme
    return None


def schemes_obeyed(tags: Sequence[str], among: Sequence[str]) -> tuple[str, ...]:
    """Those of some schemes that a sequence obeys; IllegalTagError where the last one fails."""
    left, errors = [], []
    for scheme in among:
        try:
            tag_spans(tags, scheme)
            left.append(scheme)
        except IllegalTagError as error:
            errors.append(error)
    if left:
        return tuple(left)
    last = max(errors, key=lambda error: error.position)  # of the scheme that got furthest
    names = ", ".join(among)
    what = names if len(among) == 1 else f"one of {names}"
    raise IllegalTagError(last.position, f"expected tags that obey {what}: {last.reason}")


def legal_transitions(labels: Sequence[str], scheme: str) -> LegalTransitions:
    """Which labels a scheme allows after which, first and last: for constrained decoding.

    All schemes are decided by neighbours alone, so these three tables describe them fully.

    Args:
        labels: different tags of the scheme, s of them.
        scheme: IOB1, IOB2 (or BIO), IOBES (or BIOES), or BILOU.

    Returns:
        ``allowed`` bool [s, s] (row, then column), ``start`` bool [s], ``stop`` bool [s].

    Example:
        >>> allowed, start, stop = legal_transitions(["O", "B-X", "I-X", "B-Y"], "IOB2")
        >>> allowed[:, 2]  # I-X follows only B-X and I-X
        array([False,  True,  True, False])
    """
    scheme = scheme_name(scheme)
    if len(set(labels)) != len(labels):
        twice = next(label for label in labels if list(labels).count(label) > 1)
        raise ValueError(f"labels: expected different labels, got {twice!r} more than once")
    for index, label in enumerate(labels):
        if parse_tag(scheme, label) is None:
            raise ValueError(f"labels: label {index}: {not_a_tag(scheme, label)}")
    s = len(labels)
    allowed = [[STEPS[scheme][before, label].legal for label in labels] for before in labels]
    return LegalTransitions(
        np.array(allowed, bool).reshape(s, s),
        np.array([STEPS[scheme][None, label].legal for label in labels], bool),
        np.array([may_stop(scheme, label) for label in labels], bool),
    )
