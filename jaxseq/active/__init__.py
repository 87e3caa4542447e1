"""Active learning: strategies that choose queries, the learner, its journal, simulations."""

from jaxseq.active._journal import holds_run as holds_run
from jaxseq.active._learner import ActiveLearner as ActiveLearner
from jaxseq.active._stop import agreement as agreement
from jaxseq.active._stop import first_sentences as first_sentences
from jaxseq.active._stop import is_stable as is_stable
from jaxseq.active._stop import should_stop as should_stop
from jaxseq.active._strategies import Answer as Answer
from jaxseq.active._strategies import Groups as Groups
from jaxseq.active._strategies import Look as Look
from jaxseq.active._strategies import Proposal as Proposal
from jaxseq.active._strategies import Query as Query
from jaxseq.active._strategies import Sequences as Sequences
from jaxseq.active._strategies import Spans as Spans
from jaxseq.active._strategies import Strategy as Strategy
from jaxseq.active._strategies import Tokens as Tokens
from jaxseq.active._strategies import informative as informative
from jaxseq.active._strategies import propose as propose
from jaxseq.active._strategies import token_price as token_price

__all__ = [
    "ActiveLearner",
    "Answer",
    "Groups",
    "Look",
    "Proposal",
    "Query",
    "Sequences",
    "Spans",
    "Strategy",
    "Tokens",
    "agreement",
    "first_sentences",
    "informative",
    "is_stable",
    "propose",
    "should_stop",
    "token_price",
]
"""What users call; the other names are for the packages of jaxseq itself."""
