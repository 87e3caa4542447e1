"""What is known of the labels of a pool: from the annotator, and taken from the model."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxseq.active._query import Answer
from jaxseq.crf import CRF, UNKNOWN, CRFTagger, EncodedLabels, Legal
from jaxseq.taggers import check_labels, check_paths_legal, encode_labels


class KnownLabels:
    """Possible labels of every token of a pool; `answered` [N] has tokens with a label from the
    annotator, and `sampled` [B] the sentences that were chosen whole."""

    def __init__(self, lengths: np.ndarray, classes: list[str], legal: Legal | None):
        self._lengths, self._classes, self._legal = lengths, classes, legal
        self._number = {label: index for index, label in enumerate(classes)}
        self._starts = np.cumsum(lengths) - lengths
        self._sentence = np.repeat(np.arange(len(lengths)), lengths)
        tokens = int(lengths.sum())
        self._allowed = np.ones((tokens, len(classes)), bool)  # by the annotator
        self._guess = np.full(tokens, UNKNOWN, np.int32)
        self.answered = np.zeros(tokens, bool)
        self.sampled = np.zeros(len(lengths), bool)

    def with_classes(self, classes: list[str], legal: Legal | None) -> KnownLabels:
        """The same with more labels: they are possible where nothing is known of a token."""
        wide = KnownLabels(self._lengths, classes, legal)
        places = np.array([classes.index(name) for name in self._classes])
        wide._allowed[self.answered] = False  # what was answered before means no new label
        wide._allowed[np.ix_(self.answered, places)] = self._allowed[self.answered]
        wide._guess = np.where(self._guess >= 0, places[self._guess], UNKNOWN).astype(np.int32)
        wide.answered, wide.sampled = self.answered, self.sampled
        return wide

    @property
    def guessed(self) -> np.ndarray:
        """bool [N], tokens with a label from the model alone."""
        return (self._guess >= 0) & ~self.answered

    @property
    def known(self) -> np.ndarray:
        """bool [N], tokens that have a label from either."""
        return self.answered | (self._guess >= 0)

    def labelled_sentences(self) -> int:
        """Sentences with a label from the annotator."""
        return int(self._any_in_sentence(self.answered).sum())

    def sampled_sentences(self) -> int:
        """Sentences that were chosen whole, or have a label from the annotator."""
        return int((self.sampled | self._any_in_sentence(self.answered)).sum())

    def _any_in_sentence(self, tokens: np.ndarray) -> np.ndarray:
        return np.bincount(self._sentence[tokens], minlength=len(self._lengths)) > 0

    def take_initial(self, y: Sequence[Any]) -> None:
        """Labels from the start: one entry per sentence, None where nothing is known of it."""
        flat = check_labels(as_partial(y, self._lengths), self._lengths)
        labels = encode_labels(flat, self._classes, self._lengths)
        check_paths_legal(labels, self._lengths, self._legal, self._classes)
        allowed = labels.allowed
        if allowed is None:
            allowed = labels.gold[:, None] == np.arange(len(self._classes))
        answered = np.array([label is not None for label in flat], bool)
        self._refuse_impossible(allowed, np.flatnonzero(self._any_in_sentence(answered)), "y")
        self._allowed, self.answered = allowed, answered

    def check(self, answers: Iterable[Any]) -> list[Answer]:
        """The answers as plain numbers and strings; ValueError when one of them is refused."""
        triples = _unpacked("answers", answers, "(sentence, position, label)", "Answer")
        plain = [self._check_answer(where, *answer) for where, answer in triples]
        if self._legal is not None and plain:
            allowed = self._allowed.copy()  # nothing is taken in yet
            places, masks = self._encode(plain)
            allowed[places] = masks
            sentences = np.unique([answer.sentence for answer in plain])
            self._refuse_impossible(allowed, sentences, "answers")
        return plain

    def answer(self, plain: list[Answer]) -> None:
        """Take in answers of `check`; of several to one token the last counts."""
        if plain:
            places, masks = self._encode(plain)
            self._allowed[places] = masks
            self.answered[places] = True

    def check_places(self, tokens: Iterable[Any]) -> list[tuple[int, int]]:
        """Sentences and positions as plain numbers; ValueError when one of them is not there."""
        pairs = _unpacked("tokens", tokens, "(sentence, position)")
        return [self._place(where, *token) for where, token in pairs]

    def retract(self, plain: list[tuple[int, int]]) -> None:
        """Forget the annotator's labels of tokens of `check_places`."""
        places = [int(self._starts[sentence]) + position for sentence, position in plain]
        self._allowed[places] = True  # a guess of the model, if there was one, counts again
        self.answered[places] = False

    def label_at(self, sentence: int, position: int) -> str | tuple[str, ...] | None:
        """The annotator's label of a token, or the possible ones in order; None for no answer."""
        place = int(self._starts[sentence]) + position
        if not self.answered[place]:
            return None
        labels = tuple(self._classes[k] for k in np.flatnonzero(self._allowed[place]))
        return labels[0] if len(labels) == 1 else labels

    def is_news(self, answers: Iterable[Answer]) -> bool:
        """Whether one of the answers of `check` differs from what is known."""
        return any(self.label_at(a.sentence, a.position) != a.label for a in answers)

    def _encode(self, plain: list[Answer]) -> tuple[np.ndarray, np.ndarray]:
        """Tokens, each once, and their possible labels [tokens, s]."""
        # Of several answers to one token the last counts, as a dict has it.
        last = {(answer.sentence, answer.position): answer.label for answer in plain}
        of, position = (np.array(column, np.int64) for column in zip(*last))
        masks = np.zeros((len(last), len(self._classes)), bool)
        for row, label in enumerate(last.values()):
            labels = (label,) if isinstance(label, str) else label
            masks[row, [self._number[name] for name in labels]] = True
        return self._starts[of] + position, masks

    def guess(self, tokens: np.ndarray, labels: np.ndarray) -> None:
        """Labels from the model, for good; those of the annotator go before them."""
        self._guess[tokens] = labels

    def _check_answer(self, where: str, sentence: Any, position: Any, label: Any) -> Answer:
        sentence, position = self._place(where, sentence, position)
        several = isinstance(label, Iterable) and not isinstance(label, str | bytes)
        choices = list(label) if several else [label]
        strange = [c for c in choices if not isinstance(c, str) or c not in self._number]
        if strange or not choices:
            got = f"{strange[0]!r:.60}" if strange else "none"
            raise ValueError(
                f"{where}.label: expected one of {self._classes}, or several, got {got} "
                f"(sentence {sentence}, position {position})"
            )
        # In one order, so that the same set is no news when it comes again.
        chosen = tuple(sorted({str(choice) for choice in choices}))
        return Answer(sentence, position, chosen[0] if len(chosen) == 1 else chosen)

    def _place(self, where: str, sentence: Any, position: Any) -> tuple[int, int]:
        sentence = _index(f"{where}.sentence", sentence, len(self._lengths))
        return sentence, _index(f"{where}.position", position, int(self._lengths[sentence]))

    def to_train_on(self) -> tuple[np.ndarray, EncodedLabels]:
        """Which sentences have a label (bool [B]), and the labels of their tokens.

        Guesses are left out of a sentence where they contradict the annotator.
        """
        allowed, guessed = self._allowed, self.guessed
        if guessed.any():
            allowed = allowed.copy()
            allowed[guessed] = self._guess[guessed, None] == np.arange(len(self._classes))
            with_guesses = np.flatnonzero(self._any_in_sentence(guessed))
            wrong = with_guesses[self._impossible(allowed, with_guesses)]
            dropped = guessed & np.isin(self._sentence, wrong)
            allowed[dropped] = self._allowed[dropped]
            guessed = guessed & ~dropped
        trained = self._any_in_sentence(self.answered | guessed)
        rows = allowed[trained[self._sentence]]
        single = rows.sum(1) == 1  # where one label is possible it is known
        gold = np.where(single, rows.argmax(1), UNKNOWN).astype(np.int32)
        return trained, EncodedLabels(gold, None if single.all() else rows)

    def _refuse_impossible(self, allowed: np.ndarray, sentences: np.ndarray, name: str) -> None:
        wrong = sentences[self._impossible(allowed, sentences)]
        if len(wrong):
            raise ValueError(
                f"{name}: expected labels that the scheme allows, got some for sentence "
                f"{int(wrong[0])} that leave it no legal labelling"
            )

    def _impossible(self, allowed: np.ndarray, sentences: np.ndarray) -> np.ndarray:
        """Which of the sentences have no legal labelling among the labels allowed."""
        if self._legal is None or not len(sentences):  # without a scheme every path is legal
            return np.zeros(len(sentences), bool)
        step, start, stop = (np.asarray(array) for array in self._legal)
        lengths, begins = self._lengths[sentences], self._starts[sentences]
        # The forward recursion over booleans, all sentences at once: which labels can be reached.
        alive = np.ones((len(sentences), len(self._classes)), bool)
        for t in range(int(lengths.max())):
            ongoing = t < lengths
            may = start if t == 0 else alive[ongoing].astype(np.int32) @ step.astype(np.int32) > 0
            alive[ongoing] = allowed[begins[ongoing] + t] & may
        return ((lengths > 0) & ~(alive & stop).any(1)).astype(bool)


def as_partial(y: Any, lengths: np.ndarray) -> Any:
    """Labels in which None for a sentence becomes None for each of its tokens."""
    if not isinstance(y, Iterable):
        return y
    y = list(y)
    known = [[None] * int(n) if labels is None else labels for labels, n in zip(y, lengths)]
    return known + y[len(known) :]  # too many stay, for `check_labels` to refuse


def _unpacked(
    name: str, entries: Any, parts: str, kind: str = ""
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """What messages call each entry, and its parts; ValueError where these are not so many."""
    if not isinstance(entries, Iterable):
        raise ValueError(f"{name}: expected a list of {kind}{parts}, got {entries!r:.60}")
    for index, entry in enumerate(entries):
        split = tuple(entry) if isinstance(entry, Iterable) else ()
        if len(split) != parts.count(",") + 1:
            raise ValueError(f"{name}[{index}]: expected {parts}, got {entry!r:.80}")
        yield f"{name}[{index}]", split


def _index(name: str, value: Any, size: int) -> int:
    try:
        number = value.__index__()
    except (AttributeError, TypeError):
        number = None
    # bool has an __index__, too, and negative numbers would count from the end.
    if number is None or isinstance(value, bool) or not 0 <= number < size:
        raise ValueError(f"{name}: expected a whole number, 0 … {size - 1}, got {value!r:.60}")
    return number


def label_names(name: str, labels: Any) -> list[str]:
    """The labels in order, each once; ValueError unless they are strings, at least one."""
    is_list = isinstance(labels, Iterable) and not isinstance(labels, str | bytes)
    listed = list(labels) if is_list else []
    if not listed or not all(isinstance(label, str) for label in listed):
        raise ValueError(f"{name}: expected labels, strings, at least one, got {labels!r:.80}")
    return sorted({str(label) for label in listed})  # NumPy's strings as plain ones


def new_label_names(names: Any, classes: list[str]) -> list[str]:
    """`label_names` of labels that are not among the classes yet; ValueError otherwise."""
    added = label_names("names", names)
    for label in added:
        if label in ("", *classes):
            raise ValueError(f"names: expected labels that are not known yet, got {label!r:.60}")
    return added


def with_labels(tagger: CRFTagger, classes: list[str]) -> CRFTagger:
    """A tagger of more labels that says the same: the new ones are forbidden, and weigh nothing.

    A search that starts from it starts with all of them allowed.
    """
    before = tagger.classes_.tolist()
    if classes == before:
        return tagger
    old = np.array([classes.index(name) for name in before])
    model, s = tagger.model_, len(classes)

    def widen(array: Any, axes: tuple[int, ...], fill: float) -> np.ndarray:
        """With s entries along the axes of labels, `fill` for the new ones."""
        array = np.asarray(array)
        by_label = [axis in axes for axis in range(array.ndim)]
        wide = np.full([s if by else n for by, n in zip(by_label, array.shape)], fill, array.dtype)
        wide[np.ix_(*(old if by else range(n) for by, n in zip(by_label, array.shape)))] = array
        return wide

    weights = widen(model.weights, (1,), 0.0)
    if tagger.weights == "tied":  # labels of one type share their weights, new ones too
        for column, name in enumerate(classes):
            like = [other for other in before if _label_type(other) == _label_type(name)]
            if name not in before and like:
                weights[:, column] = weights[:, classes.index(like[0])]
    pairs = model.edge_weights
    wide = copy.copy(tagger)
    wide._take(
        CRF(
            weights,
            widen(model.transitions, (0, 1), -jnp.inf),
            widen(model.start, (0,), -jnp.inf),
            widen(model.stop, (0,), -jnp.inf),
            None if pairs is None else widen(pairs, (1, 2), 0.0),
        ),
        classes,
        tagger.extractor_,
    )
    return wide


def _label_type(label: str) -> str:
    return label.partition("-")[2] or label
