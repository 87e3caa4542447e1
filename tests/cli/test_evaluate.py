"""``jaxseq evaluate``: the figures of conlleval, agreement of tokens, and McNemar's test."""

import json

import pytest

from tests.cli.conftest import TEXTS, columns_of

PREDICTED = """\
the DT B-NP B-NP
dog NN I-NP I-NP
barks VBZ B-VP O
. . O B-NP

the DT B-NP B-NP
cat NN I-NP O
"""
"""Three gold spans, three predicted, one of them right; 3 of 6 tokens right."""

TABLE = """\
processed 6 tokens with 3 phrases; found: 3 phrases; correct: 1.
accuracy:  50.00%; precision:  33.33%; recall:  33.33%; FB1:  33.33
               NP: precision:  33.33%; recall:  50.00%; FB1:  40.00  3
               VP: precision:   0.00%; recall:   0.00%; FB1:   0.00  0
"""


@pytest.fixture
def predicted(tmp_path):
    path = tmp_path / "predicted"
    path.write_text(PREDICTED)
    return path


def test_table_of_a_file(predicted, succeed):
    assert succeed("evaluate", predicted) == TABLE


def test_standard_input_and_delimiter(succeed, type_in):
    type_in(PREDICTED.replace(" ", ";"))
    assert succeed("evaluate", "-", "--delimiter", ";") == TABLE


def test_two_columns_are_enough(tmp_path, succeed):
    (tmp_path / "file").write_text("B-NP B-NP\nO O\n")
    assert "with 1 phrases; found: 1 phrases; correct: 1." in succeed("evaluate", tmp_path / "file")


def test_marks_of_documents_are_tokens_as_for_conlleval(tmp_path, succeed):
    (tmp_path / "file").write_text(f"-DOCSTART- -X- O O\n\n{PREDICTED}")
    out = succeed("evaluate", tmp_path / "file")
    assert "processed 7 tokens with 3 phrases; found: 3 phrases; correct: 1." in out
    assert f"accuracy:  {400 / 7:.2f}%" in out


def test_json_with_tokens(predicted, succeed):
    report = json.loads(succeed("evaluate", predicted, "--json", "--tokens"))
    assert report["overall"] == {
        "precision": 1 / 3, "recall": 1 / 3, "f1": 1 / 3, "tp": 1, "predicted": 3, "gold": 3,
    }  # fmt: skip
    assert report["token_accuracy"] == report["accuracy"] == 0.5
    # gold: 2 B-NP, 2 I-NP, 1 B-VP, 1 O; predicted: 3 B-NP, 1 I-NP, 2 O
    by_chance = (2 * 3 + 2 * 1 + 1 * 0 + 1 * 2) / 36
    assert report["kappa"] == pytest.approx((0.5 - by_chance) / (1 - by_chance))


def test_tokens_as_text(predicted, succeed):
    out = succeed("evaluate", predicted, "--tokens")
    assert out.startswith(TABLE)
    assert out.splitlines()[-1] == "tokens: accuracy:  50.00%; kappa: 0.3077"


def test_against_another_prediction(predicted, tmp_path, succeed):
    """The other has I-NP for the last token, right, and O for the second, wrong."""
    other = PREDICTED.replace("cat NN I-NP O", "cat NN I-NP I-NP").replace(
        "dog NN I-NP I-NP", "dog NN I-NP O"
    )
    other = other.replace("barks VBZ B-VP O", "barks VBZ B-VP B-VP")
    (tmp_path / "other").write_text(other)
    argv = ["evaluate", predicted, "--against", tmp_path / "other"]
    result = json.loads(succeed(*argv, "--json"))["mcnemar"]
    assert (result["n10"], result["n01"]) == (1, 2)
    assert result["statistic"] == 0
    assert result["exact_p_value"] == 1  # 2 (1 + 3) / 2³
    last = succeed(*argv).splitlines()[-1]
    assert last.startswith(f"McNemar: only {predicted} right: 1; only {tmp_path / 'other'} right:")


def test_against_other_gold_labels(predicted, tmp_path, run):
    (tmp_path / "other").write_text(PREDICTED.replace("cat NN I-NP", "cat NN B-VP"))
    status, out, err = run("evaluate", predicted, "--against", tmp_path / "other")
    assert (status, out) == (2, "")
    assert f"{tmp_path / 'other'}: sentence 2: expected the gold labels of {predicted}" in err
    (tmp_path / "other").write_text(PREDICTED.split("\n\n")[0])
    status, out, err = run("evaluate", predicted, "--against", tmp_path / "other")
    assert (status, out) == (2, "")
    assert "expected 2 sentences" in err


def test_model_on_labelled_text(toy, tmp_path, succeed):
    wrong = columns_of(TEXTS).replace("barks VBZ B-VP", "barks VBZ O", 1)
    (tmp_path / "test").write_text(wrong)
    argv = ["evaluate", "--model", toy / "model", "--test", tmp_path / "test"]
    report = json.loads(succeed(*argv, "--json"))
    tokens = sum(len(text.split()) for text in TEXTS)
    assert report["correct_tokens"] == tokens - 1
    assert report["by_type"]["NP"]["f1"] == 1
    assert report["by_type"]["VP"] == {
        "precision": 5 / 6, "recall": 1, "f1": 10 / 11, "tp": 5, "predicted": 6, "gold": 5,
    }  # fmt: skip


def test_a_line_that_begins_with_x_ends_a_sentence_and_is_no_token(tmp_path, succeed):
    (tmp_path / "file").write_text("a B-A B-A\n-X- B-A I-A\nb I-A I-A\n")
    out = succeed("evaluate", tmp_path / "file")
    assert out.startswith("processed 2 tokens with 2 phrases; found: 2 phrases; correct: 2.\n")


def test_parts_of_speech_are_evaluated_by_tokens(tmp_path, succeed):
    (tmp_path / "file").write_text("the DT DT\n( -LRB- -LRB-\ndog NN VB\n. . .\n")
    lines = succeed("evaluate", tmp_path / "file").splitlines()
    assert lines[:3] == [
        "processed 4 tokens with 5 labels; correct: 3.",
        "accuracy:  75.00%",
        "            -LRB-: precision: 100.00%; recall: 100.00%; FB1: 100.00  1",
    ]
    assert "   NN      0  0   0   0   1" in lines
    report = json.loads(succeed("evaluate", tmp_path / "file", "--json"))
    assert report["confusion"]["NN"] == {"VB": 1}
    assert "overall" not in report
