"""Train, tag and evaluate on CoNLL-2000, as a user would."""

import itertools
import json
import os
from pathlib import Path

import pytest

from jaxseq.text import read_conll, tag_spans, write_conll

COLUMNS = ["word", "pos", "chunk"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with 300 sentences to train on and 100 to test, with and without labels."""
    data = os.environ.get("JAXSEQ_DATA")
    if not data:
        pytest.skip("JAXSEQ_DATA, the folder of the corpora, is not set")
    corpus = Path(data) / "conll2000"
    if not corpus.exists():
        pytest.skip(f"{corpus} is not there")
    folder = tmp_path_factory.mktemp("conll2000")
    write_conll(folder / "train", read_conll(corpus / "train.txt", COLUMNS)[:300])
    test = read_conll(corpus / "test.txt", COLUMNS)[:100]
    write_conll(folder / "test", test)
    write_conll(folder / "unlabelled", test, COLUMNS[:2], "\t")
    return folder


def test_from_file_to_figures(files, succeed):
    argv = ["--train", files / "train", "--dev", files / "test", "--templates", "conll2000"]
    argv += ["--out", files / "model", "--scheme", "IOB2", "--max-iterations", 30, "--json"]
    report = json.loads(succeed("train", *argv))
    assert (report["sentences"], report["tokens"]) == (300, 7189)

    succeed("tag", "--model", files / "model", files / "test", "--out", files / "tagged")
    tagged = read_conll(files / "tagged", [*COLUMNS, "predicted"])
    test = read_conll(files / "test", COLUMNS)
    assert [s["word"] for s in tagged] == [s["word"] for s in test]
    lines = succeed("tag", "--model", files / "model", files / "unlabelled").split("\n")
    predicted = [line.split("\t")[2] for line in lines if line]
    assert predicted == list(itertools.chain.from_iterable(s["predicted"] for s in tagged))

    gold, found = (
        {(i, *span) for i, s in enumerate(tagged) for span in tag_spans(s[column], "IOB2")}
        for column in ("chunk", "predicted")
    )
    f1 = 2 * len(gold & found) / (len(gold) + len(found))
    assert f1 > 0.8
    by_file = json.loads(succeed("evaluate", files / "tagged", "--json"))
    by_model = json.loads(
        succeed("evaluate", "--model", files / "model", "--test", files / "test", "--json")
    )
    assert by_file == by_model == report["dev"]
    assert by_file["overall"]["tp"] == len(gold & found)
    assert by_file["overall"]["f1"] == pytest.approx(f1)
    assert f"FB1: {100 * f1:6.2f}" in succeed("evaluate", files / "tagged")

    inspected = json.loads(succeed("inspect", files / "model", "--label", "B-NP", "--json"))
    assert inspected["attributes"] == report["attributes"]
    assert inspected["features"]["B-NP"]
