"""What is known of the labels of a pool: from the annotator, and taken from the model."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from jaxseq._runtime import Outcome, interrupts_deferred, map_on_cores, usable_cores
from jaxseq.active._strategies import Answer, Groups, Look, Sequences, Spans, Strategy
from jaxseq.crf import (
    CRF,
    UNKNOWN,
    CRFTagger,
    EncodedLabels,
    EntropyTerm,
    Fitted,
    Layout,
    Legal,
    Objective,
    Parameters,
    Plan,
    Problem,
    Settings,
    Shard,
    ShardMaker,
    Spread,
    begin_search,
    each_chain,
    k_best_paths,
    lay_out,
    make_shards,
    make_spread,
    minimise,
    node_scores,
    padded_labels,
    search,
    standard_layout,
    without_gaps,
)
from jaxseq.lattice import (
    Chain,
    PackedBatch,
    batch_entropy,
    batch_marginals,
    batch_viterbi,
    chain_marginals,
    entropy,
    label_entropies,
    log_partition,
    row_marginals,
    step_entropies,
    viterbi,
)
from jaxseq.taggers import (
    check_labels,
    check_paths_legal,
    check_sentences,
    encode_labels,
    find_classes,
    legal_by_scheme,
)
from jaxseq.text import (
    ONLY_COLUMN,
    FeatureExtractor,
    TemplateExtractor,
    Templates,
    TokenFeatures,
    read_corpus,
)


class KnownLabels:
    """Possible labels of every token of a pool.

    Args:
        lengths: int [B]. classes: the labels, sorted. legal: what a scheme allows, or None.

    `answered`, `guessed`: bool [N], tokens with a label from the annotator, and others with one
    from the model. `sampled`: bool [B], sentences that were chosen whole.
    """

    def __init__(self, lengths: np.ndarray, classes: list[str], legal: Legal | None):
        self._lengths, self._classes, self._legal = lengths, classes, legal
        self._number = {label: index for index, label in enumerate(classes)}
        self._starts = np.cumsum(lengths) - lengths
        self._sentence = np.repeat(np.arange(len(lengths)), lengths)
        tokens = int(lengths.sum())
        self._allowed = np.ones((tokens, len(classes)), bool)
        self._guess = np.full(tokens, UNKNOWN, np.int32)
        self.answered = np.zeros(tokens, bool)
        self.sampled = np.zeros(len(lengths), bool)

    def with_classes(self, classes: list[str], legal: Legal | None) -> KnownLabels:
        """The same with more labels: they are possible where nothing is known of a token."""
        wide = KnownLabels(self._lengths, classes, legal)
        places = np.array([classes.index(name) for name in self._classes])
        wide._allowed[self.answered] = False
        wide._allowed[np.ix_(self.answered, places)] = self._allowed[self.answered]
        wide._guess = np.where(self._guess >= 0, places[self._guess], UNKNOWN).astype(np.int32)
        wide.answered, wide.sampled = self.answered, self.sampled
        return wide

    @property
    def guessed(self) -> np.ndarray:
        """bool [N]."""
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

    # ------------------------------------------------------------------------- taking labels

    def given(self, y: Sequence[Any]) -> None:
        """Labels from the start: an entry a sentence, None where nothing is known of it."""
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
        listed = _listed("answers", answers, "Answer(sentence, position, label)")
        plain = [self._check(index, answer) for index, answer in enumerate(listed)]
        if self._legal is not None and plain:
            allowed = self._allowed.copy()
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
        plain = []
        for index, token in enumerate(_listed("tokens", tokens, "(sentence, position)")):
            where = f"tokens[{index}]"
            try:
                sentence, position = token
            except (TypeError, ValueError):
                raise ValueError(
                    f"{where}: expected (sentence, position), got {token!r:.80}"
                ) from None
            plain.append(self._place(where, sentence, position))
        return plain

    def retract(self, plain: list[tuple[int, int]]) -> None:
        """Forget the annotator's labels of tokens of `check_places`."""
        places = [int(self._starts[sentence]) + position for sentence, position in plain]
        self._allowed[places] = True
        self.answered[places] = False

    def label_of(self, sentence: int, position: int) -> str | tuple[str, ...] | None:
        """The annotator's label of a token, or the possible ones in order; None for no answer."""
        place = int(self._starts[sentence]) + position
        if not self.answered[place]:
            return None
        labels = tuple(self._classes[k] for k in np.flatnonzero(self._allowed[place]))
        return labels[0] if len(labels) == 1 else labels

    def is_news(self, answers: Iterable[Answer]) -> bool:
        """Whether one of the answers of `check` differs from what is known."""
        return any(self.label_of(a.sentence, a.position) != a.label for a in answers)

    def _encode(self, plain: list[Answer]) -> tuple[np.ndarray, np.ndarray]:
        """Tokens, each once, and their possible labels [tokens, s]."""
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

    def _check(self, index: int, answer: Any) -> Answer:
        where = f"answers[{index}]"
        try:
            sentence, position, label = answer
        except (TypeError, ValueError):
            raise ValueError(
                f"{where}: expected (sentence, position, label), got {answer!r:.80}"
            ) from None
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
        chosen = tuple(sorted({str(choice) for choice in choices}))
        return Answer(sentence, position, chosen[0] if len(chosen) == 1 else chosen)

    def _place(self, where: str, sentence: Any, position: Any) -> tuple[int, int]:
        sentence = _whole(f"{where}.sentence", sentence, len(self._lengths))
        return sentence, _whole(f"{where}.position", position, int(self._lengths[sentence]))

    # ------------------------------------------------------------------------------ training

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
            dropped = guessed & np.isin(
                np.repeat(np.arange(len(self._lengths)), self._lengths), wrong
            )
            allowed[dropped] = self._allowed[dropped]
            guessed = guessed & ~dropped
        trained = self._any_in_sentence(self.answered | guessed)
        rows = allowed[np.repeat(trained, self._lengths)]
        single = rows.sum(1) == 1
        gold = np.where(single, rows.argmax(1), UNKNOWN).astype(np.int32)
        return trained, EncodedLabels(gold, None if single.all() else rows)

    # --------------------------------------------------------------------------- possibility

    def _refuse_impossible(self, allowed: np.ndarray, sentences: np.ndarray, name: str) -> None:
        wrong = sentences[self._impossible(allowed, sentences)]
        if len(wrong):
            raise ValueError(
                f"{name}: expected labels that the scheme allows, got some for sentence "
                f"{int(wrong[0])} that leave it no legal labelling"
            )

    def _impossible(self, allowed: np.ndarray, sentences: np.ndarray) -> np.ndarray:
        """Which of the sentences have no legal labelling among the labels allowed."""
        if self._legal is None or not len(sentences):
            return np.zeros(len(sentences), bool)
        step, start, stop = (np.asarray(array) for array in self._legal)
        lengths, begins = self._lengths[sentences], self._starts[sentences]
        alive = np.ones((len(sentences), len(self._classes)), bool)
        for t in range(int(lengths.max())):
            here = t < lengths
            may = start if t == 0 else alive[here].astype(np.int32) @ step.astype(np.int32) > 0
            alive[here] = allowed[begins[here] + t] & may
        return ((lengths > 0) & ~(alive & stop).any(1)).astype(bool)


def as_partial(y: Any, lengths: np.ndarray) -> Any:
    """Labels in which None for a whole sentence is a None for each of its tokens."""
    if not isinstance(y, Iterable):
        return y
    y = list(y)
    known = [[None] * int(n) if labels is None else labels for labels, n in zip(y, lengths)]
    return known + y[len(known) :]


def _listed(name: str, given: Any, each: str) -> Iterable[Any]:
    if not isinstance(given, Iterable):
        raise ValueError(f"{name}: expected a list of {each}, got {given!r:.60}")
    return given


def _whole(name: str, value: Any, below: int) -> int:
    try:
        number = value.__index__()
    except (AttributeError, TypeError):
        number = None
    if number is None or isinstance(value, bool) or not 0 <= number < below:
        raise ValueError(f"{name}: expected a whole number, 0 … {below - 1}, got {value!r:.60}")
    return number


# -------------------------------------------------------------------------------------------------
# Tokens of a pool that are alike, so that a round need not ask for the same again and again.


def word_forms(sentences: list[Any]) -> np.ndarray | None:
    """A number for the word of every token, the same for words that differ in case alone.

    Args:
        sentences: each a `Sentence`, a mapping column → strings, or strings.

    Returns:
        int [N]; None where tokens have no words, but attributes or other columns.

    Example:
        >>> word_forms([["The", "dog"], ["the"]]).tolist()
        [0, 1, 0]
        >>> word_forms([[{"length": 3}]])
    """
    try:
        column = read_corpus(sentences, [ONLY_COLUMN])[0][ONLY_COLUMN]
    except ValueError:
        return None
    numbers: dict[str, int] = {}
    forms = [numbers.setdefault(word.casefold(), len(numbers)) for word in column.strings]
    return np.array(forms, np.int64)[column.codes]


def groups_alike(sentences: list[Any], template: str) -> np.ndarray:
    """A number for the value that a template has for every token.

    Args:
        sentences: each a `Sentence`, a mapping column → strings, or strings. template: the text.

    Returns:
        int [N].

    Raises:
        ValueError: for what is no template, or one of a column that the sentences do not have.

    Example:
        >>> groups_alike([["The", "dog"], ["the"]], "lower(word[0])").tolist()
        [1, 2, 1]
        >>> len(set(groups_alike([["the", "dog"], ["the"]], "word[0]|word[1]").tolist()))
        3
    """
    try:
        ids = TemplateExtractor([template]).fit_transform(sentences).ids
    except ValueError as error:
        raise ValueError(f"alike: {error}") from None
    # A template that is a flag has no attribute where it does not hold: these are alike, too.
    return ids[:, 0].astype(np.int64) + 1


# -------------------------------------------------------------------------------------------------
# What a model says of a whole pool, in one pass over rows that are laid out once.


ROWS_AT_ONCE = 32
"""Rows whose pairs of labels, [slots, s, s] each, are in memory together."""

BY_TOKEN = ("labels", "confidence", "label_entropy", "step_entropy")
BY_SENTENCE = ("viterbi", "entropy")


class PoolView:
    """A pool that is looked at again and again: its rows are made once.

    Args:
        features: of the pool. attributes: how many there are.
        forms: int [N], word forms of the tokens, for the looks; None where there are none.
        groups: int [N], of tokens that are alike, for the looks; None where there are none.
    """

    def __init__(
        self,
        features: TokenFeatures,
        attributes: int,
        forms: np.ndarray | None = None,
        groups: np.ndarray | None = None,
    ):
        self._features, self._kinds = features, {"forms": forms, "groups": groups}
        self._layout = standard_layout(features.lengths)
        self._shards = []
        if features.edge_ids is None:
            self._shards = make_shards(self._layout, features, attributes)
        sentence = np.repeat(np.arange(len(features.lengths)), features.lengths)
        # Sentences are numbered within a shard in the order of the pool.
        self._members = [
            np.unique(sentence[self._layout.shard == index]) for index in range(len(self._shards))
        ]

    def look(self, model: CRF, strategy: Strategy) -> Look:
        """As much as a strategy wants to know."""
        spans = isinstance(strategy, Spans)
        whole = isinstance(strategy, Sequences) and strategy.by == "entropy"
        run = self._by_rows if self._features.edge_ids is None else self._by_chains
        found = run(model, spans, whole)
        sequence = {name: found[name] for name in BY_SENTENCE if name in found}
        if isinstance(strategy, Sequences) and strategy.by == "n_best":
            sequence["n_best"] = self._n_best_entropy(model, strategy.n_best)
        by_token = {name: found[name] for name in BY_TOKEN if name in found}
        lengths = self._features.lengths
        return Look(lengths=lengths, sequence=sequence, **self._kinds, **by_token)

    def _by_rows(self, model: CRF, spans: bool, whole: bool) -> dict[str, Any]:
        def on_shard(shard: Shard) -> dict[str, Any]:
            nodes = node_scores(model.table, model.start, model.stop, shard, model.num_labels)
            rows = (nodes, model.transitions, shard.segments, shard.num_sequences)
            found = _look_at_rows(*rows)
            if whole:
                found["entropy"] = _entropies_of_rows(*rows)
            if spans:
                found |= _steps_of_rows(*rows)
            return jax.tree.map(np.asarray, found)

        cores, parts = usable_cores(), []
        for first in range(0, len(self._shards), cores):
            parts += map_on_cores(on_shard, self._shards[first : first + cores])
        found: dict[str, Any] = {}
        for name in parts[0]:
            arrays = [part[name] for part in parts]
            if name in BY_TOKEN:
                found[name] = self._layout.collect(arrays)[:, 0]
            else:
                found[name] = np.zeros(len(self._features.lengths))
                for members, array in zip(self._members, arrays):
                    found[name][members] = array[: len(members)]
        return _in_double(found)

    def _by_chains(self, model: CRF, spans: bool, whole: bool) -> dict[str, Any]:
        parts = each_chain(model, self._features, _look_at_chain(spans, whole))
        lengths = self._features.lengths
        found: dict[str, Any] = {}
        for name in parts[0]:
            arrays = [part[name] for part in parts]
            if name in BY_TOKEN:
                found[name] = np.concatenate([a[:n] for a, n in zip(arrays, lengths)])
            else:
                found[name] = np.where(lengths > 0, np.array(arrays), 0)
        return _in_double(found)

    def _n_best_entropy(self, model: CRF, number: int) -> np.ndarray:
        """[B], of the best labellings, their probabilities made to sum to 1."""
        lists = np.stack([log_p for _, log_p in k_best_paths(model, self._features, number)])
        lists = lists.astype(np.float64)
        top = lists[:, :1]
        mass = np.where(np.isfinite(lists), np.exp(lists - np.where(np.isfinite(top), top, 0)), 0)
        p = mass / np.maximum(mass.sum(1, keepdims=True), np.finfo(float).tiny)
        return -(p * np.log(np.where(p > 0, p, 1))).sum(1)


def _in_double(found: dict[str, Any]) -> dict[str, Any]:
    """So that numbers compare with a threshold as they print."""
    return {name: a if name == "labels" else a.astype(np.float64) for name, a in found.items()}


def _of_labels(probabilities: Array, labels: Array) -> Array:
    """The probability of each label; 1 where there is none."""
    chosen = jnp.take_along_axis(probabilities, jnp.maximum(labels, 0)[..., None], -1)[..., 0]
    return jnp.where(labels >= 0, jnp.clip(chosen, 0, 1), 1)


def _log_p(score: Array, log_z: Array) -> Array:
    """Of the best labelling; 0 where there is none."""
    return jnp.where(jnp.isneginf(log_z), 0, jnp.minimum(score - log_z, 0))


@partial(jax.jit, static_argnums=3)
def _look_at_rows(nodes: Array, edges: Array, segments: Array, num: int) -> dict[str, Array]:
    batch = PackedBatch(nodes, edges, segments, num)
    (labels, scores), found = batch_viterbi(batch), batch_marginals(batch)
    log_p = _log_p(scores, found.log_partition)
    return {"labels": labels, "confidence": _of_labels(found.nodes, labels), "viterbi": log_p}


@partial(jax.jit, static_argnums=3)
def _entropies_of_rows(nodes: Array, edges: Array, segments: Array, num: int) -> Array:
    return batch_entropy(PackedBatch(nodes, edges, segments, num))


@partial(jax.jit, static_argnums=3)
def _steps_of_rows(nodes: Array, edges: Array, segments: Array, num: int) -> dict[str, Array]:
    valid = segments >= 0
    linked = (segments[:, 1:] == segments[:, :-1]) & valid[:, 1:]

    def one_row(arrays: tuple[Array, Array, Array]) -> dict[str, Array]:
        nodes, linked, valid = arrays
        return _steps(*row_marginals(nodes, edges, linked, valid, "auto"))

    size = min(ROWS_AT_ONCE, len(nodes))
    return lax.map(one_row, (nodes, linked, valid), batch_size=size)


def _steps(by_node: Array, by_pair: Array) -> dict[str, Array]:
    """H(Y_t) and H(Y_t | Y_{t−1}) at every t."""
    steps = jnp.pad(step_entropies(by_pair), (1, 0))
    return {"label_entropy": label_entropies(by_node), "step_entropy": steps}


@lru_cache  # so that each is compiled once
def _look_at_chain(spans: bool, whole: bool) -> Callable[[Chain], dict[str, Array]]:
    def run(chain: Chain) -> dict[str, Array]:
        (labels, score), (by_node, by_pair) = viterbi(chain), chain_marginals(chain, "auto")
        look = {"labels": labels, "confidence": _of_labels(by_node, labels)}
        look["viterbi"] = _log_p(score, log_partition(chain))
        if whole:
            look["entropy"] = entropy(chain)
        return look | _steps(by_node, by_pair) if spans else look

    return run


# -------------------------------------------------------------------------------------------------
# One training of many on a growing part of a pool, in few compiled shapes.


ROWS = 256
"""Rows of a shard, at most. Shards are all of one shape: more sentences make more shards, and not
other programs, which would take longer to compile than a round takes to run."""

LOOSER, PERIOD, MEMORY = 10, 5, 20
"""How a search from an older model differs from one from zeros: it ends when the value improves by
less than so many times the tolerance over so many iterations, and remembers at least so many steps.

Most of its iterations would otherwise go into digits that do not matter, or are rounding. At the
end of NP chunking (28 rounds of 500 tokens, l2 = .006) it takes 42 iterations where one from zeros
takes 252, and ends no higher. Five times looser, it ended 1.6e-3 above one from zeros there."""

FINE = 1 << 20
"""Numbers of weights up to this are rounded up to powers of two; larger ones less."""


def next_size(number: int) -> int:
    """A power of two, or above 2^20 a multiple of 2^19, that is not smaller.

    Example:
        >>> [next_size(n) for n in (1, 3, 100, 2**20 + 1)]
        [1, 4, 128, 1572864]
    """
    if number <= FINE:
        return 1 << max(number - 1, 0).bit_length()
    return -(-number // (FINE // 2)) * (FINE // 2)


def lay_out_alike(lengths: np.ndarray, cores: int, width: int, rows: int) -> Layout:
    """Pack sentences into shards of so many rows, as many for each core as for any other.

    Rows that are left over are empty, and add exactly 0.
    """
    needed = lay_out(lengths, 1, width=width).rows
    shards = cores * -(-needed // (rows * cores))
    return replace(lay_out(lengths, shards, width=width), rows=rows, sequences=rows * width)


class ManyShards(Objective):
    """The objective on any number of shards, shared out among so many cores."""

    def __init__(self, cores: int, shards: list[Shard], *others: Any):
        self._cores = cores
        super().__init__(shards, *others)

    def take(self, shards: Sequence[Shard], unlabelled: Sequence[Shard] = ()) -> None:
        """Several shards a core, one after another into one gradient."""
        assert not unlabelled
        cores = max(1, min(len(shards), self._cores))
        self._work = [[(shard, True) for shard in shards[core::cores]] for core in range(cores)]
        self._gradients += [None] * (cores - len(self._gradients))


def train_on(
    problem: Problem,
    plan: Plan,
    older: CRF | None,
    shape: tuple[int, int],
    most: int | None = None,
) -> tuple[CRF, Fitted, bool]:
    """Train on the sentences of a problem.

    Args:
        problem: the data. plan: how to search.
        older: a model of the same attributes and labels, to begin with; None for zeros.
        shape: slots of a row and rows of a shard, the same in every round.
        most: iterations, or epochs of mini-batches, after which the search is cut short; None for
            those of the plan.

    Returns:
        The model, where the search ended, and whether it was cut short there.

    Raises:
        KeyboardInterrupt: after Ctrl-C; nothing is left behind.
    """
    clock = time.perf_counter()
    spread = make_spread(problem, plan.weights)
    if plan.weights in ("observed", "mixed"):
        spread = _in_few_sizes(spread, problem)
    start = None if older is None else spread.parameters(older)
    if older is not None:
        plan = replace(plan, settings=warm_settings(plan.settings))
    asked_for, plan = plan, plan if most is None else _shortened(plan, most)
    prepared = time.perf_counter() - clock
    if plan.algorithm == "lbfgs":
        found = _descend(problem, plan, spread, start, shape)
    else:
        found = search(problem, plan, start, spread, EntropyTerm.of(0.0, "mann"))
    if found.outcome is Outcome.INTERRUPTED:
        raise KeyboardInterrupt
    found = replace(found, seconds={"weights": prepared, **found.seconds})
    is_short = plan != asked_for and found.outcome is Outcome.MAX_ITERATIONS
    return spread.model(found.parameters, problem.legal), found, is_short


def _shortened(plan: Plan, most: int) -> Plan:
    """The same search, at most so long."""
    if plan.algorithm != "lbfgs":
        return replace(plan, epochs=min(most, plan.epochs))
    fewer = min(most, plan.settings.max_iterations)
    return replace(plan, settings=plan.settings._replace(max_iterations=fewer))


def warm_settings(settings: Settings) -> Settings:
    """Those of a search from an older model; see `LOOSER`.

    Example:
        >>> warm_settings(Settings(tolerance=1e-5)).tolerance
        0.0001
    """
    return settings._replace(
        tolerance=LOOSER * settings.tolerance,
        period=PERIOD,
        memory_size=max(MEMORY, settings.memory_size),
    )


def _descend(
    problem: Problem, plan: Plan, spread: Spread, start: Parameters | None, shape: tuple[int, int]
) -> Fitted:
    """L-BFGS on shards that all have one shape."""
    clock = time.perf_counter()
    layout = lay_out_alike(problem.features.lengths, plan.cores, *shape)
    weights = problem.sentence_weights
    maker = ShardMaker(layout, problem.features, problem.attributes, problem.labels, weights)
    objective = ManyShards(plan.cores, maker.all(), spread, plan.l2, problem.legal)
    start = spread.zeros(problem.edge_attributes, plan.dtype) if start is None else start
    laid_out = time.perf_counter()
    with interrupts_deferred() as pressed:
        begun = begin_search(objective, start, plan.settings)
        if not np.isfinite(begun.value):
            raise ValueError(
                "labels: expected some that leave every sentence at least one legal labelling, got "
                f"a sentence with none (loss {begun.value})"
            )
        first = time.perf_counter()
        objective.seconds = dict.fromkeys(objective.seconds, 0.0)
        state, outcome = minimise(objective, begun, plan.settings, lambda _: pressed())
    seconds = {
        "rows": laid_out - clock,
        "first evaluation, compiling": first - laid_out,
        **objective.seconds,
        "optimiser": time.perf_counter() - first - objective.seconds["evaluations"],
    }
    value = state.values[-1]
    return Fitted(state.parameters, outcome, state.iteration, state.evaluations, value, seconds)


def _in_few_sizes(spread: Spread, problem: Problem) -> Spread:
    """The same weights and some that stay 0, so that their number is one of few.

    Those are places of the table that no score comes from: the columns that pad the labels, then
    attributes that the sentences do not have.
    """
    assert spread.places is not None
    places = np.asarray(spread.places)
    missing = next_size(len(places)) - len(places)
    s, width = len(problem.classes), padded_labels(len(problem.classes))
    spare = np.arange(problem.attributes + 1)[:, None] * width + np.arange(s, width)
    spare = spare.ravel()[:missing]
    if len(spare) < missing:
        present = np.zeros(problem.attributes, bool)
        present[problem.features.ids[problem.features.ids >= 0]] = True
        absent = np.flatnonzero(~present)[:, None] * width + np.arange(s)
        absent = np.setdiff1d(absent.ravel(), places, assume_unique=True)
        spare = np.concatenate([spare, absent[: missing - len(spare)]])
    places = np.sort(np.concatenate([places, spare]))
    return Spread(
        attributes=spread.attributes,
        labels=spread.labels,
        places=jnp.asarray(places, jnp.int32),
        transitions=spread.transitions,
    )


# -------------------------------------------------------------------------------------------------
# The pool of active learning: everything that stays the same from round to round.


@dataclass(frozen=True, eq=False)
class Pool:
    """Sentences as features, and the labels that they may get.

    extractor: has the attributes of the whole pool. legal: what the tagger's scheme allows.
    forms: int [N], word forms of the tokens; None where there are no words.
    groups: int [N], of tokens that are alike; None where no template says which are.
    """

    extractor: FeatureExtractor
    features: TokenFeatures
    classes: list[str]
    legal: Legal | None
    transitions: bool
    forms: np.ndarray | None = None
    groups: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        estimator: CRFTagger,
        X: Iterable[Any],
        y: Any,
        classes: Any,
        strategy: Strategy | None = None,
    ) -> Pool:
        """Read the sentences.

        Args:
            estimator: whose templates and scheme to use.
            X: sentences. y: labels or None. classes: all labels, or None for those in y.
            strategy: what it wants to know of the tokens is found out.
        """
        extractor = estimator._new_extractor()
        sentences = list(check_sentences(X))  # read twice, for attributes and for words
        features = extractor.fit_transform(sentences)
        if not features.lengths.sum():
            raise ValueError("X: expected sentences with at least one token, got none")
        names = _classes(classes, y, features.lengths)
        templates = estimator.templates
        transitions = not isinstance(templates, Templates) or templates.transitions
        legal = legal_by_scheme(names, estimator.scheme)
        forms = word_forms(sentences)
        is_by_group = isinstance(strategy, Groups)
        groups = groups_alike(sentences, strategy.alike) if is_by_group else None
        return cls(extractor, without_gaps(features), names, legal, transitions, forms, groups)

    @cached_property
    def view(self) -> PoolView:
        """For looks at the whole pool."""
        return PoolView(self.features, self.extractor.attribute_count, self.forms, self.groups)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each sentence."""
        return self.features.lengths

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Slots of a row that every sentence fits into, and rows of a shard for training."""
        width = max(128, int(self.lengths.max()))
        needed = lay_out(self.lengths, 1, width=width).rows
        most = max(1, ROWS * 128 // width)  # a single long sentence must not widen many rows
        return width, min(most, next_size(-(-needed // 2)))

    def digest(self) -> str:
        """Says which pool this is."""
        digest = hashlib.sha256(repr(self.classes).encode("utf-8", "surrogatepass"))
        features = self.features
        for array in (features.ids, features.values, features.lengths, features.edge_ids):
            digest.update(b"-" if array is None else np.ascontiguousarray(array).tobytes())
        if self.groups is not None:
            digest.update(self.groups.tobytes())
        return digest.hexdigest()

    def problem(self, trained: np.ndarray, labels: EncodedLabels) -> Problem:
        """To learn from some of the sentences."""
        return Problem(
            features=self.features.take(trained),
            labels=labels,
            classes=self.classes,
            attributes=self.extractor.attribute_count,
            edge_attributes=self.extractor.edge_attribute_count,
            transitions=self.transitions,
            legal=self.legal,
            sentence_weights=None,
        )


def _classes(classes: Any, y: Any, lengths: np.ndarray) -> list[str]:
    if classes is None:
        if y is None:
            raise ValueError("classes: expected the labels that may be given, got None without y")
        return find_classes(check_labels(as_partial(y, lengths), lengths), lengths)
    plain = isinstance(classes, Iterable) and not isinstance(classes, str | bytes)
    found = list(classes) if plain else []
    if not found or not all(isinstance(name, str) for name in found):
        raise ValueError(f"classes: expected labels, strings, at least one, got {classes!r:.80}")
    return sorted({str(name) for name in found})
