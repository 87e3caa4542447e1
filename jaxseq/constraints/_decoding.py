"""Predictions of a trained tagger under constraints."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxseq.constraints._constraint import Constraints, Scheme, bind_constraints
from jaxseq.constraints._corpus import CorpusLabellings, search_corpus
from jaxseq.crf import (
    CRF,
    ScoredSentences,
    each_chain,
    make_shards,
    node_scores,
    standard_layout,
)
from jaxseq.lattice import Chain, log_partition
from jaxseq.text import TokenFeatures

MOST_NUMBERS = 1 << 24
"""Scores of pairs of labels held at a time, where each pair of tokens has its own."""


class ConstraintWarning(UserWarning):
    """Some sentences have no labelling that satisfies all hard constraints.

    They get one with the fewest violations.

    Example:
        >>> import jaxseq, math, warnings
        >>> from jaxseq.constraints import EndsWith, Penalised, StartsWith
        >>> tagger = jaxseq.CRFTagger(["word[0]"]).fit([["a", "b"]], [["A", "B"]])
        >>> rules = StartsWith(["A"]), EndsWith(["B"])  # of one word
        >>> both = [Penalised(rule, math.inf) for rule in rules]
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     _ = tagger.predict([["a"]], constraints=both)
        >>> [warning.category.__name__ for warning in caught]
        ['ConstraintWarning']
    """


def bound_to(
    classes: Sequence[str],
    constraints: Any,
    penalty: float | None = None,
    scheme: Scheme = "plain",
) -> Constraints:
    """Constraints for a model with these labels: from rules, `Constraints` for as many labels, or
    anything with `rules` and a `scheme`, such as the contents of a file."""
    if isinstance(constraints, Constraints):
        if constraints.num_labels != len(classes):
            raise ValueError(
                f"constraints: expected them for {len(classes)} labels, as the model has, got "
                f"{constraints.num_labels}"
            )
        return constraints
    rules = getattr(constraints, "rules", constraints)
    if isinstance(rules, str) or not isinstance(rules, Sequence):
        raise ValueError(f"constraints: expected rules with penalties, got {constraints!r:.60}")
    scheme = getattr(constraints, "scheme", scheme)
    try:
        return bind_constraints(rules, [str(c) for c in classes], penalty=penalty, scheme=scheme)
    except ValueError as error:
        raise ValueError(f"constraints: {error}") from None


class ConstrainedSentences(NamedTuple):
    """Sentences whose labellings are scored by a model less the penalties of constraints."""

    scored: ScoredSentences
    constraints: Constraints
    width: int | None

    def best_labels(self, mesh: Mesh | None = None) -> np.ndarray:
        """Labels [N] of the best labellings, −1 where there is none; warns of unmet constraints."""
        best = search_scored(self.scored, self.constraints, 1, self.width, mesh=mesh)
        warn_unmet(best.hard[:, 0])
        return best.labels[:, 0]

    def k_best(self, k: int, mesh: Mesh | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each sentence its best paths [n, k] and log P(y | x) less the soft penalties [k]."""
        best = search_scored(self.scored, self.constraints, k, self.width, mesh=mesh)
        warn_unmet(best.hard[:, 0])
        model, features, _ = self.scored
        ends = np.cumsum(features.lengths)
        # Z is that of the model without constraints: penalties are taken off log p(y | x).
        totals = each_chain(model, features, _log_partition, mesh)
        return [
            (best.labels[end - n : end], row - (total if n else 0))
            for row, total, end, n in zip(best.scores, totals, ends, features.lengths)
        ]


def constrain_sentences(
    scored: ScoredSentences, classes: Sequence[str], constraints: Any, width: int | None
) -> ConstrainedSentences | None:
    """The sentences under constraints of any form; None where no constraint costs anything."""
    bound = bound_to(classes, constraints)
    return ConstrainedSentences(scored, bound, width) if bound.costly else None


def search_scored(
    scored: ScoredSentences,
    constraints: Constraints,
    k: int,
    width: int | None = None,
    x: tuple[Any, ...] | None = None,
    mesh: Mesh | None = None,
) -> CorpusLabellings:
    """The k best labellings of each sentence by the model's scores less the penalties.

    A labelling that violates hard constraints more often than the best one is left out: where
    fewer than k remain, scores are −inf. `x` is from `Constraints.observe_all`, if it is there.
    """
    model, features, sentences = scored
    if x is None:  # what costs nothing need not be observed
        constraints = constraints.only(constraints.costly)
        x = constraints.observe_all(sentences)
    lengths = features.lengths
    if not lengths.sum():
        shape = (len(lengths), k)
        scores = np.zeros(shape, np.asarray(model.transitions).dtype)
        scores[:, 1:] = -np.inf  # an empty sentence has one labelling
        return CorpusLabellings(np.zeros((0, k), np.int32), scores, np.zeros(shape, int), True)
    nodes = _flat_nodes(model, features)
    if model.edge_weights is None or features.edge_ids is None:
        edges = model.transitions
        best = search_corpus(nodes, edges, lengths, constraints, x, k, width, mesh=mesh)
    else:
        # Every token has edge scores of its own, s² numbers: only some sentences' fit at a time.
        parts = []
        for group in _groups(lengths, MOST_NUMBERS // model.num_labels**2):
            tokens = slice(int(lengths[: group.start].sum()), int(lengths[: group.stop].sum()))
            edges = _flat_edges(model, features.edge_ids[tokens])
            own = jax.tree.map(lambda array, tokens=tokens: array[tokens], x)
            scored_group = (nodes[tokens], edges, lengths[group])
            parts.append(search_corpus(*scored_group, constraints, own, k, width, mesh=mesh))
        labels, scores, hard = (np.concatenate(arrays) for arrays in list(zip(*parts))[:3])
        best = CorpusLabellings(labels, scores, hard, all(part.exact for part in parts))
    # Hard violations count before scores, as if each cost infinitely much; a sentence without a
    # token has nothing to violate.
    worse = best.hard > best.hard[:, :1]
    scores = np.where(worse, -np.inf, best.scores).astype(best.scores.dtype)
    return best._replace(scores=scores, hard=np.where(lengths[:, None] > 0, best.hard, 0))


def _groups(lengths: np.ndarray, most: int) -> list[slice]:
    """Neighbouring sentences, about `most` tokens together and at least one sentence."""
    number = (np.cumsum(lengths) - lengths) // max(1, most)
    # A group ends where the number of tokens before a sentence passes a multiple of `most`.
    bounds = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(lengths)]
    return [slice(first, end) for first, end in pairwise(bounds)]


def _flat_nodes(model: CRF, features: TokenFeatures) -> np.ndarray:
    """Scores [N, s] of all tokens' labels, those of starting and stopping included."""
    layout = standard_layout(features.lengths)
    shards = make_shards(layout, features, model.num_attributes)
    ends = (model.start, model.stop)
    return layout.collect(
        [np.asarray(node_scores(model.table, *ends, shard, model.num_labels)) for shard in shards]
    )


def _flat_edges(model: CRF, edge_ids: np.ndarray) -> np.ndarray:
    """Scores [N, s, s] of the pairs of labels into each token."""
    assert model.edge_weights is not None
    weights = np.asarray(model.edge_weights)
    table = np.concatenate([weights, np.zeros((1, *weights.shape[1:]), weights.dtype)])
    absent = (edge_ids < 0) | (edge_ids >= len(weights))
    rows = np.where(absent, len(weights), edge_ids)  # the last row of the table is 0
    scores = np.repeat(np.asarray(model.transitions)[None], len(rows), axis=0)
    for column in rows.T:
        scores += table[column]
    return scores


def _log_partition(chain: Chain) -> Any:
    """log Z; 0 where nothing is legal, so that a difference with it is −inf rather than NaN."""
    log_z = log_partition(chain)
    return jnp.where(jnp.isneginf(log_z), 0, log_z)


def warn_unmet(hard: np.ndarray, what: str = "X") -> None:
    """Say which best labellings violate hard constraints, from their violations [B]."""
    unmet = np.flatnonzero(hard)
    if len(unmet):
        warnings.warn(
            f"{what}[{unmet[0]}]: no labelling that satisfies all hard constraints was found for "
            f"{len(unmet)} of {len(hard)} sentences, this the first; they get the fewest "
            "violations",
            ConstraintWarning,
            stacklevel=4,  # the caller of `predict`
        )
