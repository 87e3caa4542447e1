"""jaxseq: sequence labelling with few labels, in functional JAX."""

from typing import Any as _Any

from jaxseq.batch._cores import map_on_cores as map_on_cores
from jaxseq.batch._functions import BatchCovariance as BatchCovariance
from jaxseq.batch._functions import BatchEntropyGradient as BatchEntropyGradient
from jaxseq.batch._functions import BatchMarginals as BatchMarginals
from jaxseq.batch._functions import batch_covariance_product as batch_covariance_product
from jaxseq.batch._functions import batch_entropy as batch_entropy
from jaxseq.batch._functions import batch_entropy_gradient as batch_entropy_gradient
from jaxseq.batch._functions import batch_log_partition as batch_log_partition
from jaxseq.batch._functions import batch_marginals as batch_marginals
from jaxseq.batch._functions import batch_viterbi as batch_viterbi
from jaxseq.batch._layout import PackedBatch as PackedBatch
from jaxseq.batch._layout import PaddedBatch as PaddedBatch
from jaxseq.batch._layout import pack as pack
from jaxseq.batch._layout import pack_lengths as pack_lengths
from jaxseq.batch._layout import unpack as unpack
from jaxseq.chain._chain import Chain as Chain
from jaxseq.chain._chain import ChainVector as ChainVector
from jaxseq.chain._covariance import FeatureCovariance as FeatureCovariance
from jaxseq.chain._covariance import covariance_product as covariance_product
from jaxseq.chain._covariance import feature_covariance as feature_covariance
from jaxseq.chain._decode import k_best as k_best
from jaxseq.chain._decode import max_marginal as max_marginal
from jaxseq.chain._decode import viterbi as viterbi
from jaxseq.chain._divergence import cross_entropy as cross_entropy
from jaxseq.chain._divergence import kl_divergence as kl_divergence
from jaxseq.chain._entropy import entropy as entropy
from jaxseq.chain._entropy import entropy_lattices as entropy_lattices
from jaxseq.chain._entropy import mann_entropy_gradient as mann_entropy_gradient
from jaxseq.chain._entropy import rest_entropy as rest_entropy
from jaxseq.chain._entropy import span_entropy as span_entropy
from jaxseq.chain._jiao import jiao_entropy_gradient as jiao_entropy_gradient
from jaxseq.chain._marginals import log_partition as log_partition
from jaxseq.chain._marginals import marginals as marginals
from jaxseq.chain._paths import constrain as constrain
from jaxseq.chain._paths import log_prob as log_prob
from jaxseq.chain._paths import path_score as path_score
from jaxseq.chain._sample import sample as sample
from jaxseq.models._crf import CRF as CRF
from jaxseq.models._hmm import HMM as HMM

_LATER = {
    "ActiveLearner": "jaxseq.tagger",
    "CRFTagger": "jaxseq.tagger",
    "CoDL": "jaxseq.tagger",
    "EntropyWeights": "jaxseq.tagger",
    "HMMTagger": "jaxseq.tagger",
    "SelfTraining": "jaxseq.tagger",
    "choose_entropy_weight": "jaxseq.tagger",
    "constraints": "jaxseq.constraints",
    "import_crfsuite": "jaxseq.tagger",
    "learn": "jaxseq.learn",
    "load": "jaxseq.tagger",
    "metrics": "jaxseq.metrics",
    "scale": "jaxseq.scale",
    "text": "jaxseq.text",
    "train_from_shards": "jaxseq.tagger",
    "verify": "jaxseq.verify",
    "write_shards": "jaxseq.tagger",
}
"""Names loaded on first use: many programs never need them, and they take a while to load."""


def __getattr__(name: str) -> _Any:
    if name not in _LATER:
        raise AttributeError(f"module 'jaxseq' has no attribute {name!r}")
    import importlib

    module = importlib.import_module(_LATER[name])
    return module if _LATER[name].endswith(f".{name}") else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
