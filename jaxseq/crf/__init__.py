"""Linear-chain conditional random fields: model, objective, search and tagger."""

from jaxseq.crf._crfsuite import import_crfsuite as import_crfsuite
from jaxseq.crf._cross_validation import FOLDS as FOLDS
from jaxseq.crf._cross_validation import L2_VALUES as L2_VALUES
from jaxseq.crf._cross_validation import CrossValidation as CrossValidation
from jaxseq.crf._cross_validation import choose_entropy_weight as choose_entropy_weight
from jaxseq.crf._cross_validation import choose_l2 as choose_l2
from jaxseq.crf._cross_validation import cross_validate as cross_validate
from jaxseq.crf._cross_validation import usual_scoring as usual_scoring
from jaxseq.crf._decoding import ScoredSentences as ScoredSentences
from jaxseq.crf._decoding import best_labels as best_labels
from jaxseq.crf._decoding import each_chain as each_chain
from jaxseq.crf._decoding import k_best_paths as k_best_paths
from jaxseq.crf._decoding import node_marginals as node_marginals
from jaxseq.crf._decoding import on_mesh as on_mesh
from jaxseq.crf._decoding import own_places as own_places
from jaxseq.crf._decoding import standard_layout as standard_layout
from jaxseq.crf._entropy_regularisation import (
    entropy_regularised_gradient as entropy_regularised_gradient,
)
from jaxseq.crf._entropy_regularisation import entropy_regularised_loss as entropy_regularised_loss
from jaxseq.crf._expectation_gradient import LabelCounts as LabelCounts
from jaxseq.crf._expectation_gradient import SharePenalty as SharePenalty
from jaxseq.crf._expectation_gradient import expectation_gradient as expectation_gradient
from jaxseq.crf._expectation_gradient import expected_counts as expected_counts
from jaxseq.crf._expectation_gradient import share_penalty as share_penalty
from jaxseq.crf._lbfgs import Settings as Settings
from jaxseq.crf._lbfgs import State as State
from jaxseq.crf._lbfgs import begin_search as begin_search
from jaxseq.crf._lbfgs import minimise as minimise
from jaxseq.crf._model import CRF as CRF
from jaxseq.crf._model import padded_labels as padded_labels
from jaxseq.crf._objective import ExpectationTerm as ExpectationTerm
from jaxseq.crf._objective import Objective as Objective
from jaxseq.crf._objective import mesh_scores as mesh_scores
from jaxseq.crf._objective import node_scores as node_scores
from jaxseq.crf._objective import on_devices as on_devices
from jaxseq.crf._objective import own as own
from jaxseq.crf._parameters import Parameters as Parameters
from jaxseq.crf._parameters import Spread as Spread
from jaxseq.crf._parameters import carry_over as carry_over
from jaxseq.crf._parameters import frequent_places as frequent_places
from jaxseq.crf._parameters import make_spread as make_spread
from jaxseq.crf._parameters import mask_forbidden as mask_forbidden
from jaxseq.crf._parameters import observed_places as observed_places
from jaxseq.crf._parameters import spread_from_places as spread_from_places
from jaxseq.crf._problem import Problem as Problem
from jaxseq.crf._problem import encode_problem as encode_problem
from jaxseq.crf._problem import read_both as read_both
from jaxseq.crf._problem import share_corpus as share_corpus
from jaxseq.crf._projection import Projection as Projection
from jaxseq.crf._score_gradient import EntropyGradient as EntropyGradient
from jaxseq.crf._search import Algorithm as Algorithm
from jaxseq.crf._search import DescentStage as DescentStage
from jaxseq.crf._search import Fitted as Fitted
from jaxseq.crf._search import LBFGSStage as LBFGSStage
from jaxseq.crf._search import StochasticSettings as StochasticSettings
from jaxseq.crf._search import StochasticState as StochasticState
from jaxseq.crf._search import begin_descent as begin_descent
from jaxseq.crf._search import descend as descend
from jaxseq.crf._search import run_stages as run_stages
from jaxseq.crf._search import search as search
from jaxseq.crf._settings import EntropyTerm as EntropyTerm
from jaxseq.crf._settings import Plan as Plan
from jaxseq.crf._shards import Layout as Layout
from jaxseq.crf._shards import Shard as Shard
from jaxseq.crf._shards import ShardMaker as ShardMaker
from jaxseq.crf._shards import join_shards as join_shards
from jaxseq.crf._shards import lay_out as lay_out
from jaxseq.crf._shards import lay_out_by_length as lay_out_by_length
from jaxseq.crf._shards import make_shards as make_shards
from jaxseq.crf._shards import without_gaps as without_gaps
from jaxseq.crf._tagger import CRFTagger as CRFTagger
from jaxseq.taggers import UNKNOWN as UNKNOWN
from jaxseq.taggers import EncodedLabels as EncodedLabels
from jaxseq.taggers import Legal as Legal

__all__ = [
    "CRF",
    "CRFTagger",
    "CrossValidation",
    "EncodedLabels",
    "EntropyGradient",
    "Layout",
    "Legal",
    "Objective",
    "Parameters",
    "Settings",
    "Shard",
    "Spread",
    "State",
    "choose_entropy_weight",
    "choose_l2",
    "entropy_regularised_gradient",
    "entropy_regularised_loss",
    "import_crfsuite",
    "lay_out",
    "lay_out_by_length",
    "make_shards",
    "minimise",
]
"""What users call; the other names are for the packages of jaxseq itself."""
