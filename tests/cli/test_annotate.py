"""The terminal annotator: keys, undo, quitting, and that every answer is kept at once."""

import contextlib
import io
import json
import os
import tty

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.active import Answer
from jaxseq.cli._annotate import (
    COMMANDS,
    CONTEXT,
    KEYS,
    Event,
    Keys,
    Retraction,
    Screen,
    Session,
    assign_keys,
    make_console,
    read_event,
    sentence_line,
    step,
)
from jaxseq.cli._questions import Question
from tests.cli.active_runs import LABELS, answers_in, journal, start

WORDS = ("the", "old", "dog", "barks")
SPAN = Question(2, 5, 1, 3, 0.5, WORDS, ("X", "Y"), (0.5, 0.6))
TOKEN = Question(2, 6, 0, 1, 0.4, ("no",), (None,), (None,))
ACCEPT, SKIP, UNDO = Event("accept"), Event("skip"), Event("undo")


def play(*events, session=None):
    """The session after some events, the answers, and what was told."""
    session = session or Session.of([SPAN, TOKEN])
    answers, told = [], []
    for event in events:
        session, answer, message = step(session, event)
        answers += [answer] if answer else []
        told += [message] if message else []
    return session, answers, told


# ---------------------------------------------------------------------------------------- state


def test_a_span_is_one_token_after_the_other():
    session, answers, _ = play(ACCEPT, Event("choose", "Z"), Event("choose", "X"))
    assert answers == [Answer(5, 1, "X"), Answer(5, 2, "Z"), Answer(6, 0, "X")]
    assert session.is_done


def test_without_a_guess_there_is_nothing_to_accept():
    session, answers, told = play(SKIP, SKIP, ACCEPT)
    assert (session.place, answers) == (2, [])
    assert "no guess to accept" in told[0]


def test_undo_goes_back_over_answers_and_skips():
    session, answers, told = play(ACCEPT, SKIP, UNDO, UNDO, Event("choose", "Z"))
    assert answers == [Answer(5, 1, "X"), Retraction(5, 1), Answer(5, 1, "Z")]
    assert told == ["X is taken back"]
    assert session.chosen == {0: "Z"}
    assert session.place == 1
    assert "nothing to undo" in play(UNDO)[2][0]


def test_after_undo_a_token_is_as_it_was():
    session, answers, _ = play(Event("choose", "Z"), UNDO)
    assert session == Session.of([SPAN, TOKEN])
    assert answers == [Answer(5, 1, "Z"), Retraction(5, 1)]
    session, answers, _ = play(Event("choose", "Z"), UNDO, ACCEPT)
    assert answers[-1] == Answer(5, 1, "X")  # the guess


EVENTS = st.lists(
    st.sampled_from([ACCEPT, SKIP, UNDO, Event("choose", "A"), Event("choose", "B")]), max_size=30
)


@given(EVENTS)
def test_what_is_given_is_the_last_answer_to_each_token(events):
    session, answers, _ = play(*events)
    last = {}
    for answer in answers:
        if isinstance(answer, Retraction):
            del last[answer]
        else:
            last[answer.sentence, answer.position] = answer.label
    items = [session.items[place] for place in session.chosen]
    found = {
        (i.question.sentence, i.position): session.chosen[session.items.index(i)] for i in items
    }
    assert found == last
    assert len(session.trail) == session.place  # so that undo comes back to the first token
    assert play(*[UNDO] * session.place, session=session)[0] == Session.of([SPAN, TOKEN])


# ----------------------------------------------------------------------------------------- keys


@given(st.lists(st.text("absuqABX123-", min_size=1, max_size=3), unique=True, max_size=70))
def test_keys_are_of_one_label_each_and_never_commands(labels):
    keys = assign_keys(labels)
    assert len(keys) == min(len(labels), len(KEYS) - len(COMMANDS))
    assert len(set(keys.values())) == len(keys)
    assert not set(keys) & set(COMMANDS)
    for key, label in keys.items():
        assert read_event(key, keys, labels) == Event("choose", label)
        if label not in COMMANDS:  # typed in full, a label means itself
            assert read_event(label, keys, labels) == Event("choose", label)


def test_commands():
    assert [read_event(key, {}, []).kind for key in ("", *COMMANDS)] == [
        "accept",
        "skip",
        "undo",
        "quit",
    ]
    assert read_event("7", {"1": "A"}, ["A"]) is None


def test_keys_of_a_terminal():
    terminal, program = os.openpty()
    try:
        tty.setcbreak(program)
        read = Keys(program)
        os.write(terminal, b"\x1b[A")  # an arrow: its A is no label
        os.set_blocking(program, False)
        with pytest.raises(BlockingIOError):
            read()
        os.set_blocking(program, True)
        os.write(terminal, b"1A\n\x04")
        assert [read() for _ in range(4)] == ["1", "A", "", None]
        os.write(terminal, b"12")
        assert read() == "1"
        os.write(terminal, b"3")
        read.forget()  # while the model was trained, say
        os.write(terminal, b"4")
        assert read() == "4"
    finally:
        os.close(terminal)
        os.close(program)


@pytest.mark.parametrize("pieces", [
    (b"1\x1b[A2",), (b"1\x1b", b"[A2"), (b"1\x1b[1;5", b"C2"), (b"\x1bO", b"A12"),
    (b"1\x1b[3~\x1b[B2",), (b"1\x1bOP\x1b[", b"D2"), (b"\x1b", b"12"),
])  # fmt: skip
def test_escape_sequences_are_no_keys_wherever_they_are(pieces):
    reads, program = os.pipe()
    try:
        read = Keys(reads)
        found = []
        for piece in pieces:
            os.write(program, piece)
            os.set_blocking(reads, False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    found.append(read())
        assert found == ["1", "2"]
    finally:
        os.close(reads)
        os.close(program)


def test_letters_of_several_bytes_may_come_in_pieces():
    reads, program = os.pipe()
    try:
        read = Keys(reads)
        letter = "é".encode()
        os.write(program, letter[:1])
        os.set_blocking(reads, False)
        with pytest.raises(BlockingIOError):
            read()
        os.write(program, letter[1:])
        assert read() == "é"
    finally:
        os.close(reads)
        os.close(program)


# --------------------------------------------------------------------------------------- screen


def test_words_are_not_broken_at_the_end_of_a_line():
    words = ("extraordinary", "circumstances", "notwithstanding", "everybody", "understood")
    asked = Question(2, 5, 1, 2, 0.5, words, ("X",), (0.5,))
    out = io.StringIO()
    console = make_console(file=out, force_terminal=True, width=24, color_system=None)
    Screen({"1": "X"}, console).show(Session.of([asked]), ["X"])
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 24
    shown = {word for line in lines for word in line.split()}
    assert {"extraordinary", "[circumstances]", "notwithstanding", "understood"} <= shown
    plain = io.StringIO()  # in a file a sentence is a line
    Screen({"1": "X"}, make_console(file=plain, width=24)).show(Session.of([asked]), ["X"])
    assert "extraordinary [circumstances] notwithstanding everybody understood" in plain.getvalue()


def test_the_token_stands_in_brackets_in_its_sentence():
    session = Session.of([SPAN])
    assert sentence_line(session).plain == "the [old] dog barks"
    session, _, _ = step(session, Event("choose", "Z"))
    assert sentence_line(session).plain == "the old/Z [dog] barks"


def test_long_sentences_are_cut_around_the_token():
    words = tuple(f"w{i}" for i in range(100))
    line = sentence_line(Session.of([Question(0, 0, 50, 51, 0.5, words, ("X",), (0.5,))])).plain
    assert line.startswith(f"… w{50 - CONTEXT} ")
    assert line.endswith(f"w{50 + CONTEXT} …")
    assert "[w50]" in line


# ------------------------------------------------------------------------------- the whole command


@pytest.fixture
def fresh(tmp_path, succeed):
    """A run in its first round: two sentences, no model yet."""
    return start(tmp_path, succeed, train=False, initial=2)


def test_quit_keeps_the_answers_and_later_goes_on(fresh, succeed, type_in):
    type_in("B-NP\nnonsense\nI-NP\nq\n")
    out = succeed("active", "annotate", fresh)
    assert "'nonsense': expected one of the keys" in out
    assert "2 answers kept" in out
    first = answers_in(fresh)
    assert [label for *_, label in first] == ["B-NP", "I-NP"]
    type_in("")  # the input ends
    out = succeed("active", "annotate", fresh)
    assert "0 answers kept" in out
    (proposed,) = [event for event in journal(fresh) if event["kind"] == "proposed"]
    total = sum(stop - start for _, start, stop, _ in proposed["queries"])
    assert f"token 3 of {total}," in out  # those with an answer are not shown again
    assert "token 1 of" not in out
    assert answers_in(fresh) == first


def test_undo_reaches_the_answers_of_an_earlier_session(fresh, succeed, type_in):
    type_in("B-NP\nI-NP\nq\n")
    succeed("active", "annotate", fresh)
    type_in("u\nO\nu\nu\nu\nq\n")
    out = succeed("active", "annotate", fresh)
    for label in ("I-NP", "O", "B-NP"):
        assert f"{label} is taken back" in out
    assert "nothing to undo in this round" in out
    first, second = (answer[:2] for answer in answers_in(fresh)[:2])
    assert [(*where, label) for where, label in
            [(first, "B-NP"), (second, "I-NP"), (second, None), (second, "O"), (second, None),
             (first, None)]] == answers_in(fresh)  # fmt: skip
    assert json.loads(succeed("active", "status", fresh, "--json"))["labelled_tokens"] == 0


def test_a_round_that_is_answered_waits_for_enter_in_the_next_session(fresh, succeed, type_in):
    total = json.loads(succeed("active", "query", fresh, "--json"))["tokens"]
    type_in("O\n" * total + "q\n")
    succeed("active", "annotate", fresh)
    type_in("u\nB-NP\nq\n")
    out = succeed("active", "annotate", fresh)
    assert out.count("the round is done") == 2
    assert answers_in(fresh)[-1][2] == "B-NP"
    type_in("\nq\n")
    assert "training  " in succeed("active", "annotate", fresh)


def test_a_round_with_undo_trains_and_goes_on(fresh, succeed, type_in):
    keys = {label: key for key, label in assign_keys(LABELS).items()}
    total = json.loads(succeed("active", "query", fresh, "--json"))["tokens"]
    lines = [keys["O"], "u", keys["B-NP"], *[keys["I-NP"]] * (total - 1), "u", keys["O"], "", "q"]
    type_in("\n".join(lines) + "\n")
    out = succeed("active", "annotate", fresh)
    assert "O is taken back" in out
    assert "the round is done: Enter trains" in out
    assert "training  " in out
    assert "round 1, token 1 of" in out
    assert f"{total} answers kept" in out
    assert "% sure; Enter accepts it" in out
    labels = [label for *_, label in answers_in(fresh)]
    assert labels == ["O", None, "B-NP", *["I-NP"] * (total - 1), None, "O"]
    status = json.loads(succeed("active", "status", fresh, "--json"))
    assert (status["round"], status["labelled_tokens"]) == (1, total)


def test_what_was_undone_is_not_kept(fresh, succeed, type_in):
    type_in("O\nu\ns\nq\n")
    assert "0 answers kept" in succeed("active", "annotate", fresh)
    status = json.loads(succeed("active", "status", fresh, "--json"))
    assert status["labelled_tokens"] == 0


def test_a_round_that_was_skipped_is_not_trained(fresh, succeed, type_in):
    type_in("s\n" * 40)
    out = succeed("active", "annotate", fresh)
    assert "every token was skipped" in out
    assert json.loads(succeed("active", "status", fresh, "--json"))["round"] == 0


def test_a_label_that_the_scheme_forbids_is_told_and_asked_again(tmp_path, succeed, type_in):
    folder = start(tmp_path, succeed, "--scheme", "IOB2", train=False, initial=1)
    type_in("I-NP\nO\nI-NP\nB-NP\nq\n")  # nothing may begin with I-NP
    out = succeed("active", "annotate", folder)
    assert out.count("no legal labelling") == 2
    assert [label for *_, label in answers_in(folder)] == ["O", "B-NP"]
