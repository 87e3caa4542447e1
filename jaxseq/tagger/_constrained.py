"""Predictions of a trained model under constraints."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxseq.chain import Chain, log_partition
from jaxseq.constraints import Constraints, CorpusLabellings, bind_constraints, search_corpus
from jaxseq.constraints._labels import Scheme
from jaxseq.learn._corpus import make_shards
from jaxseq.learn._objective import node_scores
from jaxseq.models._crf import CRF
from jaxseq.scale._mesh import check_mesh
from jaxseq.tagger._lattices import each_chain, standard_layout
from jaxseq.tagger._mesh_lattices import on_mesh, own_places
from jaxseq.text import TokenFeatures

MOST_NUMBERS = 1 << 24
"""Scores of pairs of labels held at a time, where each pair of tokens has its own."""


class ConstraintWarning(UserWarning):
    """Some sentences have no labelling that satisfies all hard constraints.

    They get one with the fewest violations.
    """


class Scored(NamedTuple):
    """Sentences with a model that scores their labellings, as the CRF that it is."""

    model: CRF
    features: TokenFeatures
    sentences: Sequence[Any]


def bound_to(
    classes: Sequence[str],
    constraints: Any,
    penalty: float | None = None,
    scheme: Scheme = "plain",
) -> Constraints:
    """Constraints in any form, for a model with these labels.

    Args:
        classes: the labels, in the model's order.
        constraints: rules with penalties; `Constraints` for as many labels; or anything with
            `rules` and a `scheme`, as of a file.
        penalty: of rules that have none. scheme: of rules that come without.

    Raises:
        ValueError: for a label that is none of the model's, or what is no rule.

    Example:
        >>> from jaxseq.constraints import Penalised, StartsWith
        >>> bound_to(["A", "B"], [Penalised(StartsWith(["A"]), 2.0)]).names
        ('StartsWith',)
    """
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


def costly(classes: Sequence[str], constraints: Any) -> Constraints | None:
    """Constraints in any form as those that cost something; None if there are none."""
    if constraints is None:
        return None
    found, _ = without_free(bound_to(classes, constraints))
    return found if len(found) else None


def without_free(constraints: Constraints) -> tuple[Constraints, tuple[int, ...]]:
    """The constraints that cost something, and their numbers: those of ρ = 0 change nothing."""
    kept = constraints.costly
    return constraints.only(kept), kept


def search_scored(
    scored: Scored,
    constraints: Constraints,
    k: int,
    width: int | None = None,
    x: tuple[Any, ...] | None = None,
    mesh: Mesh | None = None,
) -> CorpusLabellings:
    """The k best labellings of each sentence by the model's scores less the penalties.

    Labellings that violate hard constraints more often than the best one are none: where there are
    fewer than k others, scores are −inf.

    Args:
        scored: sentences and model. constraints: of `bound_to`; those of ρ = 0 are left out, so
            that the result is that without them to the bit.
        k: labellings wanted. width: of the beam; None for 50, or k if that is more.
        x: of `Constraints.observe_all`, where it is there already.
        mesh: devices to search on.
    """
    model, features = scored.model, scored.features
    wanted, kept = without_free(constraints)
    seen = wanted.observe_all(scored.sentences) if x is None else tuple(x[n] for n in kept)
    lengths = features.lengths
    if not lengths.sum():
        shape = (len(lengths), k)
        nothing = np.zeros(shape, np.asarray(model.transitions).dtype)
        nothing[:, 1:] = -np.inf
        return CorpusLabellings(np.zeros((0, k), np.int32), nothing, np.zeros(shape, int), True)
    nodes = flat_nodes(model, features, mesh)
    if model.edge_weights is None or features.edge_ids is None:
        found = search_corpus(nodes, model.transitions, lengths, wanted, seen, k, width, mesh=mesh)
        return _least_violation(found, lengths)
    found = []
    for group in _groups(lengths, MOST_NUMBERS // model.num_labels**2):
        tokens = slice(int(lengths[: group.start].sum()), int(lengths[: group.stop].sum()))
        edges = flat_edges(model, features.edge_ids[tokens])
        here = tuple(_rows(part, tokens) for part in seen)
        part = search_corpus(
            nodes[tokens], edges, lengths[group], wanted, here, k, width, mesh=mesh
        )
        found.append(part)
    labels, scores, hard = (np.concatenate(arrays) for arrays in list(zip(*found))[:3])
    together = CorpusLabellings(labels, scores, hard, all(part.exact for part in found))
    return _least_violation(together, lengths)


def _least_violation(found: CorpusLabellings, lengths: np.ndarray) -> CorpusLabellings:
    """Without labellings of more hard violations than the best: beside it their weight is 0. A
    sentence without a token has nothing to violate anything with."""
    worse = found.hard > found.hard[:, :1]
    scores = np.where(worse, -np.inf, found.scores).astype(found.scores.dtype)
    return found._replace(scores=scores, hard=np.where(lengths[:, None] > 0, found.hard, 0))


def _rows(observed: Any, tokens: slice) -> Any:
    return jax.tree.map(lambda array: array[tokens], observed)


def _groups(lengths: np.ndarray, most: int) -> list[slice]:
    """Neighbouring sentences, about `most` tokens together and at least one sentence."""
    number = (np.cumsum(lengths) - lengths) // max(1, most)
    bounds = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(lengths)]
    return [slice(first, end) for first, end in pairwise(bounds)]


def flat_nodes(model: CRF, features: TokenFeatures, mesh: Mesh | None = None) -> np.ndarray:
    """Scores [N, s] of all tokens' labels, those of starting and stopping included.

    On the devices of a mesh where these share the weights out among them.
    """
    if mesh is not None and check_mesh(mesh).devices.shape[1] > 1:
        layout = standard_layout(features.lengths, own_places(mesh))
        return on_mesh(model, features, layout, _scores_alone, mesh)
    layout = standard_layout(features.lengths)
    shards = make_shards(layout, features, model.num_attributes)
    ends = (model.start, model.stop)
    return layout.collect(
        [np.asarray(node_scores(model.table, *ends, shard, model.num_labels)) for shard in shards]
    )


def _scores_alone(nodes: Any, edges: Any, segments: Any, num: int) -> Any:
    """Of the rows of a shard, what is there already."""
    return nodes


def flat_edges(model: CRF, edge_ids: np.ndarray) -> np.ndarray:
    """Scores [N, s, s] of the pairs of labels into each token."""
    assert model.edge_weights is not None
    weights = np.asarray(model.edge_weights)
    table = np.concatenate([weights, np.zeros((1, *weights.shape[1:]), weights.dtype)])
    absent = (edge_ids < 0) | (edge_ids >= len(weights))
    rows = np.where(absent, len(weights), edge_ids)
    scores = np.repeat(np.asarray(model.transitions)[None], len(rows), axis=0)
    for column in rows.T:
        scores += table[column]
    return scores


def best_under(
    scored: Scored, constraints: Constraints, width: int | None, mesh: Mesh | None = None
) -> np.ndarray:
    """Labels [N] of the best labellings, −1 where there is none; warns of what cannot be met."""
    found = search_scored(scored, constraints, 1, width, mesh=mesh)
    warn_unmet(found.hard[:, 0])
    return found.labels[:, 0]


def k_best_under(
    scored: Scored,
    constraints: Constraints,
    k: int,
    width: int | None,
    mesh: Mesh | None = None,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For every sentence its best paths [n, k] and log P(y | x) less the soft penalties [k]."""
    found = search_scored(scored, constraints, k, width, mesh=mesh)
    warn_unmet(found.hard[:, 0])
    ends = np.cumsum(scored.features.lengths)
    totals = each_chain(scored.model, scored.features, _log_partition, mesh)
    return [
        (found.labels[end - n : end], row - (total if n else 0))
        for row, total, end, n in zip(found.scores, totals, ends, scored.features.lengths)
    ]


def _log_partition(chain: Chain) -> Any:
    found = log_partition(chain)
    return jnp.where(jnp.isneginf(found), 0, found)


def warn_unmet(hard: np.ndarray, what: str = "X") -> None:
    """Say which best labellings violate hard constraints, from their violations [B]."""
    unmet = np.flatnonzero(hard)
    if len(unmet):
        warnings.warn(
            f"{what}[{unmet[0]}]: no labelling that satisfies all hard constraints was found for "
            f"{len(unmet)} of {len(hard)} sentences, this the first; they get the fewest "
            "violations",
            ConstraintWarning,
            stacklevel=4,
        )
