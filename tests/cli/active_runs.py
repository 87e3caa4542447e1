"""Runs of active learning for the tests: small corpora, and answers that are right."""

import contextlib
import json
import sqlite3

from jaxseq.cli import main
from tests.cli.conftest import LEXICON, TEMPLATES, TEXTS, columns_of

LABELS = sorted({label for _, label in LEXICON.values()})
TRAIN, POOL = TEXTS[:1], [*TEXTS[1:], "cat the .", "sleeps dog the barks ."]
ALL = [text.split() for text in [*TRAIN, *POOL]]


def poisoned(texts):
    """Columns whose label is none: it would be noticed if anybody looked at it."""
    lines = columns_of(texts, width=2).split("\n")
    return "\n".join(f"{line} POISON" if line else "" for line in lines)


def write_files(folder):
    """The corpora and templates that the tests start from.

    The pools with and without the labelled sentence make runs of the same sentences, which share
    compiled programs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "few").write_text(columns_of(TRAIN))
    (folder / "pool").write_text(poisoned(POOL))
    (folder / "everything").write_text(poisoned([*TRAIN, *POOL]))
    (folder / "dev").write_text(columns_of(TEXTS))
    (folder / "templates").write_text(TEMPLATES)


def start(folder, run_well, *more, train=True, initial=None, count=3):
    """A new run in `folder`/run, of which the path is given back."""
    write_files(folder)
    argv = ["--templates", folder / "templates", "--dev", folder / "dev"]
    argv += ["--out", folder / "run", "--count", count, "--labels", ",".join(LABELS), "--l2", 0.1]
    if train:
        argv += ["--train", folder / "few", "--pool", folder / "pool"]
    else:
        argv += ["--columns", "word,pos,label", "--pool", folder / "everything"]
    argv += [] if initial is None else ["--initial", initial]
    run_well("active", "start", *argv, "--cores", 1, *more)
    return folder / "run"


def start_in_round_1(folder):
    """A run with a model, whose queries are written."""

    def run_well(*argv):
        assert main([str(part) for part in argv]) == 0

    run = start(folder, run_well)
    run_well("active", "query", run)
    return run


def journal(folder):
    """The events of a run, in order."""
    with contextlib.closing(sqlite3.connect(folder / "run.sqlite")) as database:
        rows = database.execute("SELECT text FROM events ORDER BY number").fetchall()
    return [json.loads(text) for (text,) in rows]


def answers_in(folder):
    """Sentence, position and label of every answer of the journal, in order; None took one back."""
    lines = [line for line in journal(folder) if line["kind"] == "answers"]
    return [tuple(answer) for line in lines for answer in line["answers"]]


def queries_in(folder, number):
    text = (folder / f"round-{number:03}" / "queries.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def gold(word):
    return LEXICON[word][1]


def solved(queries):
    """Lines of queries.jsonl with the labels that are right."""
    return [{**query, "labels": [gold(word) for word in query["words"]]} for query in queries]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
