"""What every command can read: CoNLL-U, labels in any column, encodings, standard input."""

import json

import pytest

from jaxseq.shards import read_index
from tests.cli.conftest import LEXICON, TEXTS, columns_of

UPOS = {"DT": "DET", "NN": "NOUN", "VBZ": "VERB", ".": "PUNCT"}


def conllu_of(texts, label=True):
    """The toy's sentences as CoNLL-U, each with a comment, a multi-word token, an empty node."""
    lines = []
    for text in texts:
        words = text.split()
        lines += [f"# text = {text}", "\t".join(["1-2", "_", *["_"] * 8])]
        for number, word in enumerate(words, 1):
            upos = UPOS[LEXICON[word][0]] if label else "_"
            lines.append("\t".join([str(number), word, "_", upos, *["_"] * 6]))
        lines += ["\t".join([f"{len(words)}.1", "_", *["_"] * 8]), ""]
    return "\n".join(lines) + "\n"


@pytest.fixture
def place(toy, tmp_path, monkeypatch):
    """The toy's corpus in several forms, in the folder where commands run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words").write_text("word[0]\n")
    (tmp_path / "a.conllu").write_text(conllu_of(TEXTS))
    (tmp_path / "train.txt").write_text(columns_of(TEXTS))
    rows = [line.split(" ")[::-1] for line in columns_of(TEXTS).split("\n")]
    (tmp_path / "first.txt").write_text("\n".join(" ".join(row) for row in rows))
    return tmp_path


TRAIN = ["train", "--templates", "words", "--l2", "0.1", "--out", "m", "--json"]


@pytest.fixture
def upos(place, succeed):
    """A model of parts of speech, from CoNLL-U."""
    out = succeed(*TRAIN, "--train", "a.conllu", "--label-column", "upos", "--dev", "a.conllu")
    report = json.loads(out)
    assert (report["sentences"], report["labels"]) == (len(TEXTS), 4)
    assert report["tokens"] == sum(len(text.split()) for text in TEXTS)
    assert report["dev"]["accuracy"] == 1
    return "m"


def test_conllu_is_trained_from_tagged_and_evaluated(upos, succeed, place):
    (place / "new.conllu").write_text(conllu_of(TEXTS, label=False))
    tagged = succeed("tag", "--model", upos, "new.conllu")
    given = (place / "new.conllu").read_text().split("\n")
    for line, before in zip(tagged.split("\n"), given):
        if before.startswith("#") or not before:
            assert line == before
        else:
            cells, label = line.rsplit("\t", 1)
            assert cells == before
            word = before.split("\t")[1]
            assert label == (UPOS[LEXICON[word][0]] if word in LEXICON else "_")
    with_gold = succeed("tag", "--model", upos, "a.conllu", "--out", "tagged.conllu")
    assert with_gold == ""
    for column in ("upos", "4"):
        report = json.loads(
            succeed("evaluate", "tagged.conllu", "--label-column", column, "--json")
        )
        assert report["accuracy"] == 1
    report = json.loads(succeed("evaluate", "--model", upos, "--test", "a.conllu",
                                "--label-column", "upos", "--json"))  # fmt: skip
    assert report["accuracy"] == 1
    marginals = succeed("tag", "--model", upos, "new.conllu", "--marginals").split("\n")
    assert {len(line.split("\t")) for line in marginals if line and line[0] != "#"} == {10 + 5}


def test_shards_constraints_and_active_learning_read_it(place, succeed):
    label = ["--label-column", "upos"]
    succeed("shard", "--train", "a.conllu", "--templates", "words", "--out", "s", *label,
            "--classes", "ADJ,DET,NOUN,PUNCT,VERB")  # fmt: skip
    assert read_index(place / "s").classes == ["ADJ", "DET", "NOUN", "PUNCT", "VERB"]
    rule = '[[constraint]]\nkind = "must_appear"\nlabels = ["{}"]\npenalty = 1\n'
    (place / "r.toml").write_text(rule.format("V*"))
    report = json.loads(succeed("constraints", "r.toml", "a.conllu", *label, "--json"))
    assert report["constraints"][0]["violations"] == 0
    (place / "r.toml").write_text(rule.format("ADJ"))
    out = succeed("constraints", "r.toml", "a.conllu", *label, "--classes", "ADJ", "--json")
    assert json.loads(out)["constraints"][0]["sentences_violating"] == len(TEXTS)
    (place / "pool.conllu").write_text(conllu_of(TEXTS, label=False))
    for train in (["--train", "a.conllu", *label], ["--labels", "A,B"]):
        report = json.loads(
            succeed("active", "start", "--pool", "pool.conllu", "--templates", "words",
                    "--out", f"run{len(train)}", "--max-iterations", 2, "--json", *train)
        )  # fmt: skip
        assert report["pool_sentences"] == len(TEXTS)


@pytest.mark.parametrize("chosen", ["1", "label"])
def test_the_label_may_be_any_column(place, succeed, chosen):
    names = ["--columns", "label,-,word"] if chosen == "label" else []
    (place / "more.txt").write_text("NN dog\n\nVBZ barks\n")  # without its first column
    out = succeed(*TRAIN, "--train", "first.txt", "--label-column", chosen, *names,
                  "--dev", "first.txt", "--unlabelled", "first.txt", "more.txt",
                  "--templates", "words" if names else "pos")  # fmt: skip
    report = json.loads(out)
    assert report["dev"]["overall"]["f1"] > 0.9
    assert report["unlabelled"]["sentences"] == len(TEXTS) + 2


@pytest.fixture(autouse=True)
def pos_template(place):
    (place / "pos").write_text("pos[0]\n")  # with the label first, columns are label, word, pos


def test_names_that_begin_with_a_dash(place, succeed, run):
    for columns in (["--columns", "-,pos,label"], ["--columns=-,pos,label"]):
        succeed(*TRAIN, "--train", "train.txt", "--templates", "pos", *columns, "--quiet")
    (place / "odd.txt").write_text("( -LRB-\nx NN\n")
    succeed(*TRAIN, "--train", "odd.txt", "--classes", "-RRB-,-LRB-,NN", "--quiet")
    assert "-LRB-" in succeed("inspect", "m", "--label", "-LRB-")
    status, _, err = run("tag", "--model", "-x-")  # a value, and not an option without a name
    assert (status, err) == (2, "jaxseq: error: -x-/model.json: expected a file of a model there, "
                                "found none\n")  # fmt: skip


def test_standard_input_wherever_a_corpus_is_read(place, succeed, type_in, run):
    text = (place / "train.txt").read_text()

    def piped(*argv):
        type_in(text)
        return json.loads(succeed(*argv, "--json"))

    assert piped(*TRAIN, "--train", "-", "--scheme-to", "IOBES")["sentences"] == len(TEXTS)
    report = piped(*TRAIN, "--train", "train.txt", "--dev", "-", "--out", "n")
    assert report["dev"]["overall"]["f1"] == 1
    assert piped("evaluate", "--model", "n", "--test", "-")["overall"]["f1"] == 1
    shards = ["shard", "--templates", "words", "--out", "s", "--scheme-to", "IOBES"]
    assert piped(*shards, "--train", "-")["sentences"] == len(TEXTS)
    (place / "r.toml").write_text('[[constraint]]\nkind = "at_most_once"\npenalty = 1\n')
    assert piped("constraints", "r.toml", "-")["sentences"] == len(TEXTS)
    start = ["active", "start", "--templates", "words", "--max-iterations", 2]
    report = piped(*start, "--train", "train.txt", "--pool", "-", "--out", "one")
    assert report["pool_sentences"] == len(TEXTS)
    report = piped(*start, "--labels", "A,B", "--pool", "-", "--out", "two")
    assert report["pool_sentences"] == len(TEXTS)
    assert json.loads((place / "one" / "corpora.json").read_text())["sources"]["pool"] == "-"
    (place / "pairs.txt").write_text("a A A\n")
    type_in("a A B\n")
    assert "McNemar" in succeed("evaluate", "pairs.txt", "--against", "-")
    type_in(text.replace("NN", "NN\n"))
    status, _, err = run(*TRAIN, "--train", "-", "--quiet")
    assert (status, err.startswith("jaxseq: error: standard input:2: expected 3 col")) == (2, True)
    type_in(text)
    status, _, err = run(*TRAIN, "--train", "-", "--dev", "-", "--quiet")
    assert (status, err) == (
        2, "jaxseq: error: standard input: expected at least one sentence, found none\n",
    )  # fmt: skip


def test_encodings_of_what_is_read(place, succeed, type_in, run):
    text = "caffè N\nnero A\n\n".encode("utf-16")
    (place / "it.txt").write_bytes(text)
    read = ["--encoding", "utf-16"]
    json.loads(succeed(*TRAIN, "--train", "it.txt", "--dev", "it.txt", *read))
    assert "caffè N N\n" in succeed("tag", "--model", "m", "it.txt", *read)
    type_in(text)
    assert "caffè N N\n" in succeed("tag", "--model", "m", *read)
    type_in("caffè nero\n".encode("latin-1"))
    out = succeed("tag", "--model", "m", "--format", "plain", "--encoding", "latin-1")
    assert out == "caffè N\nnero A\n\n"
    (place / "pairs.txt").write_bytes("è A A\n".encode("latin-1"))
    succeed("evaluate", "pairs.txt", "--encoding", "latin-1")
    status, _, err = run("evaluate", "pairs.txt", "--encoding", "hex")
    assert (status, err) == (2, "jaxseq evaluate: error: argument --encoding: expected an encoding "
                                "of text, such as utf-8 or latin-1, got 'hex'\n")  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([*TRAIN, "--train", "a.conllu"], "a.conllu: expected --label-column with the name"),
        ([*TRAIN, "--train", "a.conllu", "--label-column", "pos"], "--label-column: expected one "
         "of id, word, lemma, upos, xpos, feats, head, deprel, deps, misc, or a number, 1 to 10"),
        ([*TRAIN, "--train", "train.txt", "--label-column", "4"], "--label-column: expected one "
         "of word, pos, label, or a number, 1 to 3, got 4"),
        ([*TRAIN, "--train", "train.txt", "--columns", "word,-,label", "--label-column", "2"],
         "--label-column: expected a column with a name, got 2, which is left out"),
        (["evaluate", "a.conllu"], "a.conllu:3: expected --label-column with the column of the"),
        (["active", "start", "--pool", "train.txt", "--labels", "A", "--out", "r",
          "--label-column", "1"], "--label-column: expected along with --train or --columns only"),
        (["train", "--shards", "s", "--algorithm", "sgd", "--out", "m", "--classes", "A"],
         "--classes: expected with jaxseq shard, not along with --shards"),
        ([*TRAIN, "--train", "train.txt", "--classes", "O"], "y: expected labels among classes"),
    ],
)  # fmt: skip
def test_what_is_refused(place, run, argv, message):
    status, out, err = run(*argv)
    assert (status, out) == (2, "")
    assert err.startswith(f"jaxseq: error: {message}")
    assert err.count("\n") == 1
    assert not (place / "m").exists()


IOB1 = "the I-NP\ndog I-NP\ncats B-NP\n. O\n\n"
BIO = "the B-NP\ndog I-NP\ncats B-NP\n. O\n\n"
MIXED = "jaxseq: warning: {}: expected labels of the scheme {}, as in {}, found {} (--scheme-to "


def test_a_mixture_of_schemes_is_said(place, run, succeed):
    for name, text in {"i": IOB1, "b": BIO, "pos": "the DT\ndog NN\n", "o": "x O\n"}.items():
        (place / name).write_text(text)
    (place / "rules.toml").write_text('[[constraint]]\nkind = "at_most_once"\npenalty = 1\n')
    start = ["active", "start", "--templates", "words", "--out", "run", "--max-iterations", 2]
    for argv, second, first in (
        ([*TRAIN, "--train", "b", "i"], "i", "b"),
        ([*TRAIN, "--train", "o", "i", "b", "--quiet"], "b", "i"),
        ([*TRAIN, "--train", "b", "--dev", "i", "--quiet"], "i", "b"),
        (["constraints", "rules.toml", "i", "b"], "b", "i"),
        (["shard", "--templates", "words", "--out", "s", "--train", "b", "o", "i"], "i", "b"),
        ([*start, "--train", "b", "--pool", "o", "--dev", "i"], "i", "b"),
    ):
        names = {"i": "IOB1", "b": "IOB2"}
        status, _, err = run(*argv)
        assert status == 0
        assert err.startswith(MIXED.format(second, names[first], first, names[second]))
        assert err.count("\n") == 1
    quiet = [*TRAIN, "--quiet", "--train"]
    succeed(*quiet, "b", "i", "--dev", "i", "--scheme-to", "IOB2")
    succeed(*quiet, "b", "o", "pos")  # no spans in two of them


def test_a_model_that_is_replaced_is_said_before_training(place, run, succeed):
    succeed(*TRAIN, "--train", "train.txt")
    status, out, err = run(*TRAIN, "--train", "train.txt")
    assert (status, err) == (0, "jaxseq: note: m: the model there will be replaced\n")
    assert json.loads(out)["model"] == "m"
    succeed(*TRAIN, "--train", "train.txt", "--quiet")
    (place / "n").mkdir()  # which is no model, and is not replaced
    succeed(*TRAIN[:-2], "n", "--train", "train.txt")
