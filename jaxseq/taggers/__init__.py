"""What all taggers share: labels, prediction, storage, and self-training."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from jaxseq._io import plain_text as _plain_text
from jaxseq._lazy import lazy_names as _lazy_names
from jaxseq.taggers._labels import MAX_CORES as MAX_CORES
from jaxseq.taggers._labels import UNKNOWN as UNKNOWN
from jaxseq.taggers._labels import EncodedLabels as EncodedLabels
from jaxseq.taggers._labels import Label as Label
from jaxseq.taggers._labels import Legal as Legal
from jaxseq.taggers._labels import check_classes as check_classes
from jaxseq.taggers._labels import check_labels as check_labels
from jaxseq.taggers._labels import check_number as check_number
from jaxseq.taggers._labels import check_paths_legal as check_paths_legal
from jaxseq.taggers._labels import check_sentence_weights as check_sentence_weights
from jaxseq.taggers._labels import check_sentences as check_sentences
from jaxseq.taggers._labels import check_unlabelled as check_unlabelled
from jaxseq.taggers._labels import encode_labels as encode_labels
from jaxseq.taggers._labels import find_classes as find_classes
from jaxseq.taggers._labels import legal_by_scheme as legal_by_scheme
from jaxseq.taggers._labels import warn_of_drift as warn_of_drift

if _TYPE_CHECKING:
    from jaxseq.taggers._base import Decodable as Decodable
    from jaxseq.taggers._base import KeepsSearch as KeepsSearch
    from jaxseq.taggers._base import SequenceTagger as SequenceTagger
    from jaxseq.taggers._base import split_by_sentence as split_by_sentence
    from jaxseq.taggers._base import token_score as token_score
    from jaxseq.taggers._self_training import SelfTraining as SelfTraining
    from jaxseq.taggers._self_training import fresh as fresh
    from jaxseq.taggers._self_training import settings_of as settings_of
    from jaxseq.taggers._store import ARRAYS as ARRAYS
    from jaxseq.taggers._store import check_replaceable as check_replaceable
    from jaxseq.taggers._store import check_stored_numbers as check_stored_numbers
    from jaxseq.taggers._store import is_finite_number as is_finite_number
    from jaxseq.taggers._store import load as load
    from jaxseq.taggers._store import register_kind as register_kind

text_of = _plain_text

__all__ = [
    "SelfTraining",
    "SequenceTagger",
    "load",
    "register_kind",
]
"""What users call; the other names are for the packages of jaxseq itself."""

_LATER = {
    "ARRAYS": "jaxseq.taggers._store",
    "Decodable": "jaxseq.taggers._base",
    "KeepsSearch": "jaxseq.taggers._base",
    "SelfTraining": "jaxseq.taggers._self_training",
    "SequenceTagger": "jaxseq.taggers._base",
    "check_replaceable": "jaxseq.taggers._store",
    "check_stored_numbers": "jaxseq.taggers._store",
    "fresh": "jaxseq.taggers._self_training",
    "is_finite_number": "jaxseq.taggers._store",
    "load": "jaxseq.taggers._store",
    "register_kind": "jaxseq.taggers._store",
    "settings_of": "jaxseq.taggers._self_training",
    "split_by_sentence": "jaxseq.taggers._base",
    "token_score": "jaxseq.taggers._base",
}
"""Loaded on first use: estimators need scikit-learn, which takes a while to import."""

__getattr__, __dir__ = _lazy_names(__name__, _LATER)
