"""Active learning in pure steps: what to ask of an annotator, and when to stop."""

from jaxseq.learn.active._plain import Answer as Answer
from jaxseq.learn.active._plain import Look as Look
from jaxseq.learn.active._plain import Proposal as Proposal
from jaxseq.learn.active._plain import Query as Query
from jaxseq.learn.active._select import informative as informative
from jaxseq.learn.active._select import propose as propose
from jaxseq.learn.active._start import first_sentences as first_sentences
from jaxseq.learn.active._stop import agreement as agreement
from jaxseq.learn.active._stop import is_stable as is_stable
from jaxseq.learn.active._stop import should_stop as should_stop
from jaxseq.learn.active._strategies import Groups as Groups
from jaxseq.learn.active._strategies import Sequences as Sequences
from jaxseq.learn.active._strategies import Spans as Spans
from jaxseq.learn.active._strategies import Strategy as Strategy
from jaxseq.learn.active._strategies import Tokens as Tokens
from jaxseq.learn.active._windows import token_price as token_price
