"""Training with unlabelled sentences, against every labelling in float64; its checkpoints."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import jax
import jaxtyping
import numpy as np
import optax
import pytest

import jaxseq
from jaxseq.learn import EncodedLabels, lay_out
from jaxseq.learn._checkpoint import read_about
from jaxseq.learn._corpus import ShardMaker
from jaxseq.learn._objective import Objective
from jaxseq.tagger import _fit
from jaxseq.text import DictExtractor
from tests.tagger.test_checkpoint import saved_bytes
from tests.tagger.toys import (
    attributes_of,
    log_sum,
    negative_log_likelihood,
    path_scores,
    squares,
    toy_corpus,
)

X, Y = toy_corpus(0)
U, _ = toy_corpus(1)
PARTIAL: list[list[Any]] = [[None if t == 1 else label for t, label in enumerate(y)] for y in Y]
PARTIAL[0][2] = {"A", "C"}
L2 = 0.3

# Rows of 128 words: three batches and four.
MANY: dict[str, Any] = {"X": X * 9, "y": Y * 9, "unlabelled": U * 18}
ONE_ROW: dict[str, Any] = {"algorithm": "sgd", "l2": 9 * L2, "batch_size": 1}


@pytest.fixture
def unchecked():
    """The library's own words, not those of a type checker."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


def tagger(**params):
    given = {"cores": 1, "l2": L2, "weights": "dense", "progress": False, "dtype": "float64"}
    return jaxseq.CRFTagger(**{**given, **params})


@cache
def supervised():
    return tagger().fit(X, Y)


@cache
def with_unlabelled(gamma: float, derivation="mann"):
    return tagger().fit(X, Y, unlabelled=U, entropy_weight=gamma, entropy_gradient=derivation)


def in_attributes(sentences):
    return [[attributes_of(token) for token in sentence] for sentence in sentences]


def entropy(trained, sentences) -> float:
    """Σ −p log p over all labellings."""
    total = 0.0
    for tokens in in_attributes(sentences):
        _, scores = path_scores(trained, tokens)
        log_p = scores[np.isfinite(scores)] - log_sum(scores)
        total -= float((np.exp(log_p) * log_p).sum())
    return total


def objective(trained, gamma: float, y=None, sentences=None) -> float:
    labels, others = Y if y is None else y, U if sentences is None else sentences
    loss = negative_log_likelihood(trained, in_attributes(X), labels) + L2 / 2 * squares(trained)
    return loss + gamma * entropy(trained, others)


def models_agree(left, right, tolerance: float) -> None:
    for name in ("weights", "transitions", "start", "stop"):
        a, b = (np.asarray(getattr(one.model_, name)) for one in (left, right))
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance, err_msg=name)


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
    assert saved_bytes(tagger().fit(X, Y, **options), tmp_path / "b") == wanted


@pytest.mark.parametrize("gamma", [0.5, 10.0])
def test_the_objective_is_that_of_all_labellings_and_falls(gamma):
    trained = with_unlabelled(gamma)
    assert trained.loss_ == pytest.approx(objective(trained, gamma), rel=1e-10)
    assert trained.loss_ < objective(supervised(), gamma)
    assert entropy(trained, U) < entropy(supervised(), U)
    assert trained.n_iter_ > supervised().n_iter_


def test_the_search_ends_where_no_direction_leads_down():
    trained = tagger(tolerance=0.0).fit(X, Y, unlabelled=U, entropy_weight=2.0)
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
            tagger(max_iterations=25).fit(X, Y, unlabelled=U, entropy_gradient=derivation)
    assert len(runs["mann"]) > 30
    for other in ("jiao", "autodiff"):
        assert len(runs[other]) == len(runs["mann"])
        for got, want in zip(jax.tree.leaves(runs[other]), jax.tree.leaves(runs["mann"])):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)


def test_sentences_twice_are_twice_the_weight():
    once, twice = with_unlabelled(1.0), tagger().fit(X, Y, unlabelled=U + U, entropy_weight=0.5)
    assert twice.loss_ == pytest.approx(once.loss_, rel=1e-10)
    assert objective(twice, 0.5, sentences=U + U) == pytest.approx(objective(twice, 1.0), rel=1e-12)
    models_agree(twice, once, 1e-6)


def test_one_token():
    one = [[{"w": "u", "size": 0.25, "bias": True}]]
    trained = tagger(max_iterations=15).fit(X, Y, unlabelled=one, entropy_weight=4.0)
    assert trained.loss_ == pytest.approx(objective(trained, 4.0, sentences=one), rel=1e-10)
    assert entropy(trained, one) < entropy(supervised(), one)


def test_labelled_partially_labelled_and_unlabelled_in_one_call():
    trained = tagger(max_iterations=15).fit(X, PARTIAL, unlabelled=[[], *U])
    assert trained.loss_ == pytest.approx(objective(trained, 1.0, PARTIAL), rel=1e-10)


def test_another_model_in_place_of_the_supervised_start():
    whole = with_unlabelled(1.0)
    warm = tagger().fit(X, Y, unlabelled=U, warm_start_from=supervised())
    assert warm.n_iter_ == whole.n_iter_ - supervised().n_iter_
    models_agree(warm, whole, 1e-9)
    from_sure = tagger(max_iterations=1).fit(X, Y, unlabelled=U, warm_start_from=whole)
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
    both = tagger(max_iterations=5).fit(X, Y, unlabelled=more)
    names = both.extractor_.attribute_names()
    assert set(names) == {*supervised().extractor_.attribute_names(), "w:new"}
    assert np.abs(both.model_.weights[names.index("w:new")]).max() > 1e-3
    known = tagger(max_iterations=5).fit(X, Y, unlabelled=more, vocabulary="labelled")
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
    trained = tagger(max_iterations=10, scheme="IOB2").fit(X, y, unlabelled=U)
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
    trained = tagger(**ONE_ROW, epochs=15).fit(**MANY, entropy_weight=9 / 18)
    assert trained.n_evaluations_ == 15 * (3 + 4)  # batches without and with the unlabelled
    best = with_unlabelled(1.0).loss_
    assert objective(trained, 1.0) == pytest.approx(best, rel=0.01)
    assert objective(supervised(), 1.0) > 1.03 * best


# ------------------------------------------------------------------------------------- schedules


def test_a_constant_schedule_is_a_constant(tmp_path):
    scheduled = tagger().fit(X, Y, unlabelled=U, entropy_weight=optax.constant_schedule(0.5))
    wanted = saved_bytes(with_unlabelled(0.5), tmp_path / "a")
    assert saved_bytes(scheduled, tmp_path / "b") == wanted


def seen_weights(monkeypatch) -> list[float]:
    """γ of every evaluation, as training goes on."""
    found: list[float] = []
    ordinary = Objective.__call__

    def call(self, parameters):
        found.append(self.entropy_weight)
        return ordinary(self, parameters)

    monkeypatch.setattr(Objective, "__call__", call)
    return found


def test_a_schedule_is_looked_at_every_ten_iterations(monkeypatch):
    start = supervised()
    found = seen_weights(monkeypatch)
    schedule = optax.linear_schedule(0.25, 1.25, 20)
    trained = tagger(max_iterations=34, tolerance=0.0).fit(
        X, Y, unlabelled=U, entropy_weight=schedule, warm_start_from=start
    )
    assert list(dict.fromkeys(found)) == [0.25, 0.75, 1.25]
    assert found == sorted(found)
    assert trained.n_iter_ == 34
    assert min(found.count(weight) for weight in (0.25, 0.75)) >= 11  # with that at the start


def test_mini_batches_look_at_a_schedule_at_every_step(monkeypatch):
    start = supervised()
    found = seen_weights(monkeypatch)
    tagger(**ONE_ROW, epochs=2).fit(
        **MANY, entropy_weight=lambda step: step / 8, warm_start_from=start
    )
    assert found == [step / 8 for step in range(2 * 4)]


@pytest.mark.parametrize(
    "value", [-0.5, float("nan"), float("inf"), None, "1", True, [1.0, 2.0], 1j]
)
def test_bad_values_of_a_schedule_are_refused(value):
    schedule: Callable[[int], Any] = lambda step: 0.5 if step < 20 else value  # noqa: E731
    with pytest.raises(ValueError, match=r"entropy_weight: expected a schedule .* at step 20"):
        tagger().fit(X, Y, unlabelled=U, entropy_weight=schedule)


# ---------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(
            ({"entropy_weight": weight}, "entropy_weight: expected a")
            for weight in (-0.1, float("nan"), float("inf"), True, "1", None, [1.0])
        ),
        ({"entropy_gradient": "newton"}, "entropy_gradient: expected one of .*'mann'.*'newton'"),
        ({"entropy_gradient": ["mann"]}, "entropy_gradient: expected one of"),
        ({"vocabulary": "some"}, "vocabulary: expected one of .* got 'some'"),
        ({"unlabelled": "text"}, "unlabelled: expected sentences, got 'text'"),
        ({"unlabelled": 5}, "unlabelled: expected sentences, got 5"),
        ({"unlabelled": [*U[:2], "text"]}, "unlabelled: sentence 2: expected a list of tokens"),
        ({"unlabelled": [["a", "word"]]}, "unlabelled: sentence 0, token 0: expected"),
        ({"unlabelled": [U[0], [7]], "vocabulary": "labelled"}, "unlabelled: sentence 1, token 0"),
    ],
)
def test_bad_arguments(options, message, unchecked):
    with pytest.raises(ValueError, match=message):
        tagger().fit(X, Y, **{"unlabelled": U, **options})


@pytest.mark.parametrize("vocabulary", ["all", "labelled"])
@pytest.mark.parametrize(
    ("bad", "complaint"),
    [({"word": ["a"]}, "expected a column 'pos'"), (U[0], "expected"), (5, "expected")],
    ids=["column", "dicts", "number"],
)
def test_other_features_than_the_labelled_have(bad, complaint, vocabulary):
    good = {"word": ["a", "b"], "pos": ["D", "N"]}
    with pytest.raises(ValueError, match=rf"^unlabelled: sentence 1\b.*{complaint}"):
        tagger(templates=["word[0]", "pos[0]"]).fit(
            [good, good], [["P", "Q"]] * 2, unlabelled=[good, bad], vocabulary=vocabulary
        )


def test_complaints_about_labelled_sentences_stay_theirs():
    with pytest.raises(ValueError, match=r"^sentence 1\b"):
        tagger().fit([X[0], [7]], [Y[0], ["A"]], unlabelled=U)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([], [], "X: expected at least one sentence"),
        (X, [[None] * len(labels) for labels in Y], "y: expected at least one token with a label"),
        ([[]], [[]], "y: expected at least one token with a label"),
    ],
)
def test_no_labelled_data(x, y, message):
    with pytest.raises(ValueError, match=message):
        tagger().fit(x, y, unlabelled=U)


def test_double_precision_must_be_switched_on():
    with jax.enable_x64(False), pytest.raises(ValueError, match="dtype: expected JAX to have 64"):
        tagger().fit(X, Y, unlabelled=U)


# ----------------------------------------------------------------------------------- checkpoints

KINDS: dict[str, tuple[dict[str, Any], Any, tuple[int, ...]]] = {
    "lbfgs": ({"max_iterations": 12}, 0.7, (3, 12, 16)),
    "schedule": ({"max_iterations": 14}, optax.linear_schedule(0.2, 1.0, 14), (4, 17, 26)),
    "adamw": ({**ONE_ROW, "algorithm": "adamw", "epochs": 4}, 0.7, (2, 6)),
}
MOMENTS = [(kind, moment) for kind, (_, _, moments) in KINDS.items() for moment in moments]


def kept(kind: str, **params):
    return tagger(tolerance=0.0, checkpoint_every=2, **KINDS[kind][0], **params)


def given(kind: str) -> dict[str, Any]:
    data = MANY if kind == "adamw" else {"X": X, "y": Y, "unlabelled": U}
    return {**data, "entropy_weight": KINDS[kind][1]}


@cache
def uninterrupted(kind: str):
    return kept(kind).fit(**given(kind))


@pytest.fixture
def press_after(monkeypatch):
    """Ctrl-C when the progress bar is told of an iteration."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def press(iteration: int, error: type[BaseException] | None = None) -> None:
        ordinary = _fit._Watching

        def watching(tick, pressed):
            def ticking(done, value):
                tick(done, value)
                if done == iteration:
                    if error is not None:
                        raise error
                    signal.raise_signal(signal.SIGINT)

            return ordinary(ticking, pressed)

        monkeypatch.setattr(_fit, "_Watching", watching)

    yield press
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("kind", "moment"), MOMENTS)
def test_interrupted_and_resumed_is_the_same_to_the_byte(
    kind, moment, tmp_path, monkeypatch, press_after
):
    whole, file = uninterrupted(kind), tmp_path / "search"
    press_after(moment)
    cut = kept(kind, checkpoint=file).fit(**given(kind))
    monkeypatch.undo()
    assert cut.outcome_.startswith("interrupted")
    assert cut.n_iter_ == moment
    found = seen_weights(monkeypatch)
    resumed = kept(kind, checkpoint=file).fit(**given(kind))
    assert len(found) <= whole.n_evaluations_ - cut.n_evaluations_ + 1  # not from the beginning
    assert (resumed.n_iter_, resumed.n_evaluations_) == (whole.n_iter_, whole.n_evaluations_)
    assert resumed.loss_ == whole.loss_
    assert saved_bytes(resumed, tmp_path / "b") == saved_bytes(whole, tmp_path / "a")


@pytest.mark.parametrize(("moment", "stage"), [(7, 0), (17, 1)])
def test_an_iteration_cut_short_goes_on_from_the_last_kept(
    moment, stage, tmp_path, monkeypatch, press_after
):
    file = tmp_path / "search"
    press_after(moment, KeyboardInterrupt)
    kept("lbfgs", checkpoint=file).fit(**given("lbfgs"))
    monkeypatch.undo()
    assert str(read_about(file)).endswith(f"stage {stage}")
    resumed = kept("lbfgs", checkpoint=file).fit(**given("lbfgs"))
    models_agree(resumed, uninterrupted("lbfgs"), 0.0)


def test_a_checkpoint_of_another_search_is_refused(tmp_path):
    file = tmp_path / "search"
    kept("lbfgs", checkpoint=file).fit(**given("lbfgs"))
    before = file.read_bytes()
    others = [
        {"unlabelled": U, "entropy_weight": 0.8},
        {"unlabelled": U, "entropy_weight": optax.linear_schedule(0.7, 0.0, 50)},
        {"unlabelled": U, "entropy_weight": 0.7, "entropy_gradient": "autodiff"},
        {"unlabelled": U[::-1], "entropy_weight": 0.7},
        {"unlabelled": U, "entropy_weight": 0.7, "warm_start_from": supervised()},
        {},
    ]
    for options in others:
        with pytest.raises(ValueError, match="expected a checkpoint of this very search"):
            kept("lbfgs", checkpoint=file).fit(X, Y, **options)
        assert file.read_bytes() == before


def test_a_search_that_is_over_leaves_no_checkpoint(tmp_path):
    done = tagger(checkpoint=tmp_path / "search", checkpoint_every=1).fit(X, Y, unlabelled=U)
    assert done.outcome_.startswith("converged")
    assert not list(tmp_path.iterdir())
