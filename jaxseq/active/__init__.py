"""Active learning: strategies that choose queries, the learner, its journal, simulations."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from jaxseq._lazy import lazy_names as _lazy_names
from jaxseq.active import _query, _stop, _strategies
from jaxseq.active._query import *  # noqa: F403 - names stand once, in their modules
from jaxseq.active._stop import *  # noqa: F403
from jaxseq.active._strategies import *  # noqa: F403

if _TYPE_CHECKING:
    from jaxseq.active._learner import ActiveLearner as ActiveLearner
    from jaxseq.active._run import Run as Run
    from jaxseq.active._run import holds_run as holds_run

__all__ = ["ActiveLearner"]
__all__ += _query.__all__
__all__ += _stop.__all__
__all__ += _strategies.__all__
"""What users call; the other names are for the packages of jaxseq itself."""

# Loaded on first use: the command line needs the strategies to say which options there are, and
# must not wait for the taggers to be loaded before it does.
_LATER = {
    "ActiveLearner": "jaxseq.active._learner",
    "Run": "jaxseq.active._run",
    "holds_run": "jaxseq.active._run",
}

__getattr__, __dir__ = _lazy_names(__name__, _LATER)
