"""A toy corpus whose words tell their labels, and a model of it that the tests share."""

import shutil
import sys
from io import BytesIO, TextIOWrapper

import pytest

from jaxseq.cli import main

LEXICON = {
    "the": ("DT", "B-NP"),
    "dog": ("NN", "I-NP"),
    "cat": ("NN", "I-NP"),
    "barks": ("VBZ", "B-VP"),
    "sleeps": ("VBZ", "B-VP"),
    ".": (".", "O"),
}
"""Word → its part of speech and its label."""

TEXTS = [
    "the dog barks .",
    "the cat sleeps .",
    "the dog sleeps",
    "the cat barks .",
    "barks the dog .",
    "sleeps the cat",
]

TEMPLATES = "word[0]\npos[0]\n"


def columns_of(texts, width=3, delimiter=" "):
    """Sentences as a file of columns: word, part of speech, label, as many of them as asked."""
    lines = []
    for text in texts:
        rows = [(word, *LEXICON[word])[:width] for word in text.split()]
        lines += [delimiter.join(row) for row in rows] + [""]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    """A folder with ``train.txt``, ``templates`` and the model ``model`` of the two."""
    folder = tmp_path_factory.mktemp("toy")
    (folder / "train.txt").write_text(columns_of(TEXTS))
    (folder / "templates").write_text(TEMPLATES)
    argv = ["train", "--train", folder / "train.txt", "--templates", folder / "templates"]
    argv += ["--out", folder / "model", "--l2", "0.1", "--quiet"]
    assert main([str(part) for part in argv]) == 0
    return folder


@pytest.fixture
def run(capsys):
    """Runs a command: exit status, standard output, standard error."""

    def command(*argv):
        capsys.readouterr()
        try:
            status = main([str(part) for part in argv])
        except SystemExit as stop:  # argparse's own way
            status = stop.code
        return status, *capsys.readouterr()

    return command


@pytest.fixture
def succeed(run):
    """Runs a command that must end well and warn of nothing: its output."""

    def command(*argv):
        status, out, err = run(*argv)
        err = err.removesuffix("the model there will be replaced\n")
        err = "" if err.startswith("jaxseq: note: ") and "\n" not in err else err
        assert (status, err) == (0, "")
        return out

    return command


@pytest.fixture
def type_in(monkeypatch):
    """Puts bytes, or text, on standard input."""

    def give(data):
        data = data.encode() if isinstance(data, str) else data
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(data), "utf-8"))

    return give


@pytest.fixture(scope="session")
def run_in_round_1(tmp_path_factory):
    """A run of active learning with a model, whose queries are written; not to be changed."""
    from tests.cli.active_runs import start_in_round_1  # which needs what is above

    return start_in_round_1(tmp_path_factory.mktemp("active"))


@pytest.fixture
def run1(run_in_round_1, tmp_path):
    """A run in round 1, in another place than it was made in."""
    return shutil.copytree(run_in_round_1, tmp_path / "copy")
