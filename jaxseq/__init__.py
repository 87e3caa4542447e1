"""jaxseq: sequence labelling with few labels, in functional JAX."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from jaxseq._lazy import lazy_names as _lazy_names
from jaxseq._runtime import Outcome as Outcome
from jaxseq._runtime import map_on_cores as map_on_cores

if _TYPE_CHECKING:
    from jaxseq import active as active
    from jaxseq import constraints as constraints
    from jaxseq import crf as crf
    from jaxseq import hmm as hmm
    from jaxseq import homotopy as homotopy
    from jaxseq import lattice as lattice
    from jaxseq import metrics as metrics
    from jaxseq import parallel as parallel
    from jaxseq import shards as shards
    from jaxseq import taggers as taggers
    from jaxseq import text as text
    from jaxseq import verify as verify
    from jaxseq.active import ActiveLearner as ActiveLearner
    from jaxseq.constraints import CoDL as CoDL
    from jaxseq.crf import CRF as CRF
    from jaxseq.crf import CRFTagger as CRFTagger
    from jaxseq.crf import EntropyWeights as EntropyWeights
    from jaxseq.crf import choose_entropy_weight as choose_entropy_weight
    from jaxseq.crf import import_crfsuite as import_crfsuite
    from jaxseq.hmm import HMM as HMM
    from jaxseq.hmm import HMMTagger as HMMTagger
    from jaxseq.lattice import BatchCovariance as BatchCovariance
    from jaxseq.lattice import BatchEntropyGradient as BatchEntropyGradient
    from jaxseq.lattice import BatchMarginals as BatchMarginals
    from jaxseq.lattice import Chain as Chain
    from jaxseq.lattice import ChainVector as ChainVector
    from jaxseq.lattice import FeatureCovariance as FeatureCovariance
    from jaxseq.lattice import PackedBatch as PackedBatch
    from jaxseq.lattice import PaddedBatch as PaddedBatch
    from jaxseq.lattice import batch_covariance_product as batch_covariance_product
    from jaxseq.lattice import batch_entropy as batch_entropy
    from jaxseq.lattice import batch_entropy_gradient as batch_entropy_gradient
    from jaxseq.lattice import batch_log_partition as batch_log_partition
    from jaxseq.lattice import batch_marginals as batch_marginals
    from jaxseq.lattice import batch_viterbi as batch_viterbi
    from jaxseq.lattice import constrain as constrain
    from jaxseq.lattice import covariance_product as covariance_product
    from jaxseq.lattice import cross_entropy as cross_entropy
    from jaxseq.lattice import entropy as entropy
    from jaxseq.lattice import entropy_lattices as entropy_lattices
    from jaxseq.lattice import feature_covariance as feature_covariance
    from jaxseq.lattice import jiao_entropy_gradient as jiao_entropy_gradient
    from jaxseq.lattice import k_best as k_best
    from jaxseq.lattice import kl_divergence as kl_divergence
    from jaxseq.lattice import log_partition as log_partition
    from jaxseq.lattice import log_prob as log_prob
    from jaxseq.lattice import mann_entropy_gradient as mann_entropy_gradient
    from jaxseq.lattice import marginals as marginals
    from jaxseq.lattice import max_marginal as max_marginal
    from jaxseq.lattice import pack as pack
    from jaxseq.lattice import pack_lengths as pack_lengths
    from jaxseq.lattice import path_score as path_score
    from jaxseq.lattice import rest_entropy as rest_entropy
    from jaxseq.lattice import sample as sample
    from jaxseq.lattice import span_entropy as span_entropy
    from jaxseq.lattice import unpack as unpack
    from jaxseq.lattice import viterbi as viterbi
    from jaxseq.shards import train_from_shards as train_from_shards
    from jaxseq.shards import write_shards as write_shards
    from jaxseq.taggers import SelfTraining as SelfTraining
    from jaxseq.taggers import load as load

_OF_LATTICES = (
    "BatchCovariance",
    "BatchEntropyGradient",
    "BatchMarginals",
    "Chain",
    "ChainVector",
    "FeatureCovariance",
    "PackedBatch",
    "PaddedBatch",
    "batch_covariance_product",
    "batch_entropy",
    "batch_entropy_gradient",
    "batch_log_partition",
    "batch_marginals",
    "batch_viterbi",
    "constrain",
    "covariance_product",
    "cross_entropy",
    "entropy",
    "entropy_lattices",
    "feature_covariance",
    "jiao_entropy_gradient",
    "k_best",
    "kl_divergence",
    "log_partition",
    "log_prob",
    "mann_entropy_gradient",
    "marginals",
    "max_marginal",
    "pack",
    "pack_lengths",
    "path_score",
    "rest_entropy",
    "sample",
    "span_entropy",
    "unpack",
    "viterbi",
)

_LATER = {
    # By __name__, so that a copy of this package under another name stays with its own lattices.
    **dict.fromkeys(_OF_LATTICES, f"{__name__}.lattice"),
    "ActiveLearner": "jaxseq.active",
    "CRF": "jaxseq.crf",
    "CRFTagger": "jaxseq.crf",
    "CoDL": "jaxseq.constraints",
    "EntropyWeights": "jaxseq.crf",
    "HMM": "jaxseq.hmm",
    "HMMTagger": "jaxseq.hmm",
    "SelfTraining": "jaxseq.taggers",
    "active": "jaxseq.active",
    "choose_entropy_weight": "jaxseq.crf",
    "constraints": "jaxseq.constraints",
    "crf": "jaxseq.crf",
    "hmm": "jaxseq.hmm",
    "homotopy": "jaxseq.homotopy",
    "lattice": f"{__name__}.lattice",
    "import_crfsuite": "jaxseq.crf",
    "load": "jaxseq.taggers",
    "metrics": "jaxseq.metrics",
    "parallel": "jaxseq.parallel",
    "shards": "jaxseq.shards",
    "taggers": "jaxseq.taggers",
    "text": "jaxseq.text",
    "train_from_shards": "jaxseq.shards",
    "verify": "jaxseq.verify",
    "write_shards": "jaxseq.shards",
}
"""Names loaded on first use. The command line needs none of them to print its help or to refuse its
arguments, and JAX, which they import, takes a while to load."""

__getattr__, __dir__ = _lazy_names(__name__, _LATER)
