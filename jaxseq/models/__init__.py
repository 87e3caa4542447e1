"""Models: what turns the attributes of tokens into the scores of a chain."""

from jaxseq.models._crf import CRF as CRF
