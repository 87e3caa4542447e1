"""The pool of active learning, which stays the same from round to round, and looks at it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from jaxseq._runtime import map_on_cores, usable_cores
from jaxseq.active._labels import as_partial, label_names
from jaxseq.active._query import Look, Strategy
from jaxseq.active._training import ROWS, next_size
from jaxseq.crf import (
    CRF,
    CRFTagger,
    EncodedLabels,
    Legal,
    Problem,
    Shard,
    each_chain,
    k_best_paths,
    lay_out,
    make_shards,
    node_scores,
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
from jaxseq.taggers import check_labels, check_sentences, find_classes, legal_by_scheme
from jaxseq.text import (
    ONLY_COLUMN,
    FeatureExtractor,
    TemplateExtractor,
    Templates,
    TokenFeatures,
    read_corpus,
)


@dataclass(frozen=True, eq=False)
class Pool:
    """Sentences as features, and the labels that they may get.

    Word forms [N] and groups [N] of tokens are there where the strategy wants them.
    """

    extractor: FeatureExtractor
    features: TokenFeatures
    classes: list[str]
    legal: Legal | None
    transitions: bool
    forms: np.ndarray | None = None
    groups: np.ndarray | None = None

    @classmethod
    def read(
        cls, estimator: CRFTagger, X: Iterable[Any], y: Any, classes: Any, strategy: Strategy
    ) -> Pool:
        """Read the sentences; the labels are those of `classes`, or else those in y."""
        sentences = list(check_sentences(X))  # read twice, for attributes and for words
        extractor = estimator._new_extractor(sentences)
        features = extractor.fit_transform(sentences)
        if not features.lengths.sum():
            raise ValueError("X: expected sentences with at least one token, got none")
        names = _classes(estimator.classes if classes is None else classes, y, features.lengths)
        templates, wanted = estimator.templates, strategy.wanted
        forms = word_forms(sentences) if wanted.forms else None
        if wanted.forms and forms is None:
            raise ValueError(f"X: expected sentences with words for {strategy}, got none")
        return cls(
            extractor,
            without_gaps(features),
            names,
            legal_by_scheme(names, estimator.scheme),
            not isinstance(templates, Templates) or templates.transitions,
            forms,
            _groups(sentences, wanted.alike, extractor) if wanted.groups else None,
        )

    @cached_property
    def view(self) -> PoolView:
        """For looks at all of the pool."""
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
        # By features and not by words: templates that read a pool alike make no difference.
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
    return label_names("classes", classes)


def word_forms(sentences: list[Any]) -> np.ndarray | None:
    """A number for the word of every token, the same for words that differ in case alone; None
    where tokens have no words, but attributes or other columns."""
    try:
        column = read_corpus(sentences, [ONLY_COLUMN])[0][ONLY_COLUMN]
    except ValueError:
        return None
    # Folded once per distinct word, and not once per token.
    numbers: dict[str, int] = {}
    forms = [numbers.setdefault(word.casefold(), len(numbers)) for word in column.strings]
    return np.array(forms, np.int64)[column.codes]


def groups_alike(sentences: list[Any], template: str) -> np.ndarray:
    """A number for the value that a template has for every token; ValueError unless it is a
    template of columns that the sentences have.

    Example:
        >>> groups_alike([["The", "dog"], ["the"]], "lower(word[0])").tolist()
        [1, 2, 1]
    """
    try:
        ids = TemplateExtractor([template]).fit_transform(sentences).ids
    except ValueError as error:
        raise ValueError(f"alike: {error}") from None
    # A template that is a flag has no attribute where it does not hold: these are alike, too.
    return ids[:, 0].astype(np.int64) + 1


def _groups(sentences: list[Any], template: str | None, extractor: FeatureExtractor) -> np.ndarray:
    """As `groups_alike`. Without a template, words are alike; tokens without words never are."""
    if template is not None:
        return groups_alike(sentences, template)
    words = word_forms(sentences)
    if words is not None:
        return words
    if isinstance(extractor, TemplateExtractor) and extractor.templates.columns:
        return groups_alike(sentences, f"lower({extractor.templates.columns[0]}[0])")
    return np.arange(sum(map(len, sentences)))


ROWS_AT_ONCE = 32  # whose pairs of labels, [slots, s, s] each, are in memory together
BY_SENTENCE = ("viterbi", "entropy")  # all other arrays of a look are by token


class PoolView:
    """A pool that is looked at again and again: its rows are made once."""

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
        if features.edge_ids is None:  # with weights on pairs each chain has edges of its own
            self._shards = make_shards(self._layout, features, attributes)
        sentence = np.repeat(np.arange(len(features.lengths)), features.lengths)
        # Sentences are numbered within a shard in the order of the pool.
        self._members = [
            np.unique(sentence[self._layout.shard == index]) for index in range(len(self._shards))
        ]

    def look(self, model: CRF, strategy: Strategy) -> Look:
        """As much as a strategy wants to know."""
        wanted = strategy.wanted
        run = self._by_rows if self._features.edge_ids is None else self._by_chains
        # Numbers compare with a threshold as they print: 0.9 in float32 is not below 0.9.
        arrays = {
            name: array if name == "labels" else array.astype(np.float64)
            for name, array in run(model, wanted.steps, wanted.entropy).items()
        }
        sequence = {name: arrays.pop(name) for name in BY_SENTENCE if name in arrays}
        if wanted.n_best is not None:
            sequence["n_best"] = self._n_best_entropy(model, wanted.n_best)
        return Look(lengths=self._features.lengths, sequence=sequence, **self._kinds, **arrays)

    def _by_rows(self, model: CRF, steps: bool, with_entropy: bool) -> dict[str, np.ndarray]:
        def on_shard(shard: Shard) -> dict[str, Any]:
            nodes = node_scores(model.table, model.start, model.stop, shard, model.num_labels)
            rows = (nodes, model.transitions, shard.segments, shard.num_sequences)
            arrays = _look_at_rows(*rows)
            if with_entropy:
                arrays["entropy"] = _entropies_of_rows(*rows)
            if steps:
                arrays |= _steps_of_rows(*rows)
            return jax.tree.map(np.asarray, arrays)  # off the device, before the next shard

        cores, parts = usable_cores(), []
        # A few shards at once: their marginals would not all fit into memory together.
        for first in range(0, len(self._shards), cores):
            parts += map_on_cores(on_shard, self._shards[first : first + cores])
        joined: dict[str, np.ndarray] = {}
        for name in parts[0]:
            arrays = [part[name] for part in parts]
            if name not in BY_SENTENCE:
                joined[name] = self._layout.collect(arrays)[:, 0]
                continue
            joined[name] = np.zeros(len(self._features.lengths))
            for members, array in zip(self._members, arrays):
                joined[name][members] = array[: len(members)]
        return joined

    def _by_chains(self, model: CRF, steps: bool, with_entropy: bool) -> dict[str, np.ndarray]:
        parts = each_chain(model, self._features, _look_at_chain(steps, with_entropy))
        lengths = self._features.lengths
        joined: dict[str, np.ndarray] = {}
        for name in parts[0]:
            arrays = [part[name] for part in parts]
            if name in BY_SENTENCE:
                joined[name] = np.where(lengths > 0, np.array(arrays), 0)
            else:  # chains are padded to few lengths
                joined[name] = np.concatenate([a[:n] for a, n in zip(arrays, lengths)])
        return joined

    def _n_best_entropy(self, model: CRF, number: int) -> np.ndarray:
        """[B], of the best labellings, their probabilities made to sum to 1."""
        lists = np.stack([log_p for _, log_p in k_best_paths(model, self._features, number)])
        lists = lists.astype(np.float64)
        top = lists[:, :1]  # subtracted before exp: log p of a long sentence underflows
        mass = np.where(np.isfinite(lists), np.exp(lists - np.where(np.isfinite(top), top, 0)), 0)
        p = mass / np.maximum(mass.sum(1, keepdims=True), np.finfo(float).tiny)
        return -(p * np.log(np.where(p > 0, p, 1))).sum(1)


def _label_confidence(probabilities: Array, labels: Array) -> Array:
    """The probability of each label; 1 where there is none."""
    chosen = jnp.take_along_axis(probabilities, jnp.maximum(labels, 0)[..., None], -1)[..., 0]
    return jnp.where(labels >= 0, jnp.clip(chosen, 0, 1), 1)


def _log_p(score: Array, log_z: Array) -> Array:
    """Of the best labelling; 0 where there is none."""
    return jnp.where(jnp.isneginf(log_z), 0, jnp.minimum(score - log_z, 0))


@partial(jax.jit, static_argnums=3)
def _look_at_rows(nodes: Array, edges: Array, segments: Array, num: int) -> dict[str, Array]:
    batch = PackedBatch(nodes, edges, segments, num)
    (labels, scores), marginals = batch_viterbi(batch), batch_marginals(batch)
    confidence = _label_confidence(marginals.nodes, labels)
    log_p = _log_p(scores, marginals.log_partition)
    return {"labels": labels, "confidence": confidence, "viterbi": log_p}


@partial(jax.jit, static_argnums=3)
def _entropies_of_rows(nodes: Array, edges: Array, segments: Array, num: int) -> Array:
    return batch_entropy(PackedBatch(nodes, edges, segments, num))


@partial(jax.jit, static_argnums=3)
def _steps_of_rows(nodes: Array, edges: Array, segments: Array, num: int) -> dict[str, Array]:
    valid = segments >= 0
    linked = (segments[:, 1:] == segments[:, :-1]) & valid[:, 1:]  # both of one sentence

    def one_row(arrays: tuple[Array, Array, Array]) -> dict[str, Array]:
        nodes, linked, valid = arrays
        return _steps(*row_marginals(nodes, edges, linked, valid, "auto"))

    size = min(ROWS_AT_ONCE, len(nodes))
    return lax.map(one_row, (nodes, linked, valid), batch_size=size)


def _steps(by_node: Array, by_pair: Array) -> dict[str, Array]:
    """H(Y_t) and H(Y_t | Y_{t−1}) at every t."""
    steps = jnp.pad(step_entropies(by_pair), (1, 0))  # the first token has none before it
    return {"label_entropy": label_entropies(by_node), "step_entropy": steps}


@lru_cache  # so that each is compiled once
def _look_at_chain(steps: bool, with_entropy: bool) -> Callable[[Chain], dict[str, Array]]:
    def run(chain: Chain) -> dict[str, Array]:
        (labels, score), (by_node, by_pair) = viterbi(chain), chain_marginals(chain, "auto")
        look = {"labels": labels, "confidence": _label_confidence(by_node, labels)}
        look["viterbi"] = _log_p(score, log_partition(chain))
        if with_entropy:
            look["entropy"] = entropy(chain)
        return look | _steps(by_node, by_pair) if steps else look

    return run
