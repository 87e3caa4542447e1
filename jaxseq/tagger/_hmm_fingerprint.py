"""Which search for a hidden Markov model a checkpoint is of."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from jaxseq.learn._em_corpus import WordCorpus
from jaxseq.learn._mesh_counts import peers_of
from jaxseq.models._hmm import HMM
from jaxseq.tagger._hmm_data import HMMData
from jaxseq.tagger._hmm_lattices import features_of
from jaxseq.tagger._hmm_plan import HMMPlan
from jaxseq.tagger._shared_fingerprint import MODULUS, sum_of_sentences


def hmm_fingerprint(data: HMMData, plan: HMMPlan, start: HMM | None) -> str:
    """A hash of all processes' data, the settings, and the starting point where one is given.

    Neither the number of processes or cores nor the order of the sentences is in it, but for that
    of the words: a search that was stopped on some goes on, up to rounding, on others. All
    processes call this together.
    """
    parts: list[Any] = [plan.smoothing, plan.hard, plan.weight, plan.frozen, plan.tolerance]
    parts += [plan.dtype, data.classes, data.vocabulary.words]
    corpora = [each for each in (data.labelled, data.unlabelled) if each is not None]
    sums = [f"{_sum_of_sequences(corpus, len(data.classes)):x}" for corpus in corpora]
    found = peers_of(plan.mesh).exchange(sums)
    parts += [sum(int(value, 16) for value in values) % MODULUS for values in zip(*found)]
    digest = hashlib.sha256(repr(parts).encode())
    for family in () if start is None else start.probabilities:
        digest.update(np.asarray(family).tobytes())
    return f"shared {digest.hexdigest()}"


def _sum_of_sequences(corpus: WordCorpus, labels: int) -> int:
    """The sum of a hash of each sequence with its possible labels."""
    possible = corpus.allowed
    if possible is None:  # all are known, or nothing is
        known = corpus.labels[:, None]
        possible = (known == np.arange(labels)) | (known < 0)
    ones = np.ones(corpus.num_sequences)
    features = features_of(corpus.words, corpus.lengths)
    return sum_of_sentences(features, np.packbits(possible, axis=1), ones)
