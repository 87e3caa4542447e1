"""Constraints on labellings: automata over label prefixes, searches, and CoDL."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from jaxseq._lazy import lazy_names as _lazy_names
from jaxseq.constraints import _constraint, _corpus, _penalties, _rules, _search
from jaxseq.constraints._constraint import *  # noqa: F403 - names stand once, in their modules
from jaxseq.constraints._constraint import Scheme as Scheme
from jaxseq.constraints._corpus import *  # noqa: F403
from jaxseq.constraints._penalties import *  # noqa: F403
from jaxseq.constraints._rules import *  # noqa: F403
from jaxseq.constraints._search import *  # noqa: F403

if _TYPE_CHECKING:
    from jaxseq.constraints._codl import CoDL as CoDL
    from jaxseq.constraints._decoding import ConstraintWarning as ConstraintWarning
    from jaxseq.constraints._decoding import constrain_sentences as constrain_sentences
    from jaxseq.constraints._learning import CRFLearner as CRFLearner
    from jaxseq.constraints._learning import HMMLearner as HMMLearner
    from jaxseq.constraints._learning import LabellingWeights as LabellingWeights
    from jaxseq.constraints._learning import labelling_counts as labelling_counts
    from jaxseq.constraints._learning import labelling_weights as labelling_weights
    from jaxseq.constraints._learning import mix_models as mix_models

__all__ = [
    "CoDL",
    "ConstraintWarning",
    "LabellingWeights",
    "labelling_counts",
    "labelling_weights",
    "mix_models",
]
__all__ += _constraint.__all__
__all__ += _corpus.__all__
__all__ += _penalties.__all__
__all__ += _rules.__all__
__all__ += _search.__all__
"""What users call; the other names are for the packages of jaxseq itself."""

# The estimators, loaded on first use: they stand above other packages that need the core.
_LEARNING = ("LabellingWeights", "labelling_counts", "labelling_weights", "mix_models")
_LATER = {
    "CoDL": "jaxseq.constraints._codl",
    "ConstraintWarning": "jaxseq.constraints._decoding",
    "constrain_sentences": "jaxseq.constraints._decoding",
    **dict.fromkeys(("CRFLearner", "HMMLearner", *_LEARNING), "jaxseq.constraints._learning"),
}

__getattr__, __dir__ = _lazy_names(__name__, _LATER)
