"""``jaxseq inspect``: what it tells is what is in the model's files."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.cli.conftest import LEXICON

LABELS = sorted({label for _, label in LEXICON.values()})


@pytest.fixture(scope="module")
def arrays(toy):
    """The arrays of the model, with its weights in one table."""
    found = load_file(toy / "model" / "model.safetensors")
    if "weights" not in found:
        attributes = json.loads((toy / "model" / "model.json").read_text())["attributes"]
        table = np.zeros(attributes * len(LABELS), np.float32)
        table[found["weight_places"]] = found["weight_values"]
        found["weights"] = table.reshape(attributes, len(LABELS))
    return found


def test_counts_and_outcome(toy, arrays, succeed):
    report = json.loads(succeed("inspect", toy / "model", "--json"))
    about = json.loads((toy / "model" / "model.json").read_text())
    assert report["labels"] == LABELS
    assert report["attributes"] == about["attributes"]
    assert report["training"] == about["training"]
    for name in ("weights", "transitions", "start", "stop"):
        assert report["non_zero_weights"][name] == np.count_nonzero(arrays[name])


def test_top_features(toy, arrays, succeed):
    report = json.loads(succeed("inspect", toy / "model", "--json", "--top", 3))
    assert list(report["features"]) == LABELS
    for column, label in enumerate(LABELS):
        weights = [weight for _, weight in report["features"][label]]
        largest = np.sort(arrays["weights"][:, column])[::-1][:3]
        np.testing.assert_allclose(weights, largest[largest > 0], rtol=1e-6)
    words = {name for name, _ in report["features"]["B-VP"]}
    assert words <= {"word[0]=barks", "word[0]=sleeps", "pos[0]=VBZ"}


def test_transitions_of_both_signs(toy, arrays, succeed):
    found = json.loads(succeed("inspect", toy / "model", "--json"))["transitions"]
    table = arrays["transitions"]
    for sign, wanted in (("positive", table > 0), ("negative", table < 0)):
        triples = {(a, b): weight for a, b, weight in found[sign]}
        pairs = {(LABELS[i], LABELS[j]): table[i, j] for i, j in np.argwhere(wanted)}
        assert triples == pytest.approx(pairs)
        sizes = [abs(weight) for *_, weight in found[sign]]
        assert sizes == sorted(sizes, reverse=True)
    assert found["positive"][0][:2] == ["B-NP", "I-NP"]
    assert found["forbidden"] == 0


def test_one_label(toy, succeed):
    report = json.loads(succeed("inspect", toy / "model", "--json", "--label", "O"))
    assert list(report["features"]) == ["O"]
    for sign in ("positive", "negative"):
        assert all("O" in triple[:2] for triple in report["transitions"][sign])


def test_text(toy, succeed):
    out = succeed("inspect", toy / "model", "--top", 1)
    assert f"labels      {len(LABELS)}: {' '.join(LABELS)}" in out
    assert out.count("features of ") == len(LABELS)
    assert "B-NP → I-NP" in out
    assert "forbidden" not in out


def test_forbidden_transitions_are_counted_not_shown(toy, tmp_path, succeed):
    argv = ["--train", toy / "train.txt", "--templates", toy / "templates", "--scheme", "IOB2"]
    succeed("train", *argv, "--out", tmp_path / "m", "--quiet", "--max-iterations", 3)
    found = json.loads(succeed("inspect", tmp_path / "m", "--json"))["transitions"]
    assert found["forbidden"] == 2  # I-NP after B-VP and after O
    assert "forbidden transitions: 2" in succeed("inspect", tmp_path / "m")
