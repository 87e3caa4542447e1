"""Learning: objectives on corpora, and searches for the parameters that are best by them."""

from jaxseq.learn._corpus import EncodedLabels as EncodedLabels
from jaxseq.learn._corpus import Layout as Layout
from jaxseq.learn._corpus import Shard as Shard
from jaxseq.learn._corpus import lay_out as lay_out
from jaxseq.learn._corpus import make_shards as make_shards
from jaxseq.learn._lbfgs import Outcome as Outcome
from jaxseq.learn._lbfgs import Settings as Settings
from jaxseq.learn._lbfgs import State as State
from jaxseq.learn._lbfgs import minimise as minimise
from jaxseq.learn._objective import Objective as Objective
from jaxseq.learn._parameters import Legal as Legal
from jaxseq.learn._parameters import Parameters as Parameters
from jaxseq.learn._parameters import Spread as Spread
