"""Forms of English verbs, by the rules of spelling and a list of those that break them."""

from __future__ import annotations

_IRREGULAR = {
    "rise": ("rose", "risen"),
    "fall": ("fell", "fallen"),
    "make": ("made", "made"),
    "take": ("took", "taken"),
    "say": ("said", "said"),
    "see": ("saw", "seen"),
    "sell": ("sold", "sold"),
    "buy": ("bought", "bought"),
    "bring": ("brought", "brought"),
    "hold": ("held", "held"),
    "show": ("showed", "shown"),
    "find": ("found", "found"),
    "cut": ("cut", "cut"),
    "set": ("set", "set"),
    "put": ("put", "put"),
    "bind": ("bound", "bound"),
    "grow": ("grew", "grown"),
    "give": ("gave", "given"),
}
_DOUBLED = frozenset(("cut", "set", "put", "drop", "plan"))


def inflect(verb: str, pos: str) -> str:
    """The form of a verb that a tag of the Penn Treebank asks for.

    Args:
        verb: its infinitive.
        pos: VB, VBP, VBZ, VBD, VBN or VBG.

    Returns:
        The form.

    Example:
        >>> [inflect("rise", pos) for pos in ("VB", "VBZ", "VBD", "VBN", "VBG")]
        ['rise', 'rises', 'rose', 'risen', 'rising']
        >>> inflect("carry", "VBD"), inflect("drop", "VBG")
        ('carried', 'dropping')
    """
    soft_y = verb.endswith("y") and verb[-2] not in "aeiou"
    if pos == "VBZ":
        if soft_y:
            return verb[:-1] + "ies"
        return verb + ("es" if verb.endswith(("s", "x", "ch", "sh", "z")) else "s")
    if pos == "VBG":
        stem = verb[:-1] if verb.endswith("e") and not verb.endswith("ee") else verb
        return stem + (verb[-1] if verb in _DOUBLED else "") + "ing"
    if pos in ("VBD", "VBN"):
        if verb in _IRREGULAR:
            return _IRREGULAR[verb][pos == "VBN"]
        if verb.endswith("e"):
            return verb + "d"
        return verb[:-1] + "ied" if soft_y else verb + (verb[-1] if verb in _DOUBLED else "") + "ed"
    return verb
