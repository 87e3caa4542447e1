"""Checks that the library is right: against enumeration, autodiff and differences."""

from jaxseq.verify._check import check as check
from jaxseq.verify._check import gradient as gradient
from jaxseq.verify._check import quick_options as quick_options
from jaxseq.verify._oracle import Enumeration as Enumeration
from jaxseq.verify._quantities import QUANTITIES as QUANTITIES
from jaxseq.verify._quantities import Quantity as Quantity
from jaxseq.verify._report import Report as Report
from jaxseq.verify._report import Row as Row

__all__ = [
    "QUANTITIES",
    "Enumeration",
    "Quantity",
    "Report",
    "Row",
    "check",
    "gradient",
    "quick_options",
]
"""What users call; the other names are for the packages of jaxseq itself."""
