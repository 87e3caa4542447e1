"""What every tagger can do once it is trained: predict, score, and go to disk."""

from __future__ import annotations

import numbers
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence, Set
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float, Int
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from jaxseq._io import SearchStore
from jaxseq._runtime import Outcome
from jaxseq.taggers._labels import Label, check_labels, check_sentence_weights
from jaxseq.taggers._store import save_tagger


@runtime_checkable
class Decodable(Protocol):
    """Sentences whose labellings a model scores; tokens are numbered across sentences."""

    @property
    def lengths(self) -> Int[np.ndarray, " b"]:
        """Tokens of each sentence."""
        ...

    def best_labels(self, mesh: Mesh | None = None) -> Int[np.ndarray, " n"]:
        """The best labelling's label of each token; −1 where no labelling is possible."""
        ...

    def marginals(self, mesh: Mesh | None = None) -> Float[np.ndarray, "n s"]:
        """Probabilities of each token's labels; all 0 where no labelling is possible."""
        ...

    def k_best(self, k: int, mesh: Mesh | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each sentence its best paths [n, k] and their log-probabilities [k]."""
        ...


class KeepsSearch(BaseEstimator):
    """An estimator with a parameter `checkpoint`, which its clones do not have.

    One file is for one search, and clones are for many: for the folds of a cross-validation, or the
    points of a grid, maybe at the same time.
    """

    def __sklearn_clone__(self) -> Any:
        copy: Any = super().__sklearn_clone__()
        kept = "checkpoint" in copy.get_params(deep=False)  # a subclass may keep nothing
        return copy.set_params(checkpoint=None) if kept else copy


class SequenceTagger(KeepsSearch, ABC):
    """A tagger of sentences with scikit-learn's interface: the base of `CRFTagger`, `HMMTagger`.

    A subclass trains a model in `fit`, says in `_scored` how the model scores the labellings of
    sentences, and describes itself for the disk; everything else is here.

    Attributes:
        classes_: the labels, sorted.
        model_: the model.
        outcome_: why training ended.
    """

    classes_: np.ndarray
    model_: Any
    outcome_: Outcome | None

    _unsaved: SearchStore | None = None
    """Of a search that is over: all that there is of it until the model is saved."""

    kind: ClassVar[str]
    """The name of this kind of model in files; set by `register_kind`."""

    _TRAINING: ClassVar[dict[str, str]]
    """Facts about the training that are stored: their names in files, and the attributes."""

    _K_BEST_MAY_BE_EMPTY: ClassVar[bool] = True
    """Whether `predict_k_best` gives no labelling, or raises, where none is possible."""

    @abstractmethod
    def fit(self, X: Iterable[Any], y: Sequence[Sequence[Label]]) -> SequenceTagger:
        """Train on sentences and their labels."""

    @abstractmethod
    def _scored(self, X: Iterable[Any]) -> Decodable:
        """Sentences as the model scores them; must check that the tagger is fitted."""

    @abstractmethod
    def _describe(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Entries of the JSON file and arrays that this kind of model has beyond all others."""

    @abstractmethod
    def _restore(
        self, about: dict[str, Any], labels: list[str], arrays: dict[str, np.ndarray]
    ) -> None:
        """Take the model that `_describe` described; ValueError where it is not sound."""

    @property
    def interrupted_(self) -> bool:
        """Whether Ctrl-C ended `fit`."""
        return self.outcome_ is Outcome.INTERRUPTED

    # ---------------------------------------------------------------------------- prediction

    def predict(
        self,
        X: Iterable[Any],
        *,
        constraints: Any = None,
        width: int | None = None,
        mesh: Mesh | None = None,
    ) -> list[list[str]]:
        """The labels of each sentence: its most probable labelling (Viterbi).

        A hidden Markov model may give each token's most probable label instead; see its `decoding`.

        Args:
            X: sentences.
            constraints: penalised rules (`jaxseq.constraints.Penalised`), a file of them, or
                `Constraints` for `classes_`: the best labelling is then that of the highest
                score, log p(y | x) or log P(x, y), less its penalties. None for none.
            width: of the beam that searches under constraints with many states; None for 50.
            mesh: devices to share the sentences out to, from `jaxseq.parallel.make_mesh`; only
                those of this process take part.

        Raises:
            ValueError: for a sentence that has no possible labelling, such as one word under
                IOBES where the training data has no S, or a word of probability 0 in an HMM
                (`ImpossibleSentence`); for a constraint with a label that the model does not have.

        Warns:
            ConstraintWarning: where hard constraints cannot all be met; such a sentence gets the
                fewest violations.
        """
        scored = self._scored(X)
        constrained = self._constrained(scored, constraints, width)
        # Constraints are about whole labellings, whatever the tagger decodes without them.
        best = self._decode(scored, mesh) if constrained is None else constrained.best_labels(mesh)
        self._check_possible(best >= 0, scored.lengths)
        return split_by_sentence(self.classes_[best].tolist(), scored.lengths)

    def predict_proba(self, X: Iterable[Any], *, mesh: Mesh | None = None) -> list[np.ndarray]:
        """The probability of each label at each token: [n, labels], columns as in `classes_`.

        On the devices of a mesh as in `predict`.
        """
        scored = self._scored(X)
        marginals = scored.marginals(mesh)
        # Rows sum to 1, or to 0 in a sentence whose paths are all forbidden: never NaN.
        self._check_possible(marginals.sum(1) > 0, scored.lengths)
        return split_by_sentence(marginals, scored.lengths)

    def predict_marginals(self, X: Iterable[Any]) -> list[list[dict[str, float]]]:
        """As `predict_proba`, with a dict from label to probability for each token."""
        marginals = self.predict_proba(X)
        classes = self.classes_.tolist()
        return [[dict(zip(classes, token)) for token in array.tolist()] for array in marginals]

    def predict_k_best(
        self,
        X: Iterable[Any],
        k: int,
        *,
        constraints: Any = None,
        width: int | None = None,
        mesh: Mesh | None = None,
    ) -> list[list[tuple[list[str], float]]]:
        """The k most probable labellings of each sentence with their log-probabilities.

        Best first; fewer than k where fewer are possible. Log-probabilities are differences of
        float32 scores: in sentences of thousands of words, neighbours may print alike. With
        constraints (as in `predict`), the k labellings found with the highest log p(y | x) less
        the soft penalties, and these numbers. On the devices of a mesh as in `predict`.
        """
        if isinstance(k, bool) or not isinstance(k, numbers.Integral) or k < 1:
            raise ValueError(f"k: expected an integer of at least 1, got {k!r:.60}")
        scored = self._scored(X)
        answers = [
            [
                (self.classes_[path].tolist(), float(log_prob))
                for path, log_prob in zip(paths.T, log_probs)
                if np.isfinite(log_prob)  # −inf: there are fewer than k labellings
            ]
            for paths, log_probs in (
                self._constrained(scored, constraints, width) or scored
            ).k_best(int(k), mesh)
        ]
        if not self._K_BEST_MAY_BE_EMPTY:
            # One "token" per sentence here: it is the sentence that has no path.
            possible = np.array([bool(labellings) for labellings in answers], bool)
            self._check_possible(possible, np.ones_like(scored.lengths))
        return answers

    def score(self, X: Iterable[Any], y: Sequence[Sequence[Label]], sample_weight=None) -> float:
        """Share of tokens that get their label; those without a known label do not count.

        For spans, see `jaxseq.metrics.span_scores`. `sample_weight` weighs sentences.
        """
        return token_score(self.predict(X), y, sample_weight)

    def _decode(self, scored: Decodable, mesh: Mesh | None) -> Int[np.ndarray, " n"]:
        """Labels of all tokens without constraints; −1 where no labelling is possible."""
        return scored.best_labels(mesh)

    def _constrained(self, scored: Any, constraints: Any, width: int | None) -> Any:
        """The sentences under constraints; None where none cost anything."""
        if constraints is None:
            return None
        # The one look upwards: constraints stand above the taggers whose predictions they bend.
        from jaxseq.constraints import constrain_sentences

        return constrain_sentences(scored, self.classes_.tolist(), constraints, width)

    def _check_possible(self, possible: np.ndarray, lengths: np.ndarray) -> None:
        """Raise for the first sentence with a token that can have no label at all."""
        if not possible.all():
            token = int(np.flatnonzero(~possible)[0])
            # The side skips sentences without a token, whose end is that of the one before.
            sentence = int(np.searchsorted(np.cumsum(lengths), token, side="right"))
            raise self._impossible(sentence, int(lengths[sentence]))

    def _impossible(self, sentence: int, length: int) -> ValueError:
        """The error that says that a sentence has no possible labelling."""
        return ValueError(
            f"X[{sentence}]: expected a sentence that the scheme gives at least one labelling, "
            f"got one of {length} tokens with none"
        )

    # ------------------------------------------------------------------------------- storage

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a folder: arrays as safetensors, the rest as JSON; `jaxseq.load`.

        The same model gives the same bytes. The folder appears complete or not at all; then the
        checkpoint of a search that was over is removed.
        """
        check_is_fitted(self, "model_")
        save_tagger(self, path)
        if self._unsaved is not None:
            self._unsaved.remove()

    def _remove_when_saved(self, store: SearchStore | None) -> None:
        """Take the store of the search that gave the model; None for none."""
        self._unsaved = store

    def settings_to_json(self) -> dict[str, Any]:
        """The parameters, as JSON can hold them: NumPy's numbers and arrays as plain ones."""
        settings = self.get_params(deep=False)
        for name in ("progress", "checkpoint"):  # of one run on one machine, not of the model
            settings.pop(name, None)
        classes = settings.get("classes")
        if classes is not None:  # the same model gives the same bytes, and sets have no order
            labels = sorted(classes) if isinstance(classes, Set) else classes
            settings["classes"] = [str(label) for label in labels]
        # GridSearchCV hands over NumPy's scalars, which JSON does not know.
        return {
            name: getattr(value, "tolist", lambda v=value: v)() for name, value in settings.items()
        }

    @classmethod
    def settings_from_json(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Arguments of the constructor, from what `settings_to_json` gave."""
        settings = dict(settings)
        if settings.get("classes") is not None:
            settings["classes"] = tuple(settings["classes"])
        return settings


def split_by_sentence(values: Any, lengths: np.ndarray) -> list[Any]:
    """Values of all tokens, cut into one piece per sentence.

    Example:
        >>> split_by_sentence(["a", "b", "c"], np.array([2, 0, 1]))
        [['a', 'b'], [], ['c']]
    """
    ends = np.cumsum(lengths)
    return [values[end - n : end] for end, n in zip(ends.tolist(), lengths.tolist())]


def token_score(
    predicted: Sequence[Sequence[str]], y: Sequence[Sequence[Label]], sample_weight: Any = None
) -> float:
    """Share of tokens that get their label; those without a known label do not count.

    Args:
        predicted: labels of each sentence.
        y: what is known of the right ones.
        sample_weight: how much each sentence counts, or None.

    Example:
        >>> token_score([["A", "B"], ["A"]], [["A", "A"], [None]])
        0.5
    """
    lengths = np.array([len(sentence) for sentence in predicted], np.int64)
    flat = check_labels(y, lengths)
    # Every token weighs as much as its sentence.
    weights = check_sentence_weights(sample_weight, len(lengths))
    by_token = np.repeat(np.ones(len(lengths)) if weights is None else weights, lengths)
    guesses = (label for sentence in predicted for label in sentence)
    right = np.array([guess == gold for guess, gold in zip(guesses, flat)], bool)
    known = np.array([isinstance(gold, str) for gold in flat], bool)
    total = by_token[known].sum()
    if not total > 0:  # also where every known label has weight 0
        raise ValueError("y: expected at least one token with a known label, got none")
    return float(by_token[known & right].sum() / total)
