"""Active learning: strategies that choose queries, the learner, its journal, simulations."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from jaxseq._lazy import lazy_names as _lazy_names
from jaxseq.active import _strategies
from jaxseq.active._query import STRATEGIES as STRATEGIES
from jaxseq.active._query import Answer as Answer
from jaxseq.active._query import Look as Look
from jaxseq.active._query import Proposal as Proposal
from jaxseq.active._query import Query as Query
from jaxseq.active._query import Strategy as Strategy
from jaxseq.active._query import Wanted as Wanted
from jaxseq.active._query import informative as informative
from jaxseq.active._query import propose as propose
from jaxseq.active._query import register as register
from jaxseq.active._query import setting as setting
from jaxseq.active._stop import ActiveStatus as ActiveStatus
from jaxseq.active._stop import agreement as agreement
from jaxseq.active._stop import first_sentences as first_sentences
from jaxseq.active._stop import is_stable as is_stable
from jaxseq.active._stop import should_stop as should_stop
from jaxseq.active._strategies import *  # noqa: F403 - one more strategy is no line here

if _TYPE_CHECKING:
    from jaxseq.active._journal import holds_run as holds_run
    from jaxseq.active._learner import ActiveLearner as ActiveLearner
    from jaxseq.active._run import Run as Run

__all__ = [
    "STRATEGIES",
    "ActiveLearner",
    "ActiveStatus",
    "Answer",
    "Look",
    "Proposal",
    "Query",
    "Strategy",
    "Wanted",
    "agreement",
    "first_sentences",
    "informative",
    "is_stable",
    "propose",
    "register",
    "setting",
    "should_stop",
]
__all__ += _strategies.__all__
"""What users call; the other names are for the packages of jaxseq itself."""

# Loaded on first use: the command line needs the strategies to say which options there are, and
# must not wait for the taggers to be loaded before it does.
_LATER = {
    "ActiveLearner": "jaxseq.active._learner",
    "Run": "jaxseq.active._run",
    "holds_run": "jaxseq.active._journal",
}

__getattr__, __dir__ = _lazy_names(__name__, _LATER)
