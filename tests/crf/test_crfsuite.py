"""Models of CRFsuite give the same answers here; and training ends at the same objective."""

import re

import numpy as np
import pytest

import jaxseq
from tests.taggers.toys import toy_corpus

pycrfsuite = pytest.importorskip("pycrfsuite", reason="python-crfsuite is not installed")

STRANGE = ["a b", "x --> y", "(0) a --> A: 3", "c:d", "", "tab\there", "line\nbreak", "ü\\", "}"]
STRANGE_LABELS = {"A": "A", "B": "B --> 2", "C": "(1) C: 0.5"}


def train_crfsuite(path, X, y, **params):
    """A model file and the loss that its training reported last."""
    trainer = pycrfsuite.Trainer(verbose=False)
    for sentence, labels in zip(X, y):
        trainer.append(pycrfsuite.ItemSequence(sentence), labels)
    trainer.set_params(params)
    trainer.train(str(path))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(path))
    return tagger, trainer.logparser.last_iteration["loss"]


def imported(theirs, path):
    theirs.dump(str(path))
    return jaxseq.import_crfsuite(path)


def their_marginals(theirs, sentence, classes):
    theirs.set(pycrfsuite.ItemSequence(sentence))
    return np.array([[theirs.marginal(c, t) for c in classes] for t in range(len(sentence))])


def assert_same_answers(theirs, ours, X):
    for sentence, path, proba in zip(X, ours.predict(X), ours.predict_proba(X)):
        expected = their_marginals(theirs, sentence, ours.classes_)
        np.testing.assert_allclose(proba, expected, atol=1e-5)
        assert path == theirs.tag(pycrfsuite.ItemSequence(sentence))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("everything", [0, 1])
def test_import_gives_the_same_marginals_and_paths(seed, everything, tmp_path):
    X, y = toy_corpus(seed)
    unseen, _ = toy_corpus(seed + 100)
    for sentence in unseen:
        sentence[0] = {**sentence[0], "never": "seen", "nor this": -2.5}
    params = {"feature.possible_states": everything, "feature.possible_transitions": everything}
    theirs, _ = train_crfsuite(tmp_path / "m", X, y, c1=0.01 * seed, c2=0.05, **params)
    ours = imported(theirs, tmp_path / "dump")
    assert ours.classes_.tolist() == ["A", "B", "C"]
    assert_same_answers(theirs, ours, X + unseen)


def strange_corpus():
    X, y = toy_corpus(3)
    rng = np.random.default_rng(0)
    X = [
        [{STRANGE[k]: float(v) for k, v in enumerate(rng.normal(size=len(STRANGE)))} for _ in s]
        for s in X
    ]
    return X, [[STRANGE_LABELS[label] for label in labels] for labels in y]


def test_import_reads_names_that_look_like_the_dump(tmp_path):
    X, y = strange_corpus()
    theirs, _ = train_crfsuite(
        tmp_path / "m", X, y, c1=0, c2=0.05, **{"feature.possible_states": 1}
    )
    ours = imported(theirs, tmp_path / "dump")
    assert sorted(ours.extractor_.attribute_names()) == sorted(STRANGE)
    assert ours.classes_.tolist() == sorted(STRANGE_LABELS.values())
    assert_same_answers(theirs, ours, X)


def test_import_reads_dumps_with_line_ends_of_windows(tmp_path):
    X, y = toy_corpus(0)
    theirs, _ = train_crfsuite(tmp_path / "m", X, y, c1=0, c2=0.05)
    plain = imported(theirs, tmp_path / "dump")
    (tmp_path / "dump").write_bytes((tmp_path / "dump").read_bytes().replace(b"\n", b"\r\n"))
    again = jaxseq.import_crfsuite(tmp_path / "dump")
    assert again.extractor_.attribute_names() == plain.extractor_.attribute_names()
    np.testing.assert_array_equal(again.model_.weights, plain.model_.weights)


def test_imported_model_can_be_saved_and_warm_start(tmp_path):
    X, y = toy_corpus(0)
    theirs, _ = train_crfsuite(tmp_path / "m", X, y, c1=0, c2=0.5)
    ours = imported(theirs, tmp_path / "dump")
    ours.save(tmp_path / "saved")
    loaded = jaxseq.load(tmp_path / "saved")
    for a, b in zip(ours.predict_proba(X), loaded.predict_proba(X)):
        np.testing.assert_array_equal(a, b)
    # The weights are nearly those of the optimum here: the search begins below its cold start.
    cold = jaxseq.CRFTagger(max_iterations=1, cores=1).fit(X, y)
    warm = jaxseq.CRFTagger(max_iterations=1, cores=1).fit(X, y, warm_start_from=ours)
    assert warm.loss_ < cold.loss_ - 0.1


def test_import_reads_more_attributes_than_five_digits_number(tmp_path):
    """From 100,000 on, the numbers of a dump are wider than their column."""
    count = 100_003
    names = [f"w{number}" for number in range(count)]
    X = [[{name: 1.0 for name in names[start : start + 5000]}] for start in range(0, count, 5000)]
    y = [["AB"[number % 2]] for number in range(len(X))]
    theirs, _ = train_crfsuite(tmp_path / "m", X, y, c1=0, c2=1.0, max_iterations=2)
    ours = imported(theirs, tmp_path / "dump")
    assert ours.extractor_.attribute_count == count
    assert_same_answers(theirs, ours, X[-2:])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("weights", "everything"), [("observed", 0), ("dense", 1)])
def test_training_ends_at_the_objective_of_crfsuite(seed, weights, everything, tmp_path):
    """CRFsuite has no scores of starting and stopping. Marks on the first and last token, given
    to CRFsuite only, have the same effect, and the same penalty."""
    X, y = toy_corpus(seed, sentences=30)
    marked = [[dict(token) for token in sentence] for sentence in X]
    for sentence in marked:
        sentence[0]["first"] = True
        sentence[-1]["last"] = True
    params = {"feature.possible_states": everything, "feature.possible_transitions": everything}
    precise = {"epsilon": 1e-9, "delta": 1e-9, "max_iterations": 2000}
    l2 = 0.5
    theirs, loss = train_crfsuite(tmp_path / "m", marked, y, c1=0, c2=l2 / 2, **params, **precise)
    ours = jaxseq.CRFTagger(l2=l2, weights=weights, tolerance=1e-7, cores=1).fit(X, y)
    assert ours.loss_ == pytest.approx(loss, rel=2e-5)
    for with_marks, proba in zip(marked, ours.predict_proba(X)):
        expected = their_marginals(theirs, with_marks, ours.classes_)
        np.testing.assert_allclose(proba, expected, atol=3e-3)


def test_l1_training_ends_at_the_objective_of_crfsuite(tmp_path):
    X, y = toy_corpus(1, sentences=30)
    marked = [[dict(token) for token in sentence] for sentence in X]
    for sentence in marked:
        sentence[0]["first"] = True
        sentence[-1]["last"] = True
    _, loss = train_crfsuite(
        tmp_path / "m", marked, y, c1=0.7, c2=0.1, epsilon=1e-9, delta=1e-9, max_iterations=2000
    )
    ours = jaxseq.CRFTagger(l1=0.7, l2=0.2, weights="observed", tolerance=1e-7, cores=1).fit(X, y)
    assert ours.loss_ == pytest.approx(loss, rel=1e-4)


# ------------------------------------------------------------------------------------- errors

DUMP = """FILEHEADER = {
  magic: lCRF
  num_labels: 2
  num_attrs: 2
}

LABELS = {
      0: V
      1: N
}

ATTRIBUTES = {
      0: w:dog
      1: long
}

TRANSITIONS = {
  (1) N --> V: 2.000000
}

STATE_FEATURES = {
  (0) w:dog --> N: 1.500000
  (0) long --> V: -0.250000
}

"""


def test_import_puts_weights_in_their_places(tmp_path):
    (tmp_path / "dump").write_text(DUMP)
    tagger = jaxseq.import_crfsuite(tmp_path / "dump")
    assert tagger.classes_.tolist() == ["N", "V"]
    assert tagger.extractor_.attribute_names() == ["w:dog", "long"]
    assert tagger.model_.weights.tolist() == [[1.5, 0], [0, -0.25]]
    assert tagger.model_.transitions.tolist() == [[0, 2], [0, 0]]
    assert tagger.model_.start.tolist() == tagger.model_.stop.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("FILEHEADER = {", "HEADER = {", 1, "expected 'FILEHEADER = {'"),
        (DUMP, "", 1, "expected 'FILEHEADER = {', found the end"),
        ("  num_labels: 2", "  num_labels: 3", 3, "num_labels: expected the number of names, 2"),
        ("  num_attrs: 2\n", "", 11, "expected 'num_attrs'"),
        ("      1: N\n", "      1: V\n", 9, "expected different names"),
        ("      0: V\n", "zero: V\n", 8, "LABELS: expected an entry"),
        ("ATTRIBUTES = {", "ATTRIBUTE = {", 12, "expected 'ATTRIBUTES = {'"),
        ("N --> V: 2", "N --> X: 2", 18, "found no way"),
        ("N --> V: 2.0", "N --> V: two", 18, "expected '  (1) name --> label: number'"),
        ("V: -0.25", "V: nan", 23, "expected '  (0) name --> label: number'"),
        ("w:dog --> N", "w:cat --> N", 22, "found no way"),
        ("(0) long --> V", "(0) w:dog --> N", 23, "expected a feature once"),
        ("-0.250000\n}\n\n", "-0.250000\n", 24, "cut off"),
        ("-0.250000\n}\n\n", "-0.250000\n}\n\nmore\n", 26, "expected the end of the dump"),
    ],
)
def test_import_says_where_a_dump_is_wrong(old, new, line, says, tmp_path):
    assert old in DUMP
    path = tmp_path / "dump"
    path.write_text(DUMP.replace(old, new))
    with pytest.raises(ValueError, match=re.escape(f"{path}:{line}: ") + ".*" + re.escape(says)):
        jaxseq.import_crfsuite(path)


def test_import_refuses_what_can_be_read_in_two_ways(tmp_path):
    text = DUMP.replace("1: N", "1: b --> c").replace("0: V", "0: c").replace("1: long", "1: a")
    text = text.replace("0: w:dog", "0: a --> b")
    text = re.sub(r"  \(\d\) .*\n", "", text)
    text = text.replace("STATE_FEATURES = {\n", "STATE_FEATURES = {\n  (0) a --> b --> c: 1.0\n")
    (tmp_path / "dump").write_text(text)
    with pytest.raises(ValueError, match="2 ways"):
        jaxseq.import_crfsuite(tmp_path / "dump")


def test_import_refuses_bytes_that_are_no_text(tmp_path):
    (tmp_path / "dump").write_bytes(b"FILEHEADER = {\n  magic: \xff\n")
    with pytest.raises(ValueError, match=r"dump:2: expected text in UTF-8"):
        jaxseq.import_crfsuite(tmp_path / "dump")


def test_import_of_the_binary_model_itself_says_that_it_is_no_dump(tmp_path):
    train_crfsuite(tmp_path / "m", *toy_corpus(0), c1=0, c2=1)
    with pytest.raises(ValueError, match=r"m:\d: expected text in UTF-8"):
        jaxseq.import_crfsuite(tmp_path / "m")
