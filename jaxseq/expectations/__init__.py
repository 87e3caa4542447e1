"""What is expected of the labels of text without labels."""

from jaxseq.expectations._encode import EncodedExpectations as EncodedExpectations
from jaxseq.expectations._encode import check_expectations as check_expectations
from jaxseq.expectations._encode import encode_expectations as encode_expectations
from jaxseq.expectations._expectation import Expectation as Expectation
from jaxseq.expectations._expectation import attribute_shares as attribute_shares
from jaxseq.expectations._expectation import label_shares as label_shares
from jaxseq.expectations._file import read_expectations as read_expectations

__all__ = [
    "Expectation",
    "attribute_shares",
    "label_shares",
    "read_expectations",
]
"""What users call; the other names are for the packages of jaxseq itself."""
