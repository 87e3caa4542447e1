"""``jaxseq train``: what it reads, what it reports and what it leaves behind."""

import gzip
import json
import time

import pytest

import jaxseq
from jaxseq.crf import _lbfgs
from tests.cli.conftest import LEXICON, TEXTS, columns_of

TOKENS = sum(len(text.split()) for text in TEXTS)
LABELS = sorted({label for _, label in LEXICON.values()})
ATTRIBUTES = len(LEXICON) + len({pos for pos, _ in LEXICON.values()})


def train(toy, out, *more, data="train.txt", templates="templates"):
    """The arguments that train a small model."""
    given = ["--train", toy / data] if isinstance(data, str) else ["--train", data]
    given += ["--templates", toy / templates if templates == "templates" else templates]
    return ["train", *given, "--out", out, "--max-iterations", 20, *more]


def test_report_as_json(toy, tmp_path, succeed):
    out = succeed(*train(toy, tmp_path / "m", "--dev", toy / "train.txt", "--json"))
    report = json.loads(out)
    assert report["sentences"] == len(TEXTS)
    assert report["tokens"] == TOKENS
    assert report["attributes"] == ATTRIBUTES
    assert report["labels"] == len(LABELS)
    assert 0 < report["iterations"] <= 20
    assert report["outcome"].startswith(("converged", "stopped"))
    assert set(report["seconds"]) == {"features", "training"}
    assert min(report["seconds"].values()) > 0
    assert report["model"] == str(tmp_path / "m")
    assert report["dev"]["overall"]["f1"] == 1  # every word tells its label
    assert report["dev"]["tokens"] == TOKENS


def test_report_as_text(toy, tmp_path, succeed):
    out = succeed(*train(toy, tmp_path / "m", "--dev", toy / "train.txt"))
    assert f"{len(TEXTS)} sentences, {TOKENS} tokens" in out
    assert f"{ATTRIBUTES} attributes, {len(LABELS)} labels" in out
    assert f"model     {tmp_path / 'm'}" in out
    assert f"processed {TOKENS} tokens with 12 phrases; found: 12 phrases; correct: 12." in out


def test_the_folder_is_a_model(toy, tmp_path, succeed):
    assert succeed(*train(toy, tmp_path / "deep" / "m", "--quiet")) == ""
    names = {path.name for path in (tmp_path / "deep" / "m").iterdir()}
    assert names == {"model.json", "model.safetensors"}
    tagger = jaxseq.load(tmp_path / "deep" / "m")
    assert tagger.classes_.tolist() == LABELS
    words = ["the", "dog", "barks", "."]
    sentence = {"word": words, "pos": [LEXICON[word][0] for word in words]}
    assert tagger.predict([sentence]) == [[LEXICON[word][1] for word in words]]


def test_options_reach_the_tagger(toy, tmp_path, succeed):
    options = {
        "l1": 0.25, "l2": 0.5, "seed": 3, "weights": "dense", "cutoff": 2, "scheme": "IOB2",
        "algorithm": "adamw", "epochs": 2, "batch_size": 4, "learning_rate": 0.125, "cores": 1,
    }  # fmt: skip
    given = [
        part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)
    ]
    succeed(*train(toy, tmp_path / "m", "--quiet", *given))
    tagger = jaxseq.load(tmp_path / "m")
    found = {name: getattr(tagger, name) for name in options}
    assert found == options
    assert tagger.max_iterations == 20
    assert tagger.n_iter_ == 2


def test_columns_have_the_names_they_are_given(toy, tmp_path, succeed):
    (tmp_path / "templates").write_text("form[0]\n")
    files = {"data": toy / "train.txt", "templates": tmp_path / "templates"}
    succeed(*train(toy, tmp_path / "m", "--columns", "form,-,chunk", "--quiet", **files))
    tagger = jaxseq.load(tmp_path / "m")
    assert tagger.predict([{"form": ["the", "cat"]}]) == [["B-NP", "I-NP"]]


def test_columns_by_their_number(toy, tmp_path, succeed):
    words = [line.split() for line in columns_of(TEXTS).split("\n")]
    two = "\n".join(" ".join(cells[::2]) for cells in words)
    four = "\n".join(" ".join([*cells[:2], "X", cells[2]] if cells else []) for cells in words)
    for text, wanted in ((two, "word"), (four, "chunk")):
        (tmp_path / "data").write_text(text)
        (tmp_path / "templates").write_text(f"{wanted}[0]\n")
        files = {"data": tmp_path / "data", "templates": tmp_path / "templates"}
        succeed(*train(toy, tmp_path / wanted, "--quiet", **files))
    assert jaxseq.load(tmp_path / "chunk").extractor_.attribute_names() == ["chunk[0]=X"]
    assert jaxseq.load(tmp_path / "word").classes_.tolist() == LABELS


def test_a_template_file_of_crfpp_counts_columns(toy, tmp_path, succeed):
    (tmp_path / "templates").write_text("# words\nU00:%x[0,0]\nU01:%x[-1,1]/%x[0,1]\n\nB\n")
    succeed(*train(toy, tmp_path / "m", "--quiet", templates=tmp_path / "templates"))
    tagger = jaxseq.load(tmp_path / "m")
    assert {"U00:dog", "U01:DT/NN"} <= set(tagger.extractor_.attribute_names())
    assert tagger.extractor_.templates.columns == ("word", "pos")


def test_tabs_compression_and_conversion(toy, tmp_path, succeed):
    text = columns_of(TEXTS, delimiter="\t").replace("dog", "hot dog")
    (tmp_path / "data.gz").write_bytes(gzip.compress(text.encode()))
    more = ["--delimiter", "tab", "--scheme-to", "IOBES", "--scheme", "IOBES", "--quiet"]
    succeed(*train(toy, tmp_path / "m", *more, data=tmp_path / "data.gz"))
    tagger = jaxseq.load(tmp_path / "m")
    assert tagger.classes_.tolist() == ["B-NP", "E-NP", "O", "S-VP"]
    assert "word[0]=hot dog" in tagger.extractor_.attribute_names()


def test_labels_may_be_unknown(toy, tmp_path, run, succeed):
    (tmp_path / "ads").write_text("sunny FEATURES\ncall CONTACT\n\nsunny ?\nnow ?\n")
    files = {"data": tmp_path / "ads", "templates": "token"}
    succeed(*train(toy, tmp_path / "m", "--unknown-label", "?", "--quiet", **files))
    assert jaxseq.load(tmp_path / "m").classes_.tolist() == ["CONTACT", "FEATURES"]
    more = ["--unknown-label", "?", "--dev", tmp_path / "ads"]
    status, _, err = run(*train(toy, tmp_path / "m2", *more, **files))
    assert status == 2
    assert f"{tmp_path / 'ads'}: sentence 2: expected a label on every token" in err
    assert not (tmp_path / "m2").exists()


def test_warm_start_begins_where_the_older_model_ended(toy, tmp_path, succeed):
    cold = json.loads(succeed(*train(toy, tmp_path / "a", "--l2", 0.1, "--json")))
    more = ["--l2", 0.1, "--json", "--warm-start", toy / "model"]
    warm = json.loads(succeed(*train(toy, tmp_path / "b", *more)))
    assert warm["iterations"] < cold["iterations"]
    assert warm["loss"] == pytest.approx(cold["loss"], rel=1e-3)


def test_a_checkpoint_is_of_one_search(toy, tmp_path, run, succeed):
    kept = tmp_path / "kept"
    more = ["--checkpoint", kept, "--l2", "0.001"]
    report = json.loads(
        succeed(*train(toy, tmp_path / "a", *more, "--max-iterations", 3, "--json"))
    )
    assert report["iterations"] == 3
    assert kept.exists()
    status, _, err = run(*train(toy, tmp_path / "c", *more, "--l2", 2))
    assert status == 2
    assert f"{kept}: expected a checkpoint of this very search" in err
    assert not (tmp_path / "c").exists()


def test_interrupted_training_keeps_the_best_model(toy, tmp_path, run, monkeypatch):
    whole, done = _lbfgs.iterate, []

    def iterate(*arguments):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(1)
        return whole(*arguments)

    monkeypatch.setattr(_lbfgs, "iterate", iterate)
    status, out, err = run(*train(toy, tmp_path / "m"))
    assert status == 130
    assert err == "jaxseq: interrupted after 3 iterations: the best model so far is kept\n"
    assert "3 iterations" in out
    assert "interrupted" in out
    assert jaxseq.load(tmp_path / "m").n_iter_ == 3


def test_interrupted_before_anything_is_learnt(toy, tmp_path, run, monkeypatch):
    def iterate(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(_lbfgs, "iterate", iterate)
    assert run(*train(toy, tmp_path / "m")) == (130, "", "jaxseq: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_that_python_can_only_print_counts(toy, tmp_path, run, monkeypatch):
    whole = _lbfgs.iterate

    class Callback:
        def __del__(self):
            raise KeyboardInterrupt

    def iterate(*arguments):
        if "callback" in kept:
            del kept["callback"]
            time.sleep(1)
        return whole(*arguments)

    kept = {"callback": Callback()}
    monkeypatch.setattr(_lbfgs, "iterate", iterate)
    status, _, err = run(*train(toy, tmp_path / "m"))
    assert status == 130
    assert err.startswith("jaxseq: interrupted after ")


def test_an_older_model_is_replaced_only_by_a_complete_one(toy, tmp_path, run, succeed):
    out = tmp_path / "m"
    succeed(*train(toy, out, "--quiet", templates="token"))
    before = (out / "model.json").read_bytes()
    assert run(*train(toy, out, "--l2", -1))[0] == 2
    assert (out / "model.json").read_bytes() == before
    succeed(*train(toy, out, "--quiet"))
    assert (out / "model.json").read_bytes() != before
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_same_command_same_bytes(toy, tmp_path, succeed):
    for name in ("a", "b"):
        succeed(*train(toy, tmp_path / name, "--quiet"))
    for file in ("model.json", "model.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_defaults_are_those_of_the_tagger(toy, tmp_path, succeed):
    given = ["train", "--train", toy / "train.txt", "--templates", toy / "templates"]
    succeed(*given, "--out", tmp_path / "m", "--quiet")
    settings = jaxseq.load(tmp_path / "m").get_params()
    ordinary = jaxseq.CRFTagger().get_params()
    for name in settings.keys() - {"templates", "progress", "checkpoint"}:
        assert settings[name] == ordinary[name], name


@pytest.mark.parametrize("beside", ["notes.txt", "ck"])
def test_a_folder_that_could_not_be_replaced_is_refused_before_training(
    toy, tmp_path, succeed, run, beside
):
    succeed(*train(toy, tmp_path / "m", "--quiet"))
    before = (tmp_path / "m" / "model.json").read_bytes()
    if beside == "ck":
        status, _, line = run(*train(toy, tmp_path / "m", "--checkpoint", tmp_path / "m" / "ck"))
        assert "ck: expected a file outside of the model's folder" in line
    else:
        (tmp_path / "m" / beside).write_text("mine")
        status, _, line = run(*train(toy, tmp_path / "m"))
        assert "expected nothing, an empty folder or an older model" in line
    assert status == 2
    assert (tmp_path / "m" / "model.json").read_bytes() == before
