"""What a model says of a whole pool, in one pass over rows that are laid out once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from jaxseq.batch import PackedBatch, batch_entropy, batch_marginals, batch_viterbi, map_on_cores
from jaxseq.batch._cores import usable_cores
from jaxseq.chain import Chain, entropy, log_partition, viterbi
from jaxseq.chain._entropy import label_entropies, step_entropies
from jaxseq.chain._marginals import chain_marginals, row_marginals
from jaxseq.learn._corpus import Shard, make_shards
from jaxseq.learn._objective import node_scores
from jaxseq.learn.active import Look, Sequences, Spans, Strategy
from jaxseq.models._crf import CRF
from jaxseq.tagger._lattices import each_chain, k_best_paths, standard_layout
from jaxseq.text import TokenFeatures

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
