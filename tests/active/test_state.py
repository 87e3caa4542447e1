"""Active learning on disk: killed anywhere it goes on as if it had not been; bad answers are
refused, and change nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

import jaxseq
from jaxseq import _io
from jaxseq.active import Answer, SequenceQueries, SpanQueries, TokenQueries, _run
from jaxseq.active._run import DATABASE, MODEL, NEXT, RunFolder
from jaxseq.representations import learn_representation
from tests.taggers.toys import LABELS, toy_corpus, words_of

DICTS, Y = toy_corpus(5, sentences=30)
X = words_of(DICTS)
ROUNDS = 3


def new_learner(strategy=TokenQueries(4, 0.95), **settings):  # noqa: B008 - immutable
    tagger = jaxseq.CRFTagger(["word[0]", "word[-1]"], cores=1, l2=0.5, weights="dense",
                              max_iterations=8)  # fmt: skip
    return jaxseq.ActiveLearner(tagger, strategy, initial=2, **settings)


def gold(queries) -> list[Answer]:
    return [
        Answer(q.sentence, t, Y[q.sentence][t]) for q in queries for t in range(q.start, q.stop)
    ]


def go_on(learner) -> None:
    """To the end, with answers in two batches a round."""
    while learner.status().round < ROUNDS:
        answers = gold(learner.propose())
        learner.answer(answers[: len(answers) // 2])
        learner.answer(gold(learner.propose()))
        learner.train()
    learner.propose()


def outcome_of(learner) -> tuple:
    """All that another run must agree with, to the bit."""
    known = learner._run.known
    model = learner.tagger_.model_
    return (
        learner.propose(),
        learner.status(),
        known.answered.tolist(),
        known.guessed.tolist(),
        known.sampled.tolist(),
        [np.asarray(leaf).tobytes() for leaf in (model.weights, model.transitions)],
        [record["kappa"] for record in learner.history_],
    )


STRATEGIES = {
    "tokens": TokenQueries(4, 0.95),
    "guesses": SequenceQueries(3, ask="unsure", threshold=0.7, keep_sure="model"),
}


@pytest.fixture(scope="module", params=STRATEGIES)
def uninterrupted(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("active") / "run"
    learner = new_learner(STRATEGIES[request.param]).begin(X, classes=LABELS, folder=folder)
    go_on(learner)
    return STRATEGIES[request.param], outcome_of(learner), folder


class Killed(BaseException):
    """Nothing in the library may catch it."""


class Killer:
    """Kills the process, as it were, at one of the moments at which the disk changes."""

    def __init__(self, monkeypatch, at: int):
        self.left = at
        real_append, real_insert, real_replace = RunFolder.append, _run._insert, os.replace

        def append(folder, events):
            self.tick()
            real_append(folder, events)
            self.tick()

        def insert(database, events):
            events = list(events)
            real_insert(database, events[: len(events) // 2])
            self.tick()  # half of what was to be written has arrived
            real_insert(database, events[len(events) // 2 :])
            self.tick()  # all has, and is not committed yet

        def remove(folder):
            self.tick()
            if self.left == 0:  # killed with half of it removed
                for file in list(folder.iterdir())[:1] if folder.is_dir() else []:
                    file.unlink()
            self.tick()
            real_remove(folder)
            self.tick()

        def replace(source, target):
            self.tick()
            real_replace(source, target)
            self.tick()

        real_remove = _run._remove
        monkeypatch.setattr(RunFolder, "append", append)
        monkeypatch.setattr(_run, "_insert", insert)
        monkeypatch.setattr(_run, "_remove", remove)
        monkeypatch.setattr(_run.os, "replace", replace)

    def tick(self) -> None:
        self.left -= 1
        if self.left == -1:
            raise Killed


def test_killed_anywhere_it_ends_the_same(uninterrupted, tmp_path):
    strategy, wanted, _ = uninterrupted
    survived, at = False, 0
    while not survived:
        folder = tmp_path / str(at)
        learner = new_learner(strategy).begin(X, classes=LABELS, folder=folder)
        with pytest.MonkeyPatch.context() as patch:
            Killer(patch, at)
            try:
                go_on(learner)
                survived = True
            except Killed:
                pass
        again = jaxseq.ActiveLearner.resume(folder, X)
        if not survived:
            answered = again._run.known.answered.sum()
            assert answered >= learner._run.known.answered.sum()  # no answer is lost
        go_on(again)
        assert outcome_of(again) == wanted, f"killed at moment {at}"
        at += 5  # of more than a hundred moments
    assert at > 40


def test_a_finished_folder_says_the_same(uninterrupted):
    _, wanted, folder = uninterrupted
    assert outcome_of(jaxseq.ActiveLearner.resume(folder, X)) == wanted
    loaded = jaxseq.load(folder / "model")
    assert loaded.classes_.tolist() == LABELS
    kinds = {event["kind"] for event in RunFolder(folder).events()}
    assert kinds == {"proposed", "answers", "trained"}
    assert sorted(entry.name for entry in folder.iterdir()) == [MODEL, DATABASE]


def test_labels_given_with_the_pool_come_back(tmp_path):
    y = [None, ["A", {"A", "B"}, *[None] * (len(X[1]) - 2)][: len(X[1])], *[None] * (len(X) - 2)]
    y[1][0] = "A"
    begun = new_learner(SpanQueries(2, 4, 0.9)).begin(X, y, LABELS, folder=tmp_path / "run")
    assert begun.propose() == []  # something to train on is there
    again = jaxseq.ActiveLearner.resume(tmp_path / "run", X)
    assert again.strategy == SpanQueries(2, 4, 0.9)
    np.testing.assert_array_equal(again._run.known._allowed, begun._run.known._allowed)
    np.testing.assert_array_equal(again._run.known.answered, begun._run.known.answered)
    assert again.status() == begun.status()
    assert again.status().labelled_sentences == 1


def test_labels_that_are_taken_back_count_as_never_given(tmp_path):
    y = [["A", *[None] * (len(X[0]) - 1)], *[None] * (len(X) - 1)]
    learner = new_learner().begin(X, y, LABELS, folder=tmp_path / "run")
    nothing = new_learner().begin(X, classes=LABELS)._run.known
    learner.answer([Answer(1, 0, "A"), Answer(1, 1, "B"), Answer(2, 0, "C")])
    learner.retract([(1, 0), (0, 0), (2, 0), (2, 1)])  # of the last nothing is known
    learner.answer([Answer(2, 0, ("A", "B"))])
    expected = nothing._allowed.copy()
    first, second = len(X[0]), len(X[0]) + len(X[1])
    expected[first + 1] = [label == "B" for label in LABELS]
    expected[second] = [label in "AB" for label in LABELS]
    for found in (learner, jaxseq.ActiveLearner.resume(tmp_path / "run", X)):
        known = found._run.known
        np.testing.assert_array_equal(known._allowed, expected)
        assert np.flatnonzero(known.answered).tolist() == [first + 1, second]
        assert (known.label_at(1, 1), known.label_at(2, 0), known.label_at(0, 0)) == (
            "B",
            ("A", "B"),
            None,
        )
    with pytest.raises(ValueError, match=r"tokens\[1\]\.position: expected"):
        learner.retract([(1, 1), (1, len(X[1]))])
    assert learner.status().labelled_tokens == 2


def test_a_query_is_asked_again_when_its_answer_is_taken_back():
    learner = new_learner().begin(X, classes=LABELS)
    queries = learner.propose()
    learner.answer(gold(queries))
    assert learner.propose() == []
    learner.retract([(queries[1].sentence, queries[1].start)])
    assert learner.propose() == queries[1:]


def test_answers_that_came_at_once_are_all_there_or_none(tmp_path):
    """Half of a correction could be illegal, and then nothing could be read any more.

    A process is really killed in the middle of a transaction of which a part is in the file.
    """
    tagger = jaxseq.CRFTagger(["word[0]"], scheme="IOB2", cores=1)
    words, folder = [["a", "b"]], tmp_path / "run"
    learner = jaxseq.ActiveLearner(tagger).begin(words, classes=["B-X", "I-X", "O"], folder=folder)
    learner.answer([Answer(0, 0, "B-X"), Answer(0, 1, "I-X")])
    before = RunFolder(folder).events()
    code = f"""
import os, signal, sqlite3
database = sqlite3.connect({str(folder / DATABASE)!r}, isolation_level=None)
database.execute("PRAGMA cache_size = 1")  # so that pages go to the file before the commit
database.execute("BEGIN IMMEDIATE")
event = '{{"kind": "answers", "round": 0, "answers": [[0, 0, "O"]]}}'
for _ in range(2000):
    database.execute("INSERT INTO events (text) VALUES (?)", [event])
os.kill(os.getpid(), signal.SIGKILL)
"""
    size = (folder / DATABASE).stat().st_size
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert (folder / DATABASE).stat().st_size > size  # some of it has arrived
    assert (folder / f"{DATABASE}-journal").exists()
    looking = jaxseq.ActiveLearner.resume(folder, words, read_only=True)
    assert looking._run.known.label_at(0, 0) == "B-X"
    assert RunFolder(folder).events() == before
    learner.answer([Answer(0, 0, "O"), Answer(0, 1, "O")])
    known = jaxseq.ActiveLearner.resume(folder, words)._run.known
    assert (known.label_at(0, 0), known.label_at(0, 1)) == ("O", "O")


def test_a_look_on_sees_nothing_of_what_is_not_committed(tmp_path):
    folder = tmp_path / "run"
    learner = new_learner().begin(X, classes=LABELS, folder=folder)
    learner.answer([Answer(0, 0, "A")])
    event = {"kind": "answers", "round": 0, "answers": [[0, 1, "A"]]}
    with RunFolder(folder)._transaction(write=True) as database:
        _run._insert(database, [event])
        looking = jaxseq.ActiveLearner.resume(folder, X, read_only=True)
        assert looking.status().labelled_tokens == 1
    looking = jaxseq.ActiveLearner.resume(folder, X, read_only=True)
    assert looking.status().labelled_tokens == 2


def test_two_writers_wait_for_each_other_and_then_give_up(tmp_path, monkeypatch):
    monkeypatch.setattr(_run, "BUSY", 0.05)
    learner = new_learner().begin(X, classes=LABELS, folder=tmp_path / "run")
    with (
        RunFolder(tmp_path / "run")._transaction(write=True),
        pytest.raises(OSError, match=f"{DATABASE}: database is locked"),
    ):
        learner.answer([Answer(0, 0, "A")])
    assert learner.status().labelled_tokens == 0


def test_a_disk_that_is_full_leaves_the_run_as_it_was(tmp_path):
    resource = pytest.importorskip("resource")
    learner = new_learner().begin(X, classes=LABELS, folder=tmp_path / "run")
    learner.answer([Answer(0, 0, "A")])
    before = RunFolder(tmp_path / "run").events()
    size = (tmp_path / "run" / DATABASE).stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        with pytest.raises(OSError, match=f"{DATABASE}: "):
            learner.answer([Answer(s, 0, "A") for s in range(len(X))] * 50)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert RunFolder(tmp_path / "run").events() == before
    assert learner.status().labelled_tokens == 1
    learner.answer([Answer(0, 2, "B")])
    assert jaxseq.ActiveLearner.resume(tmp_path / "run", X).status().labelled_tokens == 2


def test_killed_at_the_very_start_there_is_no_run_yet(tmp_path, monkeypatch):
    """Labels known from the start are there as soon as the run is."""

    def insert(database, events):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(_run, "_insert", insert)
        with pytest.raises(Killed):
            new_learner().begin(X, Y, LABELS, folder=tmp_path / "run")
    with pytest.raises(ValueError, match=f"{DATABASE}: expected the format of a run"):
        jaxseq.ActiveLearner.resume(tmp_path / "run", X)
    new_learner().begin(X, Y, LABELS, folder=tmp_path / "other")
    assert len(RunFolder(tmp_path / "other").events()) == len(X)


def test_a_training_that_the_run_does_not_know_of_is_forgotten(tmp_path):
    folder = tmp_path / "run"
    learner = new_learner().begin(X, classes=LABELS, folder=folder)
    learner.answer(gold(learner.propose()))
    (folder / NEXT).mkdir()
    (folder / NEXT / "model.json").write_text("half of a mod")
    again = jaxseq.ActiveLearner.resume(folder, X)
    assert not (folder / NEXT).exists()
    assert again.status().round == 0


def test_a_save_that_was_killed_leaves_nothing_for_ever(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    learner = new_learner().begin(X, classes=LABELS, folder=folder)
    learner.answer(gold(learner.propose()))
    before = sorted(path.name for path in folder.iterdir())
    with monkeypatch.context() as killed:  # nothing of a killed process tidies up
        killed.setattr(_io.shutil, "rmtree", lambda *_, **__: None)
        killed.setattr(_io.os, "replace", _fails)
        with pytest.raises(OSError, match="killed"):
            learner.train()
    assert sorted(path.name for path in folder.iterdir()) != before
    jaxseq.ActiveLearner.resume(folder, X)
    assert sorted(path.name for path in folder.iterdir()) == before


def _fails(*_):
    raise OSError("killed")


# ---------------------------------------------------------------------------------- refusals

LAST = len(X) - 1
BAD = {
    "unknown label": ([Answer(0, 0, "Z")], r"answers\[0\]\.label: expected one of .*'Z'"),
    "unknown in a set": ([Answer(0, 0, ("A", "Z"))], r"answers\[0\]\.label: .*'Z'"),
    "empty set": ([Answer(0, 0, ())], r"answers\[0\]\.label: .*got none"),
    "sentence": ([Answer(0, 0, "A"), Answer(LAST + 1, 0, "A")], rf"\[1\]\.sentence: .*0 … {LAST}"),
    "position": ([Answer(0, len(X[0]), "A")], r"answers\[0\]\.position: expected"),
    "negative": ([Answer(0, -1, "A")], r"answers\[0\]\.position: expected"),
    "no answer": ([7], r"answers\[0\]: expected \(sentence, position, label\)"),
}  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", BAD)
def test_bad_answers_are_refused_and_change_nothing(name, tmp_path):
    folder = tmp_path / "run"
    learner = new_learner().begin(X, classes=LABELS, folder=folder)
    learner.answer(gold(learner.propose())[:2])
    before = (folder / DATABASE).read_bytes(), learner._run.known._allowed.copy(), learner.status()
    answers, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        learner.answer(answers)
    assert (folder / DATABASE).read_bytes() == before[0]
    np.testing.assert_array_equal(learner._run.known._allowed, before[1])
    assert learner.status() == before[2]


def test_answers_of_another_round_are_refused(tmp_path):
    learner = new_learner().begin(X, classes=LABELS, folder=tmp_path / "run")
    learner.answer(gold(learner.propose()), round=0)
    learner.train()
    before = learner._run.known.answered.copy()
    with pytest.raises(ValueError, match="round: expected answers of round 1, got round 0"):
        learner.answer(gold(learner.propose()), round=0)
    np.testing.assert_array_equal(learner._run.known.answered, before)
    learner.answer(gold(learner.propose()), round=1)


def test_labels_that_the_scheme_forbids_are_refused():
    tagger = jaxseq.CRFTagger(["word[0]"], scheme="IOB2", cores=1, max_iterations=5)
    learner = jaxseq.ActiveLearner(tagger, initial=1)
    learner.begin([["a", "b", "c"]], classes=["B-X", "I-X", "O"])
    learner.answer([Answer(0, 0, "O")])
    with pytest.raises(ValueError, match="sentence 0 that leave it no legal labelling"):
        learner.answer([Answer(0, 1, "I-X")])
    with pytest.raises(ValueError, match="no legal labelling"):
        learner.answer([Answer(0, 1, ("O",)), Answer(0, 2, "I-X")])
    assert learner.status().labelled_tokens == 1
    learner.answer([Answer(0, 2, "I-X")])  # after a B-X that nobody has said yet
    learner.train()
    assert learner.tagger_.predict([["a", "b", "c"]])[0][2] in learner.classes_


def test_guesses_that_contradict_the_annotator_are_left_out():
    tagger = jaxseq.CRFTagger(["word[0]"], scheme="IOB2", cores=1, max_iterations=5)
    learner = jaxseq.ActiveLearner(tagger).begin([["a", "b"], ["c"]], classes=["B-X", "I-X", "O"])
    known = learner._run.known
    known.guess(np.array([1, 2]), np.array([1, 0]))  # I-X after what will be O; B-X
    learner.answer([Answer(0, 0, "O")])
    trained, labels = known.to_train_on()
    assert trained.tolist() == [True, True]
    assert labels.gold.tolist() == [2, -1, 0]
    learner.answer([Answer(1, 0, "O")])  # the annotator's word goes before the model's
    assert known.to_train_on()[1].gold.tolist() == [2, -1, 2]


@pytest.mark.usefixtures("unchecked")
def test_folders_and_settings_that_are_not_sound_are_refused(tmp_path):
    folder = tmp_path / "run"
    learner = new_learner().begin(X, classes=LABELS, folder=folder)
    with pytest.raises(ValueError, match="expected nothing or an empty folder"):
        new_learner().begin(X, classes=LABELS, folder=folder)
    with pytest.raises(ValueError, match="X: expected the pool of"):
        jaxseq.ActiveLearner.resume(folder, X[:-1])
    nowhere = re.escape(f"{tmp_path / 'nowhere' / DATABASE}: expected a run of active learning")
    with pytest.raises(ValueError, match=nowhere):
        jaxseq.ActiveLearner.resume(tmp_path / "nowhere", X)
    learner.answer([Answer(0, 0, "A")])


def _sql(folder, statement, *values):
    with contextlib.closing(sqlite3.connect(folder / DATABASE)) as database, database:
        database.execute(statement, values)


DAMAGED = {
    "text": (lambda f: (f / DATABASE).write_text("nonsense" * 200), "file is not a database"),
    "short": (
        lambda f: (f / DATABASE).write_bytes((f / DATABASE).read_bytes()[:-4096]), "malformed"
    ),
    "empty": (lambda f: (f / DATABASE).write_bytes(b""), "expected the format of a run"),
    "gone": (lambda f: (f / DATABASE).unlink(), "found no file"),
    "foreign": (lambda f: _sql(f, "PRAGMA application_id = 7"), "expected the format of a run"),
    "version": (lambda f: _sql(f, "PRAGMA user_version = 2"), "version 1, got another"),
    "settings": (lambda f: _sql(f, "DELETE FROM settings"), "expected settings, got 0"),
    "other settings": (
        lambda f: _sql(f, "UPDATE settings SET text = '{}'"), r"KeyError\('estimator'\)"
    ),
    "table": (lambda f: _sql(f, "DROP TABLE events"), "no such table: events"),
    "event": (lambda f: _sql(f, "UPDATE events SET text = '[' WHERE number = 1"), "event 1: exp"),
    "kind": (lambda f: _sql(f, """UPDATE events SET text = '{"kind": "x"}'"""), "got 'x'"),
    "no parts": (
        lambda f: _sql(f, """UPDATE events SET text = '{"kind": "answers"}'"""), "KeyError"
    ),
    "label": (lambda f: _sql(f, """UPDATE events SET text = replace(text, '"A"', '"Z"')"""), "'Z'"),
    "no text": (
        lambda f: _sql(f, "UPDATE settings SET text = CAST(x'7bff7d' AS TEXT)"), "decode to UTF-8"
    ),
    "setting": (lambda f: _set(f, "algorithm", {}), "expected settings that make sense"),
}  # fmt: skip


def _set(folder, name, value):
    with contextlib.closing(sqlite3.connect(folder / DATABASE)) as database:
        (text,) = database.execute("SELECT text FROM settings").fetchone()
    settings = json.loads(text)
    settings["estimator"][name] = value
    _sql(folder, "UPDATE settings SET text = ?", json.dumps(settings))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", DAMAGED)
def test_a_database_that_is_foreign_or_damaged_is_refused(name, tmp_path):
    folder = tmp_path / "run"
    new_learner().begin(X, classes=LABELS, folder=folder).answer([Answer(0, 0, "A")])
    damage, message = DAMAGED[name]
    damage(folder)
    for read_only in (True, False):
        with pytest.raises(ValueError, match=message) as refusal:
            jaxseq.ActiveLearner.resume(folder, X, read_only=read_only)
        assert str(folder) in str(refusal.value)


PROPOSED = {"kind": "proposed", "guesses": [], "labels": [], "sampled": []}
ODD_EVENTS = {
    "sentence": ({**PROPOSED, "queries": [[99, 0, 1, 0.5]]}, "expected a sentence of the pool"),
    "no number": ({**PROPOSED, "queries": [["0", 0, 1, 0.5]]}, "expected a sentence of the pool"),
    "huge": ({**PROPOSED, "queries": [[10**30, 0, 1, 0.5]]}, "expected a sentence of the pool"),
    "score": ({**PROPOSED, "queries": [[0, 0, 1, float("nan")]]}, "expected a sentence of the"),
    "tokens": ({**PROPOSED, "queries": [[0, 1, 1, 0.5]]}, "expected tokens of the sentence"),
    "guess": ({**PROPOSED, "queries": [], "guesses": [-1]}, "guesses: expected whole numbers"),
    "round": ({"kind": "trained", "round": "0", "kappa": None}, "round: expected 0, got '0'"),
    "kappa": (
        {"kind": "trained", "round": 0, "kappa": "x", "objective": 1}, "a number as objective and"
    ),
}  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", ODD_EVENTS)
def test_events_that_do_not_fit_the_pool_are_refused(name, tmp_path):
    folder = tmp_path / "run"
    new_learner().begin(X, classes=LABELS, folder=folder)
    event, message = ODD_EVENTS[name]
    _sql(folder, "INSERT INTO events (text) VALUES (?)", json.dumps(event))
    before = (folder / DATABASE).read_bytes()
    with pytest.raises(ValueError, match=message):
        jaxseq.ActiveLearner.resume(folder, X)
    assert (folder / DATABASE).read_bytes() == before


REFUSED = {
    "estimator": (lambda: jaxseq.ActiveLearner("tagger"), "estimator: expected a CRFTagger"),
    "strategy": (lambda: new_learner("tokens"), "strategy: expected one such as TokenQueries"),
    "budget": (lambda: new_learner(budget=0), "budget: expected a finite number, 1 or more"),
    "kappa": (lambda: new_learner(kappa=1.5), "kappa: expected a number from -1 to 1, got 1.5"),
    "how": (lambda: new_learner(initial_how="middle"), "initial_how: expected one of"),
    "between": (lambda: new_learner(between=0), "between: expected"),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", REFUSED)
def test_settings_that_make_no_sense_write_nothing(name, tmp_path):
    make, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        make().begin(X, classes=LABELS, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("unchecked")
def test_answers_that_are_no_list_are_refused():
    learner = new_learner().begin(X, classes=LABELS)
    with pytest.raises(ValueError, match=r"answers: expected a list of Answer\(.*\), got 3"):
        learner.answer(3)
    with pytest.raises(ValueError, match=r"tokens: expected a list of \(sentence, position\)"):
        learner.retract(None)
    assert learner.status().labelled_tokens == 0


def test_steps_out_of_order_are_refused():
    with pytest.raises(ValueError, match="expected a pool"):
        new_learner().propose()
    with pytest.raises(ValueError, match="classes: expected the labels that may be given"):
        new_learner().begin(X)
    learner = new_learner().begin(X, classes=LABELS)
    with pytest.raises(ValueError, match="labels: expected at least one, got none"):
        learner.train()
    with pytest.raises(ValueError, match="expected a trained model"):
        learner.look()
    with pytest.raises(ValueError, match="expected a trained model"):
        learner.recheck()


def test_a_run_keeps_the_word_representation(tmp_path):
    words = learn_representation(X, sizes=(3,), min_count=1)
    for name in ("one", "other"):
        learner = new_learner()
        learner.estimator.set_params(representation=words)
        learner.begin(X, classes=LABELS, folder=tmp_path / name)
        if name == "other":
            learner = jaxseq.ActiveLearner.resume(tmp_path / name, X)
            assert learner.estimator.representation.digest == words.digest
        learner.answer(gold(learner.propose()))
        learner.train()
    first, second = (jaxseq.ActiveLearner.resume(tmp_path / name, X) for name in ("one", "other"))
    assert outcome_of(first) == outcome_of(second)
    assert any("cluster" in name for name in first.tagger_.extractor_.attribute_names())
    learn_representation(X, sizes=(4,), min_count=1).save(tmp_path / "one" / "words")
    with pytest.raises(ValueError, match="words: expected the representation of the run"):
        jaxseq.ActiveLearner.resume(tmp_path / "one", X)
