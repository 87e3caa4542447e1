"""The tagger: an estimator on top of features, models and learning."""

from jaxseq.tagger._active import ActiveLearner as ActiveLearner
from jaxseq.tagger._codl import CoDL as CoDL
from jaxseq.tagger._constrained import ConstraintWarning as ConstraintWarning
from jaxseq.tagger._crfsuite import import_crfsuite as import_crfsuite
from jaxseq.tagger._entropy_weight import EntropyWeights as EntropyWeights
from jaxseq.tagger._entropy_weight import choose_entropy_weight as choose_entropy_weight
from jaxseq.tagger._hmm_tagger import HMMTagger as HMMTagger
from jaxseq.tagger._hmm_weights import WeightSweep as WeightSweep
from jaxseq.tagger._hmm_weights import sweep_weights as sweep_weights
from jaxseq.tagger._self_training import SelfTraining as SelfTraining
from jaxseq.tagger._shard_writer import write_shards as write_shards
from jaxseq.tagger._store import load as load
from jaxseq.tagger._streaming import train_from_shards as train_from_shards
from jaxseq.tagger._tagger import CRFTagger as CRFTagger
