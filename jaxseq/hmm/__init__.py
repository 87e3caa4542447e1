"""Hidden Markov models: counts, EM, the Jacobian of EM, its homotopy path, and a tagger."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from jaxseq._lazy import lazy_names as _lazy_names
from jaxseq.hmm._corpus import WordCorpus as WordCorpus
from jaxseq.hmm._corpus import WordShard as WordShard
from jaxseq.hmm._corpus import WordVocabulary as WordVocabulary
from jaxseq.hmm._corpus import word_corpus as word_corpus
from jaxseq.hmm._counts import Tally as Tally
from jaxseq.hmm._counts import check_fits as check_fits
from jaxseq.hmm._counts import count_sequences as count_sequences
from jaxseq.hmm._counts import expected_counts as expected_counts
from jaxseq.hmm._counts import known_counts as known_counts
from jaxseq.hmm._counts import log_likelihoods as log_likelihoods
from jaxseq.hmm._counts import mean_counts as mean_counts
from jaxseq.hmm._counts import shard_batch as shard_batch
from jaxseq.hmm._counts import shard_tally as shard_tally
from jaxseq.hmm._counts import viterbi_counts as viterbi_counts
from jaxseq.hmm._em import EMOperator as EMOperator
from jaxseq.hmm._em import EMResult as EMResult
from jaxseq.hmm._em import Smoothing as Smoothing
from jaxseq.hmm._em import em as em
from jaxseq.hmm._em import estimate_hmm as estimate_hmm
from jaxseq.hmm._em import linear_weights as linear_weights
from jaxseq.hmm._jacobian import linearise_counts as linearise_counts
from jaxseq.hmm._jacobian import linearise_mean_counts as linearise_mean_counts
from jaxseq.hmm._model import EVENT_AXES as EVENT_AXES
from jaxseq.hmm._model import HMM as HMM
from jaxseq.hmm._model import Multinomials as Multinomials
from jaxseq.hmm._native import find_kernels as find_kernels
from jaxseq.hmm._path import HMM_SETTINGS as HMM_SETTINGS
from jaxseq.hmm._path import HMMPath as HMMPath
from jaxseq.hmm._path import Linearisation as Linearisation
from jaxseq.hmm._path import has_turned as has_turned
from jaxseq.hmm._path import hmm_path as hmm_path
from jaxseq.hmm._path import homotopy_problem as homotopy_problem
from jaxseq.hmm._path import label_entropy as label_entropy
from jaxseq.hmm._path import smoothed_means as smoothed_means

if _TYPE_CHECKING:
    from jaxseq.hmm._search import HMMPlan as HMMPlan
    from jaxseq.hmm._search import check_hmm_settings as check_hmm_settings
    from jaxseq.hmm._search import check_own_mesh as check_own_mesh
    from jaxseq.hmm._search import make_hmm_plan as make_hmm_plan
    from jaxseq.hmm._search import read_hmm_data as read_hmm_data
    from jaxseq.hmm._search import read_words as read_words
    from jaxseq.hmm._search import search_hmm as search_hmm
    from jaxseq.hmm._search import word_numbers as word_numbers
    from jaxseq.hmm._tagger import HMMTagger as HMMTagger
    from jaxseq.hmm._tagger import ImpossibleSentence as ImpossibleSentence
    from jaxseq.hmm._tagger import WeightSweep as WeightSweep
    from jaxseq.hmm._tagger import sweep_weights as sweep_weights

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
"""What users call; the other names are for the packages of jaxseq itself."""

_LATER = {
    "HMMPlan": "jaxseq.hmm._search",
    "HMMTagger": "jaxseq.hmm._tagger",
    "ImpossibleSentence": "jaxseq.hmm._tagger",
    "WeightSweep": "jaxseq.hmm._tagger",
    "check_hmm_settings": "jaxseq.hmm._search",
    "check_own_mesh": "jaxseq.hmm._search",
    "make_hmm_plan": "jaxseq.hmm._search",
    "word_numbers": "jaxseq.hmm._search",
    "read_hmm_data": "jaxseq.hmm._search",
    "read_words": "jaxseq.hmm._search",
    "search_hmm": "jaxseq.hmm._search",
    "sweep_weights": "jaxseq.hmm._tagger",
}
"""The estimators, loaded on first use: they stand above other packages that need the core."""

__getattr__, __dir__ = _lazy_names(__name__, _LATER)
