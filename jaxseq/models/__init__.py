"""Models: what turns the attributes of tokens into the scores of a chain."""

from jaxseq.models._crf import CRF as CRF
from jaxseq.models._hmm import HMM as HMM
from jaxseq.models._hmm import Multinomials as Multinomials
