"""Files of constraints: what they mean, and where their mistakes are."""

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
    Tokens,
    TransitionsOnlyOn,
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

YAML = r"""
scheme: iobes
probability: 1e-4
constraint:
- {kind: words_imply, name: pages, words: [pp, pages], words_from: more/words.txt,
   labels: [PAGES], penalty: 4}
- kind: only_on
  pattern: '[0-9"]+'
  labels: [DATE]
  ignore_case: false
  column: pos
- kind: transitions_only_on
- {kind: transitions_only_on, punctuation: true, words: [and], side: either, penalty: inf}
- {kind: starts_with, labels: [AUTHOR, TITLE], penalty: .inf}
- {kind: ends_with, labels: [DATE], probability: 1.0}
- kind: at_most_once
- kind: must_appear
  labels:
  - TITLE
  name: "[[constraint]]"
- {kind: order, labels: [AUTHOR, TITLE]}
- {kind: field_length, at_least: 2, at_most: 5, labels: [DATE]}
- {kind: count, labels: [TITLE], at_most: 1, unit: fields}
"""

USUAL = -math.log(1e-4)
RULES = [
    Penalised(WordsImply(Tokens(["pp", "pages", "p.", "S"]), ("PAGES",)), 4, "pages"),
    Penalised(
        OnlyOn(("DATE",), Tokens((), '[0-9"]+', ignore_case=False, column="pos")), USUAL, "only_on"
    ),
    Penalised(TransitionsOnlyOn(), USUAL, "transitions_only_on"),
    Penalised(
        TransitionsOnlyOn(Tokens(["and"], PUNCTUATION), "either"),
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


@pytest.mark.parametrize(("name", "text"), [("r.toml", TOML), ("r.yaml", YAML), ("R.YML", YAML)])
def test_every_kind(read, name, text):
    assert read(text, LABELS, name) == ConstraintFile(RULES, "iobes")
    assert read("\ufeff" + text.replace("\n", "\r\n"), None, name).rules[4:] == RULES[4:]


def test_words_are_looked_for_beside_the_file(read, tmp_path):
    (tmp_path / "more" / "rules.toml").write_text(
        'penalty=1\n[[constraint]]\nkind="words_imply"\nwords_from="words.txt"\nlabels=["A"]\n'
    )
    (found,) = read_constraints(tmp_path / "more" / "rules.toml").rules
    assert found.rule == WordsImply(Tokens(["p.", "S"]), ("A",))


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
    """A file with one constraint, whose kind stands in line 4 and the other keys from 5 on."""
    return "\n".join(["# a file", "penalty = 1", "[[constraint]]", f'kind = "{kind}"', *lines])


ALL = 'labels = ["TITLE"]'
KINDS = "words_imply, only_on, transitions_only_on, starts_with, ends_with, at_most_once"

WRONG = {
    "syntax": ("penalty = 1\n[[constraint]\n", "2: expected TOML"),
    "unfinished": ('[[constraint]]\nkind = "order', "2: expected TOML"),
    "twice": ("penalty = 1\npenalty = 2\n", "2: expected TOML"),
    "deep": ("penalty = " + "[" * 100_000, "1: expected TOML"),
    "empty": ("", "1: expected a constraint, found none"),
    "no constraint": ("penalty = 1\n", "1: expected a constraint, found none"),
    "empty list": ("penalty = 1\nconstraint = []\n", "2: constraint: expected a constraint"),
    "one table": (
        'penalty = 1\n[constraint]\nkind = "order"\n',
        "2: constraint: expected a list of tables ([[constraint]] in TOML, - in YAML), got a table",
    ),
    "no tables": ("\nconstraint = 3\n", "2: constraint: expected a list of tables"),
    "unknown key of the file": ("\npenlty = 1\n", "2: penlty: expected one of the keys"),
    "scheme": ('\n\nscheme = "bio"\n', "3: scheme: expected one of plain, iob2, iobes, got 'bio'"),
    "scheme type": ("scheme = []\n", "1: scheme: expected one of plain"),
    "no kind": ("penalty=1\n\n[[constraint]]\n" + ALL, f"3: kind: expected one of {KINDS}"),
    "unknown kind": (of_kind("word_implies"), f"4: kind: expected one of {KINDS}"),
    "kind type": ("[[constraint]]\n\nkind = 3\n", f"3: kind: expected one of {KINDS}"),
    "unknown key": (of_kind("order", ALL, "lables = []"), "6: lables: expected one of the keys"),
    "key of others": (of_kind("order", ALL, 'side = "after"'), "6: side: expected one of the keys"),
    "missing labels": (of_kind("must_appear"), "3: expected the key labels in a constraint"),
    "missing tokens": (of_kind("only_on", ALL), "3: expected the key words or words_from or patt"),
    "missing bounds": (of_kind("count", ALL), "3: expected the key at_least or at_most"),
    "labels type": (of_kind("order", 'labels = "A"'), "5: labels: expected a list of one or more"),
    "labels none": (of_kind("starts_with", "labels = []"), "5: labels: expected a list of one or"),
    "labels tables": (of_kind("starts_with", "labels = [{}]"), "5: labels: expected a list of one"),
    "label type": (of_kind("order", 'labels = ["A", 3]'), "5: labels: expected strings, got 3"),
    "order of one": (of_kind("order", ALL), "5: labels: expected two or more"),
    "unknown label": (
        of_kind("starts_with", "", 'labels = ["TITEL"]'),
        "6: labels: expected one of AUTHOR, DATE, PAGES, TITLE, got 'TITEL'",
    ),
    "one field in order": (
        'scheme="iob2"\n' + of_kind("order", 'labels = ["TITLE", "TITLE"]'),
        "6: labels: expected two or more",
    ),
    "expression": (
        of_kind("only_on", ALL, "pattern = '[0-9'"),
        "6: pattern: expected a regular expression, got '[0-9': ",
    ),
    "pattern type": (of_kind("only_on", ALL, "pattern = 3"), "6: pattern: expected a string, got"),
    "words type": (of_kind("only_on", ALL, 'words = "a"'), "6: words: expected a list of one or"),
    "no words": (of_kind("only_on", ALL, "words = []"), "6: words: expected a list of one or more"),
    "no file": (
        of_kind("only_on", ALL, 'words_from = "nowhere"'),
        "6: words_from: nowhere: expected a file, there is none",
    ),
    "folder": (
        of_kind("only_on", ALL, 'words_from = "more"'),
        "6: words_from: more: expected a file, found a folder",
    ),
    "file without words": (
        of_kind("only_on", ALL, 'words_from = "empty.txt"'),
        "6: words_from: expected a word a line, found none in empty.txt",
    ),
    "file not UTF-8": (
        of_kind("only_on", ALL, 'words_from = "latin.txt"'),
        "6: words_from: latin.txt:2: expected text encoded as utf-8, found byte e9",
    ),
    "punctuation and pattern": (
        of_kind("only_on", ALL, 'pattern = "a"', "punctuation = true"),
        "7: punctuation: expected no pattern along with it",
    ),
    "no punctuation": (
        of_kind("only_on", ALL, "punctuation = false"),
        "6: punctuation: expected true",
    ),
    "case": (
        of_kind("only_on", ALL, 'words = ["a"]', "ignore_case = 1"),
        "7: ignore_case: expected true or false, got 1",
    ),
    "column": (
        of_kind("only_on", ALL, 'words = ["a"]', 'column = ""'),
        "7: column: expected a string, got ''",
    ),
    "side": (
        of_kind("transitions_only_on", 'side = "left"'),
        "5: side: expected one of before, after, either, got 'left'",
    ),
    "bound type": (of_kind("field_length", "at_least = 1.5"), "5: at_least: expected a whole numb"),
    "bound": (of_kind("field_length", "at_least = 0"), "5: at_least: expected a whole number, 1"),
    "bounds": (
        of_kind("count", ALL, "at_least = 3", "at_most = 2"),
        "7: at_most: expected 3 or more, as at_least says, got 2",
    ),
    "unit": (
        of_kind("count", ALL, "at_most = 3", 'unit = "tokens"'),
        "7: unit: expected one of words, fields, got 'tokens'",
    ),
    "no penalty": (
        '[[constraint]]\nkind = "at_most_once"\n',
        "1: expected the key penalty or probability, here or for all constraints, got none",
    ),
    "negative": (of_kind("at_most_once", "penalty = -0.5"), "5: penalty: expected a number, 0 or"),
    "NaN": (of_kind("at_most_once", "penalty = nan"), "5: penalty: expected a number, 0 or more"),
    "text": (of_kind("at_most_once", 'penalty = "much"'), "5: penalty: expected a number, 0 or m"),
    "boolean": ("\npenalty = true\n", "2: penalty: expected a number, 0 or more, or inf, got True"),
    "impossible": ("\nprobability = 0.0\n", "2: probability: expected more than 0 and at most 1"),
    "too probable": ("\nprobability = 1.5\n", "2: probability: expected more than 0 and at most"),
    "both": ("penalty = 1\nprobability = 1\n", "2: probability: expected no penalty along with"),
    "name": (of_kind("at_most_once", "name = 3"), "5: name: expected a string, got 3"),
    "same name": (
        of_kind("at_most_once", 'name = "a"', "[[constraint]]", 'kind = "at_most_once"')
        + '\nname = "a"\n',
        "8: name: expected one that no other constraint has, got 'a' again",
    ),
    "inline": (
        '\nconstraint = [\n  {kind = "order"}\n]\n',
        "2: expected the key labels in a constraint of kind order",
    ),
    "table inside": (
        of_kind("order", ALL, "[constraint.words]"),
        "6: words: expected one of the keys",
    ),
    "after strings": (
        of_kind("order", 'labels = ["""a\n\n[[constraint]]""", "b"]', "# [[constraint]]", "x = 1"),
        "9: x: expected one of the keys",
    ),
    "second": (
        of_kind("at_most_once", "[[constraint]]", 'kind = "order"', "labels = [",)
        + '\n  "A", # ]\n]\n[[constraint]]\nkind = "nothing"\n',
        "7: labels: expected two or more",
    ),
    "bytes": (b"penalty = 1\n# \xe9\n", "2: expected text encoded as utf-8, found byte e9"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_mistakes_in_toml(read, text, message):
    with pytest.raises(ValueError, match=r"^rules\.toml:") as caught:
        read(text, LABELS)
    assert str(caught.value).startswith(f"rules.toml:{message}")
    assert len(str(caught.value)) < 400


HEAD = "penalty: 1\nconstraint:\n"
WRONG_YAML = {
    "syntax": ("penalty: 1\nconstraint: [\n", "3: expected YAML"),
    "character": ("penalty: 1\n\0", "2: expected YAML"),
    "deep": ("penalty: " + "[" * 100_000, "1: expected YAML"),
    "empty": ("# nothing\n", "1: expected a constraint, found none"),
    "list": ("\n- kind: order\n", "2: expected keys and values"),
    "scalar": ("order\n", "1: expected keys and values, got 'order'"),
    "two documents": ("penalty: 1\n---\npenalty: 1\n", "2: expected YAML"),
    "code": ("penalty: !!python/object/apply:os.getcwd []\n", "1: expected YAML"),
    "recursive": (HEAD + "- &a [*a]\n", "3: expected YAML"),
    "endless": ("constraint: &a\n- kind: *a\n", "1: expected YAML"),
    "date": ("penalty: 2001-99-99\n", "1: expected a value that YAML can read, got '2001-99-99'"),
    "twice": (HEAD + "- kind: order\n  kind: count\n", "4: kind: expected once"),
    "key": ("[a]: 1\n", "1: expected the name of a key"),
    "unknown key": (HEAD + "- kind: order\n  lables: [A, B]\n", "4: lables: expected one of the"),
    "one mapping": (HEAD + "  kind: order\n", "2: constraint: expected a list of tables"),
    "mixed": (HEAD + "- kind: order\n- 3\n", "2: constraint: expected a list of tables"),
    "boolean": (HEAD + "- kind: only_on\n  labels: [DATE]\n  words: [yes]\n", "5: words: expected"),
    "label": (HEAD + "- kind: starts_with\n\n  labels: [X]\n", "5: labels: expected one of AUTHOR"),
    "negative": (HEAD + "- {kind: at_most_once,\n   penalty: -1}\n", "4: penalty: expected a numb"),
    "NaN": ("penalty: .nan\n", "1: penalty: expected a number, 0 or more, or inf, got nan"),
    "expression": (HEAD + "- kind: only_on\n  labels: [DATE]\n  pattern: (\n", "5: pattern: expe"),
    "second": (HEAD + "- kind: at_most_once\n- kind: order\n", "4: expected the key labels"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG_YAML.values(), ids=WRONG_YAML)
def test_mistakes_in_yaml(read, text, message):
    with pytest.raises(ValueError, match=r"^rules\.yaml:") as caught:
        read(text, LABELS, "rules.yaml")
    assert str(caught.value).startswith(f"rules.yaml:{message}")
    assert len(str(caught.value)) < 400


def test_many_times_the_same_alias_is_no_burden(read):
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60)]
    with pytest.raises(ValueError, match=r"^rules.yaml:1: a0: expected one of the keys"):
        read("\n".join(lines), None, "rules.yaml")
    listed = lines[0].replace("a0:", "scheme:", 1) + "\npenalty: [*a0, *a0]\n"
    with pytest.raises(ValueError, match=r"^rules.yaml:1: scheme: expected one of plain"):
        read(listed, None, "rules.yaml")


def test_what_is_no_file_of_constraints(read, tmp_path):
    with pytest.raises(ValueError, match=r"^rules.ini: expected a file whose name ends with .toml"):
        read("", name="rules.ini")
    with pytest.raises(ValueError, match=r"^nowhere.toml: expected a file, there is none"):
        read_constraints("nowhere.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(ValueError, match=r"^folder.toml: expected a file, found a folder"):
        read_constraints("folder.toml")
