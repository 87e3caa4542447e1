"""Learning: objectives on corpora, and searches for the parameters that are best by them."""

from jaxseq.learn import active as active
from jaxseq.learn._codl import LabellingWeights as LabellingWeights
from jaxseq.learn._codl import labelling_counts as labelling_counts
from jaxseq.learn._codl import labelling_weights as labelling_weights
from jaxseq.learn._codl import mix_models as mix_models
from jaxseq.learn._corpus import EncodedLabels as EncodedLabels
from jaxseq.learn._corpus import Layout as Layout
from jaxseq.learn._corpus import Shard as Shard
from jaxseq.learn._corpus import lay_out as lay_out
from jaxseq.learn._corpus import lay_out_by_length as lay_out_by_length
from jaxseq.learn._corpus import make_shards as make_shards
from jaxseq.learn._counts import expected_counts as expected_counts
from jaxseq.learn._counts import known_counts as known_counts
from jaxseq.learn._counts import log_likelihoods as log_likelihoods
from jaxseq.learn._counts import mean_counts as mean_counts
from jaxseq.learn._counts import viterbi_counts as viterbi_counts
from jaxseq.learn._em import EMResult as EMResult
from jaxseq.learn._em import em as em
from jaxseq.learn._em import estimate_hmm as estimate_hmm
from jaxseq.learn._em_corpus import WordCorpus as WordCorpus
from jaxseq.learn._em_corpus import WordShard as WordShard
from jaxseq.learn._em_corpus import word_corpus as word_corpus
from jaxseq.learn._em_covariance import published_jacobian as published_jacobian
from jaxseq.learn._em_jacobian import linearise_mean_counts as linearise_mean_counts
from jaxseq.learn._em_lattice import Tally as Tally
from jaxseq.learn._em_lattice import shard_batch as shard_batch
from jaxseq.learn._em_lattice import shard_tally as shard_tally
from jaxseq.learn._em_operator import EMOperator as EMOperator
from jaxseq.learn._em_operator import Smoothing as Smoothing
from jaxseq.learn._em_operator import linear_weights as linear_weights
from jaxseq.learn._em_vocabulary import WordVocabulary as WordVocabulary
from jaxseq.learn._entropy_derivations import EntropyGradient as EntropyGradient
from jaxseq.learn._entropy_regularisation import (
    entropy_regularised_gradient as entropy_regularised_gradient,
)
from jaxseq.learn._entropy_regularisation import (
    entropy_regularised_loss as entropy_regularised_loss,
)
from jaxseq.learn._hmm_path import HMM_SETTINGS as HMM_SETTINGS
from jaxseq.learn._hmm_path import HMMPath as HMMPath
from jaxseq.learn._hmm_path import has_turned as has_turned
from jaxseq.learn._hmm_path import hmm_path as hmm_path
from jaxseq.learn._hmm_path import label_entropy as label_entropy
from jaxseq.learn._hmm_problem import homotopy_problem as homotopy_problem
from jaxseq.learn._lbfgs import Outcome as Outcome
from jaxseq.learn._lbfgs import Settings as Settings
from jaxseq.learn._lbfgs import State as State
from jaxseq.learn._lbfgs import minimise as minimise
from jaxseq.learn._objective import Objective as Objective
from jaxseq.learn._parameters import Legal as Legal
from jaxseq.learn._parameters import Parameters as Parameters
from jaxseq.learn._parameters import Spread as Spread
from jaxseq.learn._streamed_corpus import StreamedCorpus as StreamedCorpus
