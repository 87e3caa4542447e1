"""Training with unlabelled sentences, against every labelling in float64."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from sklearn.base import clone

import jaxseq
from jaxseq.crf import EncodedLabels, ShardMaker, lay_out
from jaxseq.crf import _search as _fit
from jaxseq.text import DictExtractor
from tests.crf.semi_toys import (
    BARE,
    L2,
    MANY,
    ONE_ROW,
    PARTIAL,
    U,
    X,
    Y,
    entropy,
    in_attributes,
    models_agree,
    objective,
    supervised,
    tagger,
    with_unlabelled,
)
from tests.crf.test_checkpoint import saved_bytes
from tests.taggers.toys import negative_log_likelihood, path_scores, squares

# ------------------------------------------------------------------------------ what is learnt


@pytest.mark.parametrize(
    "options",
    [
        {"unlabelled": U, "entropy_weight": 0.0},
        {"unlabelled": [*U, [{"w": "new"}]], "entropy_weight": 0.0, "entropy_gradient": "jiao"},
        {"unlabelled": [], "entropy_weight": 3.0},
        {"unlabelled": [[], []], "entropy_weight": 3.0},
        {"unlabelled": iter([[]]), "vocabulary": "labelled"},
        {"unlabelled": None, "entropy_weight": 3.0},
    ],
    ids=["zero", "zero and new words", "no sentence", "empty sentences", "labelled", "none"],
)
def test_with_nothing_to_add_the_model_is_the_supervised_one_to_the_bit(options, tmp_path):
    wanted = saved_bytes(supervised(), tmp_path / "a")
    assert saved_bytes(tagger().fit(X, Y, **options, expectations=[]), tmp_path / "b") == wanted


@pytest.mark.parametrize("gamma", [0.5, 10.0])
def test_the_objective_is_that_of_all_labellings_and_falls(gamma):
    trained = with_unlabelled(gamma)
    assert trained.loss_ == pytest.approx(objective(trained, gamma), rel=1e-10)
    assert trained.loss_ < objective(supervised(), gamma)
    assert entropy(trained, U) < entropy(supervised(), U)
    assert trained.n_iter_ > supervised().n_iter_


def test_the_search_ends_where_no_direction_leads_down():
    trained = tagger(tolerance=0.0).fit(X, Y, unlabelled=U, entropy_weight=2.0, **BARE)
    rng, step = np.random.default_rng(0), 1e-4
    names = ("weights", "transitions", "start", "stop")

    def slope(of, moves):
        def at(size):
            arrays = {n: np.asarray(getattr(of.model_, n)) + size * moves[n] for n in names}
            model = SimpleNamespace(**arrays, edge_weights=None)
            moved = SimpleNamespace(model_=model, extractor_=of.extractor_, classes_=of.classes_)
            return objective(moved, 2.0)

        return (at(step) - at(-step)) / (2 * step)

    for _ in range(3):
        moves = {n: rng.normal(size=np.shape(getattr(trained.model_, n))) for n in names}
        assert abs(slope(trained, moves)) < 1e-3 * abs(slope(supervised(), moves))


def test_the_three_derivations_give_the_same_iterates(monkeypatch):
    ordinary, runs = _fit._lbfgs.iterate, {}
    for derivation in ("mann", "jiao", "autodiff"):
        points = runs[derivation] = []

        def iterate(*args, points=points):
            found = ordinary(*args)
            points.append(None if found is None else jax.tree.map(np.array, found.parameters))
            return found

        with monkeypatch.context() as patch:
            patch.setattr(_fit._lbfgs, "iterate", iterate)
            tagger(max_iterations=25).fit(
                X, Y, unlabelled=U, entropy_gradient=derivation, entropy_weight=1.0, **BARE
            )
    assert len(runs["mann"]) > 30
    for other in ("jiao", "autodiff"):
        assert len(runs[other]) == len(runs["mann"])
        for got, want in zip(jax.tree.leaves(runs[other]), jax.tree.leaves(runs["mann"])):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("weights", "copies"), [("mixed", 6), ("observed", 1), ("dense", 1), ("tied", 1)]
)
def test_sentences_twice_are_twice_the_weight(weights, copies):
    """In rows of 128 words: two and four for the first, one for the others."""
    one = tagger(weights=weights)
    once = clone(one).fit(X, Y, unlabelled=U * copies, entropy_weight=1.0, **BARE)
    twice = clone(one).fit(X, Y, unlabelled=U * (2 * copies), entropy_weight=0.5, **BARE)
    assert twice.loss_ == pytest.approx(once.loss_, rel=1e-10)
    models_agree(twice, once, 1e-6)


def test_one_token():
    one = [[{"w": "u", "size": 0.25, "bias": True}]]
    trained = tagger(max_iterations=15).fit(X, Y, unlabelled=one, entropy_weight=4.0, **BARE)
    assert trained.loss_ == pytest.approx(objective(trained, 4.0, sentences=one), rel=1e-10)
    assert entropy(trained, one) < entropy(supervised(), one)


def test_labelled_partially_labelled_and_unlabelled_in_one_call():
    trained = tagger(max_iterations=15).fit(
        X, PARTIAL, unlabelled=[[], *U], entropy_weight=1.0, **BARE
    )
    assert trained.loss_ == pytest.approx(objective(trained, 1.0, PARTIAL), rel=1e-10)


def test_another_model_in_place_of_the_supervised_start():
    whole = with_unlabelled(1.0)
    warm = tagger().fit(
        X, Y, unlabelled=U, warm_start_from=supervised(), entropy_weight=1.0, **BARE
    )
    assert warm.n_iter_ == whole.n_iter_ - supervised().n_iter_
    models_agree(warm, whole, 1e-9)
    from_sure = tagger(max_iterations=1).fit(
        X, Y, unlabelled=U, warm_start_from=whole, entropy_weight=1.0, **BARE
    )
    assert from_sure.n_iter_ <= 1
    assert from_sure.loss_ <= whole.loss_


def test_double_precision_is_kept_on_disk(tmp_path):
    exact = with_unlabelled(1.0)
    assert exact.model_.weights.dtype == np.float64
    assert jaxseq.CRFTagger().dtype == "float32"
    exact.save(tmp_path / "exact")
    models_agree(jaxseq.load(tmp_path / "exact"), exact, 0.0)


def test_attributes_of_unlabelled_sentences_get_weights_unless_not_wanted():
    more = [[{**token, "w": "new"} for token in U[0]], *U[1:]]
    both = tagger(max_iterations=5).fit(X, Y, unlabelled=more, entropy_weight=1.0, **BARE)
    names = both.extractor_.attribute_names()
    assert set(names) == {*supervised().extractor_.attribute_names(), "w:new"}
    assert np.abs(both.model_.weights[names.index("w:new")]).max() > 1e-3
    known = tagger(max_iterations=5).fit(
        X, Y, unlabelled=more, vocabulary="labelled", entropy_weight=1.0, **BARE
    )
    assert known.extractor_.attribute_names() == supervised().extractor_.attribute_names()
    assert entropy(known, U) < entropy(supervised(), U)


def in_iob2(labels: list[str]) -> list[str]:
    """A and B as words of one kind of span, C outside."""
    inside = [label != "C" for label in labels]
    return [
        "O" if not here else "I-P" if before else "B-P"
        for before, here in zip([False, *inside], inside)
    ]


def test_a_scheme_forbids_labellings_of_unlabelled_sentences_too():
    y = [in_iob2(labels) for labels in Y]
    trained = tagger(max_iterations=10, scheme="IOB2").fit(
        X, y, unlabelled=U, entropy_weight=1.0, **BARE
    )
    scores = np.concatenate([path_scores(trained, tokens)[1] for tokens in in_attributes(U)])
    assert 0 < np.isneginf(scores).sum() < len(scores)
    likelihood = negative_log_likelihood(trained, in_attributes(X), y)
    finite = {
        name: np.where(np.isneginf(array), 0, array)
        for name in ("weights", "transitions", "start", "stop")
        for array in [np.asarray(getattr(trained.model_, name))]
    }
    learnt = SimpleNamespace(model_=SimpleNamespace(**finite, edge_weights=None))
    wanted = likelihood + L2 / 2 * squares(learnt) + entropy(trained, U)
    assert trained.loss_ == pytest.approx(wanted, rel=1e-10)


# ------------------------------------------------------------------------------- mini-batches


@pytest.mark.parametrize(("labelled", "unlabelled"), [(1, 4), (2, 5), (3, 3), (4, 1), (5, 2)])
def test_batches_of_an_epoch_add_up_to_every_sentence_once(labelled, unlabelled):
    makers, layouts = [], []
    for sentences, number in ((X, labelled), (U, unlabelled)):
        features = DictExtractor().fit_transform(sentences)
        layouts.append(lay_out(features.lengths, number, width=4))
        gold = EncodedLabels(np.zeros(len(features.ids), np.int32), None)
        makers.append(ShardMaker(layouts[-1], features, 6, gold))
    batches = _fit._Batches(*makers)
    assert batches.number == max(labelled, unlabelled)
    for kind, (layout, number) in enumerate(zip(layouts, (labelled, unlabelled))):
        sums = np.zeros((number, layout.rows * layout.width))
        for batch in range(batches.number):
            (shard,) = batches(batch)[kind]
            sums[batch % number] += np.asarray(shard.weights).ravel()
        np.testing.assert_allclose(sums[layout.shard, layout.slot], 1, rtol=1e-6)
        assert sums.sum() == pytest.approx(len(layout.slot), rel=1e-6)  # and nothing on padding


def test_stochastic_descent_ends_near_the_other_search():
    """On copies of the sentences, and a γ that makes the objective nine times that of the few."""
    trained = tagger(**ONE_ROW, epochs=15).fit(**MANY, entropy_weight=9 / 18, **BARE)
    assert trained.n_evaluations_ == 15 * (3 + 4)  # batches without and with the unlabelled
    best = with_unlabelled(1.0).loss_
    assert objective(trained, 1.0) == pytest.approx(best, rel=0.01)
    assert objective(supervised(), 1.0) > 1.03 * best
