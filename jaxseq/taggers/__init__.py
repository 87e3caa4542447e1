"""What all taggers share: labels, decoding, storage, and self-training."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from jaxseq._lazy import lazy_names as _lazy_names
from jaxseq.taggers._decoding import ConstraintWarning as ConstraintWarning
from jaxseq.taggers._decoding import Scored as Scored
from jaxseq.taggers._decoding import best_labels as best_labels
from jaxseq.taggers._decoding import best_under as best_under
from jaxseq.taggers._decoding import bound_to as bound_to
from jaxseq.taggers._decoding import costly as costly
from jaxseq.taggers._decoding import each_chain as each_chain
from jaxseq.taggers._decoding import k_best_paths as k_best_paths
from jaxseq.taggers._decoding import k_best_under as k_best_under
from jaxseq.taggers._decoding import node_marginals as node_marginals
from jaxseq.taggers._decoding import search_scored as search_scored
from jaxseq.taggers._decoding import split_by_sentence as split_by_sentence
from jaxseq.taggers._decoding import standard_layout as standard_layout
from jaxseq.taggers._decoding import token_score as token_score
from jaxseq.taggers._decoding import warn_unmet as warn_unmet
from jaxseq.taggers._labels import Label as Label
from jaxseq.taggers._labels import Notes as Notes
from jaxseq.taggers._labels import check_labels as check_labels
from jaxseq.taggers._labels import check_number as check_number
from jaxseq.taggers._labels import check_paths_legal as check_paths_legal
from jaxseq.taggers._labels import check_possible as check_possible
from jaxseq.taggers._labels import check_sentence_weights as check_sentence_weights
from jaxseq.taggers._labels import check_sentences as check_sentences
from jaxseq.taggers._labels import encode_labels as encode_labels
from jaxseq.taggers._labels import find_classes as find_classes
from jaxseq.taggers._labels import fresh as fresh
from jaxseq.taggers._labels import legal_by_scheme as legal_by_scheme
from jaxseq.taggers._labels import settings_of as settings_of
from jaxseq.taggers._labels import text_of as text_of

if _TYPE_CHECKING:
    from jaxseq.taggers._self_training import SelfTraining as SelfTraining
    from jaxseq.taggers._store import ARRAYS as ARRAYS
    from jaxseq.taggers._store import check_replaceable as check_replaceable
    from jaxseq.taggers._store import load as load
    from jaxseq.taggers._store import save as save
    from jaxseq.taggers._store import tagger_settings as tagger_settings

__all__ = [
    "ConstraintWarning",
    "SelfTraining",
    "load",
]
"""What users call; the other names are for the packages of jaxseq itself."""

_LATER = {
    "ARRAYS": "jaxseq.taggers._store",
    "SelfTraining": "jaxseq.taggers._self_training",
    "check_replaceable": "jaxseq.taggers._store",
    "load": "jaxseq.taggers._store",
    "save": "jaxseq.taggers._store",
    "tagger_settings": "jaxseq.taggers._store",
}
"""The estimators, loaded on first use: they stand above other packages that need the core."""

__getattr__, __dir__ = _lazy_names(__name__, _LATER)
