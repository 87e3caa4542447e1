"""Constraint files: what they mean, and what is said of their mistakes."""

import math

import pytest

from jaxseq.constraints import (
    PUNCTUATION,
    AtMostOnce,
    ConstraintFile,
    Count,
    EndsWith,
    FieldLength,
    MustAppear,
    OnlyOn,
    Order,
    Penalised,
    StartsWith,
    TransitionsOnlyOn,
    Words,
    WordsImply,
    read_constraints,
)

LABELS = ["AUTHOR", "DATE", "PAGES", "TITLE"]

TOML = r'''# every kind
scheme = "iobes"
probability = 1e-4

[[constraint]]
kind = "words_imply"
name = "pages"
words = [
    "pp",  # not [[constraint]]
    "pages",
]
words_from = "more/words.txt"
labels = ["PAGES"]
penalty = 4

[[constraint]]
kind = "only_on"
pattern = '[0-9"]+'
labels = ["DATE"]
ignore_case = false
column = "pos"
[[constraint]]
kind = "transitions_only_on"
[[constraint]]
kind = "transitions_only_on"
punctuation = true
words = ["and"]
side = "either"
penalty = "inf"
[[constraint]]
kind = "starts_with"
labels = ["AUTHOR", "TITLE"]
penalty = inf
[[constraint]]
kind = "ends_with"
labels = ["DATE"]
probability = 1
[[constraint]]
kind = "at_most_once"
[[constraint]]
kind = "must_appear"
labels = ["TITLE"]
name = """
[[constraint]]"""
[[constraint]]
kind = "order"
labels = ["AUTHOR", "TITLE"]
[[constraint]]
kind = "field_length"
at_least = 2
at_most = 5
labels = ["DATE"]
[[constraint]]
kind = "count"
labels = ["TITLE"]
at_most = 1
unit = "fields"
'''

USUAL = -math.log(1e-4)
RULES = [
    Penalised(WordsImply(Words(["pp", "pages", "p.", "S"]), ("PAGES",)), 4, "pages"),
    Penalised(
        OnlyOn(("DATE",), Words((), '[0-9"]+', ignore_case=False, column="pos")), USUAL, "only_on"
    ),
    Penalised(TransitionsOnlyOn(), USUAL, "transitions_only_on"),
    Penalised(
        TransitionsOnlyOn(Words(["and"], PUNCTUATION), "either"),
        math.inf,
        "transitions_only_on 2",
    ),
    Penalised(StartsWith(("AUTHOR", "TITLE")), math.inf, "starts_with"),
    Penalised(EndsWith(("DATE",)), 0, "ends_with"),
    Penalised(AtMostOnce(), USUAL, "at_most_once"),
    Penalised(MustAppear(("TITLE",)), USUAL, "[[constraint]]"),
    Penalised(Order(("AUTHOR", "TITLE")), USUAL, "order"),
    Penalised(FieldLength(2, 5, ("DATE",)), USUAL, "field_length"),
    Penalised(Count(("TITLE",), at_most=1, unit="fields"), USUAL, "count"),
]


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Writes a file of constraints and reads it, in the folder where it is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "words.txt").write_text("p.\n\n  S \r\n")
    (tmp_path / "empty.txt").write_text(" \n\n")
    (tmp_path / "latin.txt").write_bytes(b"a\n\xe9\n")

    def write(text, labels=None, name="rules.toml"):
        data = text if isinstance(text, bytes) else text.encode()
        (tmp_path / name).write_bytes(data)
        return read_constraints(name, labels)

    return write


@pytest.mark.parametrize("name", ["r.toml", "R.TOML"])
def test_every_kind(read, name):
    assert read(TOML, LABELS, name) == ConstraintFile(RULES, "iobes")
    assert read("\ufeff" + TOML.replace("\n", "\r\n"), None, name).rules[4:] == RULES[4:]


def test_words_are_looked_for_beside_the_file(read, tmp_path):
    (tmp_path / "more" / "rules.toml").write_text(
        'penalty=1\n[[constraint]]\nkind="words_imply"\nwords_from="words.txt"\nlabels=["A"]\n'
    )
    (found,) = read_constraints(tmp_path / "more" / "rules.toml").rules
    assert found.rule == WordsImply(Words(["p.", "S"]), ("A",))


def test_binding_gives_names_and_penalties(read):
    bound = read(TOML, LABELS).bind(LABELS)
    assert bound.names == tuple(rule.name for rule in RULES)
    assert bound.hard == tuple(rule.penalty == math.inf for rule in RULES)
    soft = [0 if rule.penalty == math.inf else rule.penalty for rule in RULES]
    assert bound.penalties.tolist() == pytest.approx(soft, rel=1e-6)


def test_names_that_are_not_given_do_not_meet_those_that_are(read):
    text = 'penalty=1\n[[constraint]]\nkind="at_most_once"\n' + (
        '[[constraint]]\nkind="at_most_once"\nname="at_most_once"\n'
    )
    assert [rule.name for rule in read(text).rules] == ["at_most_once 2", "at_most_once"]


def of_kind(kind, *lines):
    """A file with one constraint of this kind and these keys."""
    return "\n".join(["# a file", "penalty = 1", "[[constraint]]", f'kind = "{kind}"', *lines])


def at(kind, message, number=1):
    """What is said of a constraint without a name."""
    return f"constraint {number} ({kind}): {message}"


ALL = 'labels = ["TITLE"]'
KINDS = "words_imply, only_on, transitions_only_on, starts_with, ends_with, at_most_once"
STRINGS = "expected a list of one or more strings, got"

WRONG = {
    "syntax": ("penalty = 1\n[[constraint]\n", "expected TOML, got a mistake: ", "(at line 2,"),
    "unfinished": ('[[constraint]]\nkind = "order', "expected TOML, got a mistake: "),
    "twice": ("penalty = 1\npenalty = 2\n", "expected TOML, got a mistake: ", "(at line 2,"),
    "deep": ("penalty = " + "[" * 100_000, "expected TOML, got tables nested too deeply"),
    "empty": ("", "constraint: expected at least one, got none"),
    "no constraint": ("penalty = 1\n", "constraint: expected at least one, got none"),
    "empty list": ("penalty = 1\nconstraint = []\n", "constraint: expected at least one, got none"),
    "one table": (
        'penalty = 1\n[constraint]\nkind = "order"\n',
        "constraint: expected a list of tables, [[constraint]], got {'kind': 'order'}",
    ),
    "no tables": ("\nconstraint = 3\n", "constraint: expected a list of tables, [[constraint]]"),
    "unknown key of the file": ("\npenlty = 1\n", "penlty: expected one of the keys of a file"),
    "scheme": ('\n\nscheme = "bio"\n', "scheme: expected one of plain, iob2, iobes, got 'bio'"),
    "scheme type": ("scheme = []\n", "scheme: expected one of plain, iob2, iobes, got []"),
    "no kind": (
        "penalty=1\n\n[[constraint]]\n" + ALL, f"constraint 1: kind: expected one of {KINDS}",
        "got none",
    ),
    "unknown kind": (
        of_kind("word_implies"), at("word_implies", f"kind: expected one of {KINDS}"),
        "got 'word_implies'",
    ),
    "kind type": ("[[constraint]]\n\nkind = 3\n", f"constraint 1: kind: expected one of {KINDS}"),
    "unknown key": (
        of_kind("order", ALL, "lables = []"),
        at("order", "lables: expected one of the keys of a constraint of kind order (kind, name,"),
    ),
    "key of others": (
        of_kind("order", ALL, 'side = "after"'), at("order", "side: expected one of the keys")
    ),
    "missing labels": (
        of_kind("must_appear"), at("must_appear", "expected the key labels in a constraint of kind")
    ),
    "missing words": (
        of_kind("only_on", ALL),
        at("only_on", "expected the key words or words_from or pattern or punctuation in a"),
    ),
    "missing bounds": (
        of_kind("count", ALL), at("count", "expected the key at_least or at_most in a constraint")
    ),
    "labels type": (of_kind("order", 'labels = "A"'), at("order", f"labels: {STRINGS} 'A'")),
    "labels none": (
        of_kind("starts_with", "labels = []"), at("starts_with", f"labels: {STRINGS} []")
    ),
    "labels tables": (
        of_kind("starts_with", "labels = [{}]"), at("starts_with", f"labels: {STRINGS} [{{}}]")
    ),
    "label type": (
        of_kind("order", 'labels = ["A", 3]'), at("order", f"labels: {STRINGS} ['A', 3]")
    ),
    "order of one": (of_kind("order", ALL), at("order", "labels: expected two fields or more in")),
    "unknown label": (
        of_kind("starts_with", "", 'labels = ["TITEL"]'),
        at("starts_with", "labels: expected one of AUTHOR, DATE, PAGES, TITLE, got 'TITEL'"),
    ),
    "one field in order": (
        'scheme="iob2"\n' + of_kind("order", 'labels = ["TITLE", "TITLE"]'),
        at("order", "labels: expected two fields or more in order"),
    ),
    "expression": (
        of_kind("only_on", ALL, "pattern = '[0-9'"),
        at("only_on", "pattern: expected a regular expression, got '[0-9': "),
    ),
    "pattern type": (
        of_kind("only_on", ALL, "pattern = 3"), at("only_on", "pattern: expected a string, got 3")
    ),
    "words type": (of_kind("only_on", ALL, 'words = "a"'), at("only_on", f"words: {STRINGS} 'a'")),
    "no words": (of_kind("only_on", ALL, "words = []"), at("only_on", f"words: {STRINGS} []")),
    "no file": (
        of_kind("only_on", ALL, 'words_from = "nowhere"'),
        at("only_on", "words_from: nowhere: expected a file, there is none"),
    ),
    "folder": (
        of_kind("only_on", ALL, 'words_from = "more"'),
        at("only_on", "words_from: more: expected a file, got a folder"),
    ),
    "file without words": (
        of_kind("only_on", ALL, 'words_from = "empty.txt"'),
        at("only_on", "words_from: expected one word per line, got none in empty.txt"),
    ),
    "file not UTF-8": (
        of_kind("only_on", ALL, 'words_from = "latin.txt"'),
        at("only_on", "words_from: latin.txt:2: expected text encoded as utf-8, got byte e9"),
    ),
    "punctuation and pattern": (
        of_kind("only_on", ALL, 'pattern = "a"', "punctuation = true"),
        at("only_on", "punctuation: expected no pattern along with it"),
    ),
    "no punctuation": (
        of_kind("only_on", ALL, "punctuation = false"), at("only_on", "punctuation: expected true")
    ),
    "case": (
        of_kind("only_on", ALL, 'words = ["a"]', "ignore_case = 1"),
        at("only_on", "ignore_case: expected true or false, got 1"),
    ),
    "column": (
        of_kind("only_on", ALL, 'words = ["a"]', 'column = ""'),
        at("only_on", "column: expected a string, got ''"),
    ),
    "side": (
        of_kind("transitions_only_on", 'side = "left"'),
        at("transitions_only_on", "side: expected one of before, after, either, got 'left'"),
    ),
    "bound type": (
        of_kind("field_length", "at_least = 1.5"),
        at("field_length", "at_least: expected a whole number, got 1.5"),
    ),
    "bound": (
        of_kind("field_length", "at_least = 0"),
        at("field_length", "at_least: expected a whole number, 1 or more, got 0"),
    ),
    "bounds": (
        of_kind("count", ALL, "at_least = 3", "at_most = 2"),
        at("count", "at_most: expected 3 or more, as at_least says, got 2"),
    ),
    "unit": (
        of_kind("count", ALL, "at_most = 3", 'unit = "tokens"'),
        at("count", "unit: expected one of words, fields, got 'tokens'"),
    ),
    "no penalty": (
        '[[constraint]]\nkind = "at_most_once"\n',
        at("at_most_once", "expected the key penalty or probability, there or for all constraints"),
    ),
    "negative": (
        of_kind("at_most_once", "penalty = -0.5"),
        at("at_most_once", "penalty: expected a number, 0 or more, or inf, got -0.5"),
    ),
    "NaN": (
        of_kind("at_most_once", "penalty = nan"),
        at("at_most_once", "penalty: expected a number, 0 or more, or inf, got nan"),
    ),
    "text": (
        of_kind("at_most_once", 'penalty = "much"'),
        at("at_most_once", "penalty: expected a number, 0 or more, or inf, got 'much'"),
    ),
    "boolean": ("\npenalty = true\n", "penalty: expected a number, 0 or more, or inf, got True"),
    "impossible": ("\nprobability = 0.0\n", "probability: expected more than 0 and at most 1"),
    "too probable": ("\nprobability = 1.5\n", "probability: expected more than 0 and at most 1"),
    "both": ("penalty = 1\nprobability = 1\n", "probability: expected no penalty along with it"),
    "name": (
        of_kind("at_most_once", "name = 3"), at("at_most_once", "name: expected a string, got 3")
    ),
    "same name": (
        of_kind("at_most_once", 'name = "a"', "[[constraint]]", 'kind = "at_most_once"')
        + '\nname = "a"\n',
        at("a", "name: expected one of its own, got 'a' again", 2),
    ),
    "name in messages": (
        of_kind("order", ALL, 'name = "first and last"'),
        at("first and last", "labels: expected two fields or more in order, got ('TITLE',)"),
    ),
    "inline": (
        '\nconstraint = [\n  {kind = "order"}\n]\n',
        at("order", "expected the key labels in a constraint of kind order"),
    ),
    "table inside": (
        of_kind("order", ALL, "[constraint.words]"),
        at("order", "words: expected one of the keys of a constraint of kind order"),
    ),
    "after strings": (
        of_kind("order", 'labels = ["""a\n\n[[constraint]]""", "b"]', "# [[constraint]]", "x = 1"),
        at("order", "x: expected one of the keys"),
    ),
    "second": (
        of_kind("at_most_once", "[[constraint]]", 'kind = "order"', "labels = [",)
        + '\n  "A", # ]\n]\n[[constraint]]\nkind = "nothing"\n',
        at("order", "labels: expected one of AUTHOR, DATE, PAGES, TITLE, got 'A'", 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message", "more"), [(*case, "")[:3] for case in WRONG.values()],
                         ids=WRONG)  # fmt: skip
def test_mistakes(read, text, message, more):
    with pytest.raises(ValueError, match=r"^rules\.toml:") as caught:
        read(text, LABELS)
    assert str(caught.value).startswith(f"rules.toml: {message}")
    assert more in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_file_that_is_not_utf_8_is_refused_with_the_line(read):
    with pytest.raises(
        ValueError, match=r"^rules\.toml:2: expected text encoded as utf-8, got byte"
    ):
        read(b"penalty = 1\n# \xe9\n", LABELS)


def test_what_is_no_file_of_constraints(read, tmp_path):
    with pytest.raises(ValueError, match=r"^rules.ini: expected a file whose name ends with .toml"):
        read("", name="rules.ini")
    with pytest.raises(
        ValueError, match=r"^rules.yaml: expected a file whose name ends with .toml"
    ):
        read("penalty: 1", name="rules.yaml")
    with pytest.raises(ValueError, match=r"^nowhere.toml: expected a file, there is none"):
        read_constraints("nowhere.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(ValueError, match=r"^folder.toml: expected a file, got a folder"):
        read_constraints("folder.toml")
