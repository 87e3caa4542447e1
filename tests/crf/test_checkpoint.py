"""A search that was interrupted goes on as if it had not been."""

import json

import numpy as np
import pytest
from safetensors import safe_open
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import jaxseq
from jaxseq._io import SearchStore
from jaxseq.crf import _search as _fit
from jaxseq.taggers import SelfTraining
from tests.limits import no_room
from tests.taggers.toys import toy_corpus

X, Y = toy_corpus(0)
OTHER_X, OTHER_Y = toy_corpus(1)
PARTIAL = [[None if t == 1 else label for t, label in enumerate(labels)] for labels in Y]

KINDS = {
    "lbfgs": {"max_iterations": 14},
    "l1": {"max_iterations": 14, "l1": 0.2},
    "adamw": {"algorithm": "adamw", "epochs": 10, "batch_size": 4},
    "sgd": {"algorithm": "sgd", "epochs": 10, "batch_size": 4, "seed": 5},
}


def tagger(**params):
    given = {"cores": 1, "l2": 0.1, "weights": "dense", "checkpoint_every": 2, "tolerance": 0.0}
    return jaxseq.CRFTagger(**{**given, **params})


def interrupt_after(monkeypatch, iterations: int) -> None:
    """Ctrl-C at the moment when the progress bar is told of that iteration."""
    real = _fit.progress_bar

    def with_interrupt(*args):
        bar = real(*args)
        enter = bar.__enter__

        def entered():
            tick = enter()

            def interrupting(done, value):
                tick(done, value)
                if done == iterations:
                    raise KeyboardInterrupt

            return interrupting

        class Bar:
            def __enter__(self):
                return entered()

            def __exit__(self, *error):
                return bar.__exit__(*error)

        return Bar()

    monkeypatch.setattr(_fit, "progress_bar", with_interrupt)


def notes_in(path) -> dict:
    """What a checkpoint says of its search, beside the arrays."""
    with safe_open(path, framework="numpy") as file:
        return json.loads(file.metadata()["extra"])


def saved_bytes(one, path):
    one.save(path)
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("y", [Y, PARTIAL], ids=["known", "partial"])
def test_interrupted_and_resumed_is_the_same_to_the_byte(kind, y, tmp_path, monkeypatch):
    whole = tagger(**KINDS[kind]).fit(X, y)
    checkpoint = tmp_path / "search"
    interrupt_after(monkeypatch, 7)
    cut = tagger(**KINDS[kind], checkpoint=checkpoint).fit(X, y)
    monkeypatch.undo()
    assert cut.outcome_.startswith("interrupted")
    assert cut.n_iter_ == 7
    assert [entry.name for entry in tmp_path.iterdir()] == ["search"]
    resumed = tagger(**KINDS[kind], checkpoint=checkpoint)
    counts = []
    real = SearchStore.save

    def save(store, notes, arrays):
        counts.append(notes["state"]["iteration"])
        real(store, notes, arrays)

    monkeypatch.setattr(SearchStore, "save", save)
    resumed.fit(X, y)
    assert counts[0] == 8  # not from the beginning
    assert saved_bytes(resumed, tmp_path / "b") == saved_bytes(whole, tmp_path / "a")


@pytest.mark.parametrize("params", [{"tolerance": 1e-4}, KINDS["sgd"]], ids=["lbfgs", "sgd"])
def test_a_search_that_is_over_is_kept_until_its_model_is_saved(params, tmp_path):
    checkpoint = tmp_path / "search"
    one = tagger(checkpoint=checkpoint, **params).fit(X, Y)
    with no_room(100), pytest.raises(OSError, match="File too large"):
        one.save(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["search"]
    again = tagger(checkpoint=checkpoint, **params).fit(X, Y)  # as if the process had been killed
    assert again.outcome_ is one.outcome_
    assert again.n_iter_ == one.n_iter_
    assert saved_bytes(again, tmp_path / "again") == saved_bytes(one, tmp_path / "model")
    assert {path.name for path in tmp_path.iterdir()} == {"model", "again"}


def test_a_model_is_not_lost_for_lack_of_room_for_its_checkpoint(tmp_path):
    with no_room(100):
        one = tagger(checkpoint=tmp_path / "search", checkpoint_every=99, tolerance=1e-3).fit(X, Y)
    assert one.outcome_.startswith("converged")
    assert not list(tmp_path.iterdir())


def test_two_searches_do_not_share_a_file(tmp_path, monkeypatch):
    checkpoint, refused = tmp_path / "search", []
    real = _fit.Stages.keep

    def keep(*arguments):
        if not refused:
            refused.append(True)
            with pytest.raises(ValueError, match="search: expected to be alone with it"):
                tagger(checkpoint=checkpoint).fit(X, Y)
        real(*arguments)

    monkeypatch.setattr(_fit.Stages, "keep", keep)
    one = tagger(checkpoint=checkpoint, max_iterations=6).fit(X, Y)
    assert refused
    assert one.n_iter_ == 6


def test_the_folds_of_a_cross_validation_keep_no_search(tmp_path):
    one = tagger(checkpoint=tmp_path / "search", max_iterations=3)
    assert clone(SelfTraining(one, checkpoint="file")).get_params()["estimator__checkpoint"] is None
    search = GridSearchCV(one, {"l2": [0.1, 1.0]}, cv=2, error_score="raise").fit(X, Y)
    assert search.best_estimator_.n_iter_ == 3
    assert one.checkpoint == tmp_path / "search"
    assert not list(tmp_path.iterdir())


def test_a_search_that_is_cut_short_can_be_taken_further(tmp_path):
    checkpoint = tmp_path / "search"
    tagger(max_iterations=6, checkpoint=checkpoint).fit(X, Y)
    further = tagger(max_iterations=12, checkpoint=checkpoint).fit(X, Y)
    assert further.n_iter_ == 12
    whole = tagger(max_iterations=12).fit(X, Y)
    np.testing.assert_array_equal(further.model_.weights, whole.model_.weights)


def test_a_search_goes_on_with_other_cores(tmp_path):
    checkpoint = tmp_path / "search"
    tagger(max_iterations=6, checkpoint=checkpoint).fit(X, Y)
    further = tagger(max_iterations=12, checkpoint=checkpoint, cores=2).fit(X, Y)
    whole = tagger(max_iterations=12).fit(X, Y)
    assert further.n_iter_ == 12
    assert further.loss_ == pytest.approx(whole.loss_, rel=1e-5)


def test_mini_batches_go_on_with_other_cores(tmp_path, monkeypatch):
    checkpoint = tmp_path / "search"
    interrupt_after(monkeypatch, 3)
    tagger(**KINDS["sgd"], checkpoint=checkpoint).fit(X, Y)
    monkeypatch.undo()
    assert checkpoint.exists()
    further = tagger(**KINDS["sgd"], checkpoint=checkpoint, cores=2).fit(X, Y)
    whole = tagger(**KINDS["sgd"]).fit(X, Y)
    np.testing.assert_array_equal(further.model_.weights, whole.model_.weights)


@pytest.mark.parametrize(
    ("x", "y", "params"),
    [
        (OTHER_X, OTHER_Y, {}),
        (X, [["A"] * len(labels) for labels in Y[:-1]] + [["B"]], {}),
        (X, PARTIAL, {}),
        (X, Y, {"l2": 0.2}),
        (X, Y, {"l1": 0.1}),
        (X, Y, {"weights": "observed"}),
        (X, Y, {"algorithm": "adamw"}),
    ],
    ids=["data", "labels", "partial", "l2", "l1", "weights", "algorithm"],
)
def test_a_checkpoint_of_another_search_is_refused(x, y, params, tmp_path):
    checkpoint = tmp_path / "search"
    tagger(max_iterations=2, checkpoint=checkpoint).fit(X, Y)
    before = checkpoint.read_bytes()
    with pytest.raises(ValueError, match=r"search: expected a checkpoint of this very search"):
        tagger(max_iterations=4, checkpoint=checkpoint, **params).fit(x, y)
    assert checkpoint.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"mine", "cut"])
def test_a_file_that_is_no_checkpoint_is_refused_and_kept(content, tmp_path):
    checkpoint = tmp_path / "search"
    tagger(max_iterations=2, checkpoint=checkpoint).fit(X, Y)
    content = checkpoint.read_bytes()[:-9] if content == "cut" else content
    checkpoint.write_bytes(content)
    with pytest.raises(ValueError, match="search: expected"):
        tagger(max_iterations=4, checkpoint=checkpoint).fit(X, Y)
    assert checkpoint.read_bytes() == content


def test_a_folder_in_the_place_of_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected"):
        tagger(max_iterations=2, checkpoint=tmp_path).fit(X, Y)
