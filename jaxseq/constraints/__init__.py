"""Constraints on labellings: automata over label prefixes, searches, and CoDL."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from jaxseq._lazy import lazy_names as _lazy_names
from jaxseq.constraints._constraint import PUNCTUATION as PUNCTUATION
from jaxseq.constraints._constraint import Constraint as Constraint
from jaxseq.constraints._constraint import Constraints as Constraints
from jaxseq.constraints._constraint import Labels as Labels
from jaxseq.constraints._constraint import Penalised as Penalised
from jaxseq.constraints._constraint import Rule as Rule
from jaxseq.constraints._constraint import Scheme as Scheme
from jaxseq.constraints._constraint import Words as Words
from jaxseq.constraints._constraint import bind_constraints as bind_constraints
from jaxseq.constraints._corpus import CorpusLabellings as CorpusLabellings
from jaxseq.constraints._corpus import search_corpus as search_corpus
from jaxseq.constraints._file import ConstraintFile as ConstraintFile
from jaxseq.constraints._file import read_constraints as read_constraints
from jaxseq.constraints._penalties import corpus_violations as corpus_violations
from jaxseq.constraints._penalties import count_violations as count_violations
from jaxseq.constraints._penalties import estimate_penalties as estimate_penalties
from jaxseq.constraints._penalties import penalised_score as penalised_score
from jaxseq.constraints._penalties import violations as violations
from jaxseq.constraints._rules import AtMostOnce as AtMostOnce
from jaxseq.constraints._rules import Count as Count
from jaxseq.constraints._rules import EndsWith as EndsWith
from jaxseq.constraints._rules import FieldLength as FieldLength
from jaxseq.constraints._rules import MustAppear as MustAppear
from jaxseq.constraints._rules import OnlyOn as OnlyOn
from jaxseq.constraints._rules import Order as Order
from jaxseq.constraints._rules import StartsWith as StartsWith
from jaxseq.constraints._rules import TransitionsOnlyOn as TransitionsOnlyOn
from jaxseq.constraints._rules import WordsImply as WordsImply
from jaxseq.constraints._search import Folded as Folded
from jaxseq.constraints._search import Labellings as Labellings
from jaxseq.constraints._search import beam_search as beam_search
from jaxseq.constraints._search import exact_search as exact_search
from jaxseq.constraints._search import fold_local as fold_local
from jaxseq.constraints._search import joint_states as joint_states

if _TYPE_CHECKING:
    from jaxseq.constraints._codl import CoDL as CoDL
    from jaxseq.constraints._decoding import ConstraintWarning as ConstraintWarning
    from jaxseq.constraints._decoding import constrain_sentences as constrain_sentences
    from jaxseq.constraints._learners import CRFLearner as CRFLearner
    from jaxseq.constraints._learners import HMMLearner as HMMLearner
    from jaxseq.constraints._mixtures import LabellingWeights as LabellingWeights
    from jaxseq.constraints._mixtures import labelling_counts as labelling_counts
    from jaxseq.constraints._mixtures import labelling_weights as labelling_weights
    from jaxseq.constraints._mixtures import mix_models as mix_models

__all__ = [
    "PUNCTUATION",
    "AtMostOnce",
    "CoDL",
    "Constraint",
    "ConstraintFile",
    "ConstraintWarning",
    "Constraints",
    "CorpusLabellings",
    "Count",
    "EndsWith",
    "FieldLength",
    "Folded",
    "LabellingWeights",
    "Labellings",
    "Labels",
    "MustAppear",
    "OnlyOn",
    "Order",
    "Penalised",
    "Rule",
    "StartsWith",
    "TransitionsOnlyOn",
    "Words",
    "WordsImply",
    "beam_search",
    "bind_constraints",
    "corpus_violations",
    "count_violations",
    "estimate_penalties",
    "exact_search",
    "fold_local",
    "joint_states",
    "labelling_counts",
    "labelling_weights",
    "mix_models",
    "penalised_score",
    "read_constraints",
    "search_corpus",
    "violations",
]
"""What users call; the other names are for the packages of jaxseq itself."""

_LATER = {
    "CRFLearner": "jaxseq.constraints._learners",
    "CoDL": "jaxseq.constraints._codl",
    "ConstraintWarning": "jaxseq.constraints._decoding",
    "HMMLearner": "jaxseq.constraints._learners",
    "LabellingWeights": "jaxseq.constraints._mixtures",
    "constrain_sentences": "jaxseq.constraints._decoding",
    "labelling_counts": "jaxseq.constraints._mixtures",
    "labelling_weights": "jaxseq.constraints._mixtures",
    "mix_models": "jaxseq.constraints._mixtures",
}
"""The estimators, loaded on first use: they stand above other packages that need the core."""

__getattr__, __dir__ = _lazy_names(__name__, _LATER)
