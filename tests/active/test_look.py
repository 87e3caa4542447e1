"""What a look at the pool says, against all labellings of every sentence."""

from __future__ import annotations

import numpy as np
import pytest

import jaxseq
from jaxseq.active import SequenceQueries, SpanQueries, TokenQueries
from jaxseq.active._pool import PoolView
from tests.taggers.toys import LABELS, log_sum, path_scores, toy_corpus, words_of

X, Y = toy_corpus(3, sentences=10)
WORDS = [*words_of(X), []]
N_BEST = 4
TEMPLATES = {
    "plain": jaxseq.text.Templates(["word[0]", "word[-1]"]),
    "pairs": jaxseq.text.Templates(["word[0]", "word[-1]"], bigram=["word[0]"]),
}


def entropy_of(p: np.ndarray) -> float:
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


def by_enumeration(tagger, words: list[str]) -> dict:
    """Everything that a look may hold, of one sentence."""
    before = ["_B-1", *words]
    tokens = [{f"word[0]={w}": 1.0, f"word[-1]={b}": 1.0} for w, b in zip(words, before)]
    edges = set(tagger.extractor_.edge_attribute_names())
    pairs = [[name for name in edges if name.endswith(f"={w}")] for w in words[1:]]
    paths, scores = path_scores(tagger, tokens, pairs if edges else None)
    p = np.exp(scores - log_sum(scores))
    best = paths[p.argmax()]
    at = [np.array([p[paths[:, t] == k].sum() for k in range(3)]) for t in range(len(words))]
    steps = [0.0]
    for t in range(1, len(words)):
        both = [p[(paths[:, t - 1] == i) & (paths[:, t] == j)].sum() for i in range(3)
                for j in range(3)]  # fmt: skip
        steps.append(entropy_of(np.array(both)) - entropy_of(at[t - 1]))
    top = np.sort(p)[::-1][:N_BEST]
    return {
        "labels": best,
        "confidence": [at[t][k] for t, k in enumerate(best)],
        "label_entropy": [entropy_of(row) for row in at],
        "step_entropy": steps,
        "viterbi": np.log(p.max()),
        "entropy": entropy_of(p),
        "n_best": entropy_of(top / top.sum()),
    }


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_look_is_what_enumeration_gives(kind):
    tagger = jaxseq.CRFTagger(TEMPLATES[kind], cores=1, l2=0.3, weights="dense", dtype="float64")
    tagger.fit(WORDS[:-1], Y)
    assert tagger.classes_.tolist() == LABELS
    features = tagger.extractor_.transform(WORDS)
    view = PoolView(features, tagger.extractor_.attribute_count)
    looks = {
        "spans": view.look(tagger.model_, SpanQueries()),
        "entropy": view.look(tagger.model_, SequenceQueries(by="entropy")),
        "n_best": view.look(tagger.model_, SequenceQueries(by="n_best", n_best=N_BEST)),
        "tokens": view.look(tagger.model_, TokenQueries()),
    }
    wanted = [by_enumeration(tagger, words) for words in WORDS if words]
    for name in ("labels", "confidence", "label_entropy", "step_entropy"):
        by_hand = np.concatenate([one[name] for one in wanted])
        found = getattr(looks["spans"], name)
        if name == "step_entropy":
            by_hand = by_hand[looks["spans"].position > 0]
            found = found[looks["spans"].position > 0]
        np.testing.assert_allclose(found, by_hand, atol=1e-9, err_msg=name)
    for name, look in (("viterbi", "tokens"), ("entropy", "entropy"), ("n_best", "n_best")):
        by_hand = [*(one[name] for one in wanted), 0.0]
        np.testing.assert_allclose(looks[look].sequence[name], by_hand, atol=1e-9, err_msg=name)
    for look in looks.values():
        np.testing.assert_array_equal(look.labels, looks["tokens"].labels)
        np.testing.assert_array_equal(look.confidence, looks["tokens"].confidence)


def test_a_sentence_without_a_legal_labelling_is_never_unsure():
    tagger = jaxseq.CRFTagger(["word[0]"], cores=1, scheme="IOBES", l2=0.3)
    tagger.fit([["a", "b", "c"]], [["B-X", "I-X", "E-X"]])
    features = tagger.extractor_.transform([["a"], ["a", "b"]])
    look = PoolView(features, tagger.extractor_.attribute_count).look(tagger.model_, SpanQueries())
    assert look.labels[0] == -1
    assert look.labels[1:].min() >= 0
    assert look.confidence[0] == 1
    assert look.sequence["viterbi"][0] == 0
    assert look.label_entropy is not None
    assert look.label_entropy[0] == 0
    assert np.isfinite(look.confidence).all()
