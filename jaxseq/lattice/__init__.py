"""Exact inference on linear chains, one at a time or in batches: pure functions of arrays."""

from jaxseq.lattice._batch import BatchCovariance as BatchCovariance
from jaxseq.lattice._batch import BatchEntropyGradient as BatchEntropyGradient
from jaxseq.lattice._batch import BatchMarginals as BatchMarginals
from jaxseq.lattice._batch import batch_covariance_product as batch_covariance_product
from jaxseq.lattice._batch import batch_entropy as batch_entropy
from jaxseq.lattice._batch import batch_entropy_gradient as batch_entropy_gradient
from jaxseq.lattice._batch import batch_log_partition as batch_log_partition
from jaxseq.lattice._batch import batch_marginals as batch_marginals
from jaxseq.lattice._batch import batch_viterbi as batch_viterbi
from jaxseq.lattice._batch import flat_covariance as flat_covariance
from jaxseq.lattice._batch import flat_entropy as flat_entropy
from jaxseq.lattice._batch import flat_entropy_gradient as flat_entropy_gradient
from jaxseq.lattice._batch import flat_log_partition as flat_log_partition
from jaxseq.lattice._batch import flat_marginals as flat_marginals
from jaxseq.lattice._batch import per_sequence as per_sequence
from jaxseq.lattice._chain import Chain as Chain
from jaxseq.lattice._chain import ChainVector as ChainVector
from jaxseq.lattice._chain import as_count as as_count
from jaxseq.lattice._chain import as_scores as as_scores
from jaxseq.lattice._chain import is_concrete as is_concrete
from jaxseq.lattice._decode import NO_LABEL as NO_LABEL
from jaxseq.lattice._decode import k_best as k_best
from jaxseq.lattice._decode import max_marginal as max_marginal
from jaxseq.lattice._decode import sample as sample
from jaxseq.lattice._decode import viterbi as viterbi
from jaxseq.lattice._engines import Method as Method
from jaxseq.lattice._engines import check_method as check_method
from jaxseq.lattice._engines import log_forward_backward as log_forward_backward
from jaxseq.lattice._engines import smallest_trusted as smallest_trusted
from jaxseq.lattice._entropy import cross_entropy as cross_entropy
from jaxseq.lattice._entropy import entropy as entropy
from jaxseq.lattice._entropy import entropy_lattices as entropy_lattices
from jaxseq.lattice._entropy import gradient_from_marginals as gradient_from_marginals
from jaxseq.lattice._entropy import jiao_entropy_gradient as jiao_entropy_gradient
from jaxseq.lattice._entropy import kl_divergence as kl_divergence
from jaxseq.lattice._entropy import label_entropies as label_entropies
from jaxseq.lattice._entropy import mann_entropy_gradient as mann_entropy_gradient
from jaxseq.lattice._entropy import rest_entropy as rest_entropy
from jaxseq.lattice._entropy import row_gradient as row_gradient
from jaxseq.lattice._entropy import span_entropy as span_entropy
from jaxseq.lattice._entropy import step_entropies as step_entropies
from jaxseq.lattice._layout import Batch as Batch
from jaxseq.lattice._layout import PackedBatch as PackedBatch
from jaxseq.lattice._layout import PaddedBatch as PaddedBatch
from jaxseq.lattice._layout import pack as pack
from jaxseq.lattice._layout import pack_lengths as pack_lengths
from jaxseq.lattice._layout import unpack as unpack
from jaxseq.lattice._marginals import FeatureCovariance as FeatureCovariance
from jaxseq.lattice._marginals import chain_marginals as chain_marginals
from jaxseq.lattice._marginals import constrain as constrain
from jaxseq.lattice._marginals import covariance_product as covariance_product
from jaxseq.lattice._marginals import feature_covariance as feature_covariance
from jaxseq.lattice._marginals import log_partition as log_partition
from jaxseq.lattice._marginals import log_prob as log_prob
from jaxseq.lattice._marginals import marginals as marginals
from jaxseq.lattice._marginals import path_score as path_score
from jaxseq.lattice._marginals import row_marginals as row_marginals
from jaxseq.lattice._numerics import einsum as einsum
from jaxseq.lattice._numerics import in_full_precision as in_full_precision
from jaxseq.lattice._numerics import matmul as matmul
from jaxseq.lattice._numerics import safe_divide as safe_divide
from jaxseq.lattice._numerics import safe_log as safe_log
from jaxseq.lattice._numerics import vdot as vdot
from jaxseq.lattice._propagate import covariance_from_marginals as covariance_from_marginals

__all__ = [
    "Batch",
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
]
"""What users call; the other names are for the packages of jaxseq itself."""
