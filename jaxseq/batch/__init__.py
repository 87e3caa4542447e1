"""Exact inference on many sequences at once: padded or packed, without [batch, n, s, s] arrays."""

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
from jaxseq.batch._layout import Batch as Batch
from jaxseq.batch._layout import PackedBatch as PackedBatch
from jaxseq.batch._layout import PaddedBatch as PaddedBatch
from jaxseq.batch._layout import pack as pack
from jaxseq.batch._layout import pack_lengths as pack_lengths
from jaxseq.batch._layout import unpack as unpack
