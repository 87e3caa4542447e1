"""A tagger of a new kind is a class of a few methods: the base predicts, scores and stores."""

import json

import numpy as np
import pytest

import jaxseq
from jaxseq._runtime import Outcome
from jaxseq.taggers import SequenceTagger, register_kind


class Scored:
    """Sentences whose tokens are independent; a word that was never seen has no label."""

    def __init__(self, table, X):
        self.sentences = [list(sentence) for sentence in X]
        self.lengths = np.array([len(sentence) for sentence in self.sentences], int)
        nothing = np.zeros(len(next(iter(table.values()))))
        rows = [table.get(word, nothing) for sentence in self.sentences for word in sentence]
        self.rows = np.array(rows).reshape(-1, len(nothing))

    def best_labels(self, mesh=None):
        return np.where(self.rows.sum(1) > 0, self.rows.argmax(1), -1)

    def marginals(self, mesh=None):
        return self.rows

    def k_best(self, k, mesh=None):
        best = self.best_labels()
        ends = np.cumsum(self.lengths)
        with np.errstate(divide="ignore"):
            logs = np.log(self.rows.max(1, initial=0))
        return [
            (np.maximum(best[end - n : end, None], 0), logs[end - n : end].sum()[None])
            for end, n in zip(ends, self.lengths)
        ]


@register_kind("lookup")
class Lookup(SequenceTagger):
    """The relative frequency of each label with each word."""

    _TRAINING = {"outcome": "outcome_"}  # noqa: RUF012

    def __init__(self, scale=1.0, progress=None):
        self.scale = scale
        self.progress = progress

    def fit(self, X, y):
        pairs = [pair for words, labels in zip(X, y) for pair in zip(words, labels)]
        self.classes_ = np.array(sorted({label for _, label in pairs}), dtype=object)
        words = sorted({word for word, _ in pairs})
        counts = [[pairs.count((word, c)) for c in self.classes_] for word in words]
        counts = np.array(counts, float)
        self.model_ = dict(zip(words, counts / counts.sum(1, keepdims=True)))
        self.outcome_ = Outcome.COUNTED
        return self

    def _scored(self, X):
        return Scored(self.model_, X)

    def _describe(self):
        return {"words": list(self.model_)}, {"table": np.stack(list(self.model_.values()))}

    def _restore(self, about, labels, arrays):
        self.classes_ = np.array(labels, dtype=object)
        self.model_ = dict(zip(about["words"], arrays["table"]))


X, Y = [["a", "b", "a"], ["a"]], [["A", "B", "A"], ["B"]]


@pytest.fixture
def lookup():
    return Lookup(scale=np.float64(2)).fit(X, Y)


def test_predictions_are_read_from_what_the_model_scores(lookup):
    assert lookup.predict([["a", "b"], []]) == [["A", "B"], []]
    first, empty = lookup.predict_proba([["a", "b"], []])
    np.testing.assert_allclose(first, [[2 / 3, 1 / 3], [0, 1]])
    assert empty.shape == (0, 2)
    assert lookup.predict_marginals([["b"]]) == [[{"A": 0.0, "B": 1.0}]]
    [[(labels, log_prob)], [(none, certain)]] = lookup.predict_k_best([["a", "b"], []], 1)
    assert (labels, none, certain) == (["A", "B"], [], 0.0)
    assert log_prob == pytest.approx(np.log(2 / 3))
    assert lookup.score(X, Y) == 0.75
    assert lookup.interrupted_ is False


def test_a_sentence_without_a_labelling_is_named(lookup):
    for predict in (lookup.predict, lookup.predict_proba):
        with pytest.raises(ValueError, match=r"X\[2\]: expected a sentence .* 2 tokens with none"):
            predict([["a"], [], ["a", "?"]])
    assert lookup.predict_k_best([["?"]], 1) == [[]]


def test_a_registered_kind_is_stored_and_found(lookup, tmp_path):
    lookup.save(tmp_path / "model")
    about = json.loads((tmp_path / "model" / "model.json").read_text())
    assert about["kind"] == "lookup"
    assert about["settings"] == {"scale": 2.0}
    loaded = jaxseq.load(tmp_path / "model")
    assert type(loaded) is Lookup
    assert loaded.outcome_ is Outcome.COUNTED
    assert loaded.predict([["a", "b"]]) == [["A", "B"]]
    loaded.save(tmp_path / "again")
    for name in ("model.json", "model.safetensors"):
        one, other = (tmp_path / folder / name for folder in ("model", "again"))
        assert one.read_bytes() == other.read_bytes()


def test_a_tagger_must_say_how_it_scores_and_what_it_is():
    with pytest.raises(TypeError, match="abstract"):
        SequenceTagger()
    assert issubclass(jaxseq.CRFTagger, SequenceTagger)
    assert issubclass(jaxseq.HMMTagger, SequenceTagger)
    assert (jaxseq.CRFTagger.kind, jaxseq.HMMTagger.kind) == ("crf", "hmm")
