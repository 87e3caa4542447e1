"""Hidden Markov models from the command line."""

import json
from collections import Counter

import numpy as np
import pytest

import jaxseq
from jaxseq.hmm import HMMTagger
from tests.cli.conftest import LEXICON, TEXTS, columns_of

LABELS = sorted({label for _, label in LEXICON.values()})
PAIRS = [(word, LEXICON[word][1]) for text in TEXTS for word in text.split()]


def train(toy, out, *more, method=("hmm",)):
    return ["train", *method, "--train", toy / "train.txt", "--out", out, "--cores", 1, *more]


@pytest.fixture(scope="module")
def model(toy, tmp_path_factory):
    """The folder of a model in which every word is known."""
    from jaxseq.cli import main

    folder = tmp_path_factory.mktemp("hmm") / "model"
    argv = train(toy, folder, "--unknown-below", 1, "--quiet")
    assert main([str(part) for part in argv]) == 0
    return folder


def test_the_model_is_that_of_the_estimator(model, tmp_path):
    X = [text.split() for text in TEXTS]
    y = [[LEXICON[word][1] for word in words] for words in X]
    HMMTagger(unknown_below=1, cores=1).fit(X, y).save(tmp_path / "m")
    for name in ("model.json", "model.safetensors"):
        assert (tmp_path / "m" / name).read_bytes() == (model / name).read_bytes()


def test_report(toy, tmp_path, succeed):
    dev = tmp_path / "dev"
    dev.write_text(columns_of(TEXTS[:2]))
    argv = train(toy, tmp_path / "m", "--unknown-below", 3, "--dev", dev)
    report = json.loads(succeed(*argv, "--json"))
    counts = Counter(word for word, _ in PAIRS)
    assert report["words"] == sum(count >= 3 for count in counts.values())
    assert (report["tokens"], report["labels"]) == (len(PAIRS), len(LABELS))
    assert (report["iterations"], report["unlabelled"]) == (0, None)
    X = [text.split() for text in TEXTS[:2]]
    gold = [[LEXICON[word][1] for word in words] for words in X]
    scores = jaxseq.metrics.span_scores(gold, jaxseq.load(tmp_path / "m").predict(X))
    assert report["dev"] == json.loads(json.dumps(scores.as_dict()))
    out = succeed(*argv)
    assert f"words     {report['words']} words, {len(LABELS)} labels" in out
    assert "relative frequencies" in out


def test_a_dev_file_that_the_model_holds_impossible_costs_its_figures_alone(toy, tmp_path, run):
    dev, more = tmp_path / "dev", tmp_path / "more"
    dev.write_text(columns_of(TEXTS[:2]))
    more.write_text("the\n\nthe\n")
    argv = train(toy, tmp_path / "m", "--unknown-below", 1, "--dev", dev, "--unlabelled", more)
    code, out, err = run(*argv, "--em-weight", 1, "--json")
    assert code == 0
    assert json.loads(out)["dev"] is None
    assert f"{dev}: not evaluated: X[0]: " in err
    assert "at weight 1" in err
    assert (tmp_path / "m" / "model.json").exists()


def test_every_option_reaches_the_estimator(toy, tmp_path, succeed):
    given = {
        "column": "pos",
        "unknown_below": 2,
        "initial_smoothing": 0.5,
        "transition_smoothing": 0.25,
        "emission_smoothing": 0.125,
        "em": "hard",
        "weight": 0.75,
        "frozen": ("initial", "transition"),
        "decoding": "max_marginal",
        "classes": (*LABELS, "B-PP"),
        "vocabulary": "labelled",
        "max_iterations": 2,
        "cores": 1,
    }
    named = {"weight": "em_weight", "frozen": "freeze"}
    flags = []
    for name, value in given.items():
        text = ",".join(value) if isinstance(value, tuple) else value
        flags += [f"--{named.get(name, name).replace('_', '-')}", text]
    more = tmp_path / "more"
    more.write_text(columns_of(["the cat sleeps"], width=2))
    argv = train(toy, tmp_path / "m", "--unlabelled", more, *flags, "--json")
    report = json.loads(succeed(*argv))["unlabelled"]
    settings = jaxseq.load(tmp_path / "m").get_params()
    assert {name: settings[name] for name in given} == given
    not_of_the_model = {"progress", "checkpoint", "checkpoint_every", "dtype", "tolerance"}
    assert settings.keys() - given.keys() == not_of_the_model
    assert (report["method"], report["em_weight"]) == ("em", 0.75)
    assert report["frozen"] == ["initial", "transition"]


def test_unlabelled_sentences_change_the_model_as_in_fit(toy, tmp_path, succeed):
    more = tmp_path / "more"
    more.write_text("the\ncow\nsleeps\n\ncow\nbarks\n")
    argv = train(toy, tmp_path / "m", "--unlabelled", more, "--unknown-below", 1)
    out = succeed(*argv, "--em-weight", 0.5, "--max-iterations", 3)
    assert "EM        soft, weight 0.5, frozen transition" in out
    X = [text.split() for text in TEXTS]
    y = [[LEXICON[word][1] for word in words] for words in X]
    same = HMMTagger(unknown_below=1, cores=1, weight=0.5, max_iterations=3)
    same.fit(X, y, unlabelled=[["the", "cow", "sleeps"], ["cow", "barks"]])
    found = jaxseq.load(tmp_path / "m")
    for a, b in zip(found.model_.probabilities, same.model_.probabilities):
        np.testing.assert_array_equal(a, b)


def test_self_training(toy, tmp_path, succeed):
    more = tmp_path / "more"
    more.write_text("the\ncow\nsleeps\n")
    argv = train(toy, tmp_path / "m", "--unlabelled", more, "--json", method=["self", "hmm"])
    report = json.loads(succeed(*argv, "--unknown-below", 1))["unlabelled"]
    assert report["method"] == "self-training"
    assert report["outcome"].startswith("converged")
    assert type(jaxseq.load(tmp_path / "m")) is HMMTagger


def test_tag(model, tmp_path, succeed, type_in):
    type_in("the cow barks\n")
    out = succeed("tag", "--model", model, "--format", "plain")
    assert out == "the B-NP\ncow I-NP\nbarks B-VP\n\n"
    type_in("the cow\n")
    rows = succeed("tag", "--model", model, "--format", "plain", "--marginals").split("\n")
    word, label, *table = rows[0].split()
    assert (word, label, table[0].split(":")[0]) == ("the", "B-NP", "B-NP")
    assert sum(float(cell.split(":")[1]) for cell in table) == pytest.approx(1, abs=1e-5)
    type_in("the cow\n")
    out = succeed("tag", "--model", model, "--format", "plain", "--k-best", 2)
    assert out.startswith("#rank=0,P=0.")
    assert "\n#rank=1,P=0." in out


def test_evaluate(model, toy, succeed):
    argv = ["evaluate", "--model", model, "--test", toy / "train.txt", "--tokens", "--json"]
    report = json.loads(succeed(*argv))
    X = [text.split() for text in TEXTS]
    predicted = [label for labels in jaxseq.load(model).predict(X) for label in labels]
    right = np.mean([guess == gold for guess, (_, gold) in zip(predicted, PAIRS)])
    assert report["token_accuracy"] == pytest.approx(right)


def test_inspect(model, succeed):
    report = json.loads(succeed("inspect", model, "--json", "--top", 3))
    assert report["labels"] == LABELS
    assert report["words"] == len(LEXICON)
    size = len(LEXICON) + 1
    for label in LABELS:
        counts = Counter(word for word, found in PAIRS if found == label)
        total = sum(counts.values()) + 0.05 * size
        wanted = sorted(((n + 0.05) / total for n in counts.values()), reverse=True)[:3]
        found = [p for word, p in report["emission"][label] if word in counts]
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
        first = sum(LEXICON[text.split()[0]][1] == label for text in TEXTS)
        assert report["initial"][label] == pytest.approx((first + 0.2) / (len(TEXTS) + 0.8))
    assert report["transitions"][0][:2] == ["B-NP", "I-NP"]
    one = json.loads(succeed("inspect", model, "--json", "--label", "O"))
    assert list(one["emission"]) == list(one["initial"]) == ["O"]
    assert all("O" in triple[:2] for triple in one["transitions"])
    assert None in [word for word, _ in one["emission"]["O"]]  # the unknown word
    text = succeed("inspect", model)
    assert "(unknown)" in text
    assert "B-NP → I-NP" in text


MISTAKES = [
    (
        ["--templates", "token"],
        "jaxseq train hmm: error: unrecognized arguments: --templates token",
    ),
    (["--l2", 2], "unrecognized arguments: --l2 2"),
    (["--scheme", "IOB2"], "unrecognized arguments: --scheme IOB2"),
    (["--model", "hmm"], "unrecognized arguments: --model hmm"),
    (["--confidence", 0.5], "unrecognized arguments: --confidence 0.5"),
    (["--em-weight", 0.5], "--em-weight: expected along with --unlabelled FILE only"),
    (["--em-weight", 2], "argument --em-weight: expected a probability, 0 to 1, got '2'"),
    (
        ["--freeze", "words"],
        "argument --freeze: expected nothing or some of initial, transition, emission",
    ),
    (["--column", "form"], "expected a column 'form', since the model reads form"),
    (["--unknown-below", 0], "unknown_below: expected a finite number, 1 or more, got 0"),
    (["--em", "none"], "argument --em: invalid choice"),
    (["--emission-smoothing", -1], "emission_smoothing: expected a finite number, 0 or more"),
]


@pytest.mark.parametrize(("more", "message"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_is_told_in_one_line_and_nothing_is_written(more, message, toy, tmp_path, run):
    status, out, err = run(*train(toy, tmp_path / "m", *more))
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_options_of_a_hidden_markov_model_are_not_those_of_a_crf(toy, tmp_path, run):
    argv = ["train", "--train", toy / "train.txt", "--out", tmp_path / "m"]
    status, _, err = run(*argv, "--templates", "token", "--decoding", "viterbi")
    assert status == 2
    assert "jaxseq train crf: error: unrecognized arguments: --decoding viterbi" in err
    assert not list(tmp_path.iterdir())


def test_a_model_to_start_from_must_be_a_crf(model, toy, tmp_path, run):
    argv = ["train", "--train", toy / "train.txt", "--templates", "token", "--out", tmp_path / "m"]
    status, _, err = run(*argv, "--warm-start", model)
    assert status == 2
    assert "warm_start_from: expected a trained CRFTagger" in err
