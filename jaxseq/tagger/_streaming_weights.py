"""Which weights are learnt from shards on disk, of which one at a time is looked at."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from jaxseq.learn._corpus import EncodedLabels
from jaxseq.learn._parameters import Legal, Spread
from jaxseq.learn._streamed_corpus import StreamedCorpus
from jaxseq.models._linear import padded_labels
from jaxseq.tagger._labels import check_paths_legal
from jaxseq.tagger._plan import Plan
from jaxseq.tagger._problem import DENSE_FROM, Problem, make_spread
from jaxseq.tagger._together import Together
from jaxseq.text import TokenFeatures


def spread_of_shards(
    corpus: StreamedCorpus, plan: Plan, transitions: bool, legal: Legal | None, together: Together
) -> Spread:
    """Which weights are learnt, as `make_spread` would say of the whole.

    Args:
        corpus: the shards; each is looked at by one of the processes that read it.
        plan: how to search. transitions: whether they are learnt at all.
        legal: transitions that may be used; ValueError for labels that use others.
        together: the processes, which must call this together.
    """
    index, s = corpus.index, len(corpus.classes)
    by_pairs = plan.weights in ("observed", "mixed")
    rule = "observed" if by_pairs else plan.weights

    def learnt_from(features: TokenFeatures, labels: EncodedLabels) -> Spread:
        problem = Problem(
            features, labels, corpus.classes, index.attributes, index.edge_attributes,
            transitions, legal, None,
        )  # fmt: skip
        return make_spread(problem, rule)

    spread = learnt_from(*_no_sentence())
    places, counts = np.zeros(0, np.int64), np.zeros(index.attributes, np.int64)
    learnt = np.zeros((s, s), bool)
    for number in _looked_at(corpus, together):
        features, labels = corpus.part(number)
        check_paths_legal(labels, features.lengths, legal, corpus.classes)
        if by_pairs:
            found = learnt_from(features, labels)
            places = np.union1d(places, np.asarray(found.places))
            ids = np.asarray(features.ids)
            counts += np.bincount(ids[ids >= 0], minlength=index.attributes)
            learnt |= np.asarray(found.transitions)
    if not by_pairs:
        return spread
    places, learnt = together.places(places), together.peers.any(learnt)
    if plan.weights == "mixed":
        frequent = together.peers.sum(counts) >= DENSE_FROM
        rows = np.flatnonzero(frequent) * padded_labels(s)
        places = np.union1d(places, np.add.outer(rows, np.arange(s)).ravel())
        learnt = None if transitions else np.zeros((s, s), bool)
    return replace(
        spread,
        places=jnp.asarray(places, jnp.int32),
        transitions=None if learnt is None else jnp.asarray(learnt),
    )


def _no_sentence() -> tuple[TokenFeatures, EncodedLabels]:
    features = TokenFeatures(np.zeros((0, 1), np.int32), None, np.zeros(0, np.int64), None)
    return features, EncodedLabels(np.zeros(0, np.int32), None)


def _looked_at(corpus: StreamedCorpus, together: Together) -> list[int]:
    """The shards that it is this process's turn to look at."""
    readers = together.peers.exchange(corpus.own_shards)
    turns = {}
    for number in corpus.own_shards:
        among = [process for process, shards in enumerate(readers) if number in shards]
        turns[number] = among[number // corpus.streams % len(among)]
    return [number for number, process in turns.items() if process == together.peers.index]
