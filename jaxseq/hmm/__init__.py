"""Hidden Markov models: counts, EM, the Jacobian of EM, its homotopy path, and a tagger."""
# ruff: noqa: F401 - names beside __all__ are for the packages of jaxseq itself

from typing import TYPE_CHECKING as _TYPE_CHECKING

from jaxseq._lazy import lazy_names as _lazy_names
from jaxseq.hmm._corpus import WordCorpus, WordShard, WordVocabulary, word_corpus
from jaxseq.hmm._counts import (
    Tally,
    check_fits,
    count_sequences,
    expected_counts,
    known_counts,
    log_likelihoods,
    mean_counts,
    shard_batch,
    shard_tally,
    viterbi_counts,
)
from jaxseq.hmm._em import EMOperator, EMResult, Smoothing, em, estimate_hmm
from jaxseq.hmm._jacobian import linearise_counts, linearise_mean_counts
from jaxseq.hmm._model import EVENT_AXES, HMM, Multinomials
from jaxseq.hmm._native import find_kernels
from jaxseq.hmm._path import (
    HMM_SETTINGS,
    HMMPath,
    Linearisation,
    has_turned,
    hmm_path,
    homotopy_problem,
    label_entropy,
    smoothed_means,
)
from jaxseq.homotopy import linear_weights

if _TYPE_CHECKING:
    from jaxseq.hmm._search import (
        check_own_mesh,
        make_hmm_plan,
        read_hmm_data,
        read_words,
        search_hmm,
        word_numbers,
    )
    from jaxseq.hmm._tagger import HMMTagger, ImpossibleSentence, WeightSweep, sweep_weights

__all__ = [
    "HMM",
    "HMM_SETTINGS",
    "EMOperator",
    "EMResult",
    "HMMPath",
    "HMMTagger",
    "Multinomials",
    "Smoothing",
    "Tally",
    "WeightSweep",
    "WordCorpus",
    "WordShard",
    "WordVocabulary",
    "em",
    "estimate_hmm",
    "expected_counts",
    "has_turned",
    "hmm_path",
    "homotopy_problem",
    "known_counts",
    "label_entropy",
    "linear_weights",
    "linearise_mean_counts",
    "log_likelihoods",
    "mean_counts",
    "shard_batch",
    "shard_tally",
    "sweep_weights",
    "viterbi_counts",
    "word_corpus",
]

_LATER = {
    "jaxseq.hmm._search": (
        "check_own_mesh", "make_hmm_plan", "read_hmm_data", "read_words", "search_hmm",
        "word_numbers",
    ),
    "jaxseq.hmm._tagger": ("HMMTagger", "ImpossibleSentence", "WeightSweep", "sweep_weights"),
}  # fmt: skip
"""The estimators, loaded on first use: they stand above other packages that need the core."""

__getattr__, __dir__ = _lazy_names(
    __name__, {name: module for module, names in _LATER.items() for name in names}
)
