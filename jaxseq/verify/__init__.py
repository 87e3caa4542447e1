"""Checks that the library is right: against enumeration, autodiff and differences."""

from jaxseq.verify._check import Report as Report
from jaxseq.verify._check import Row as Row
from jaxseq.verify._check import check as check
from jaxseq.verify._check import quick_options as quick_options
from jaxseq.verify._gradient import gradient as gradient
from jaxseq.verify._mutants import MUTANTS as MUTANTS
from jaxseq.verify._mutants import Mutant as Mutant
from jaxseq.verify._mutants import MutationReport as MutationReport
from jaxseq.verify._mutants import mutate as mutate
from jaxseq.verify._oracle import Enumeration as Enumeration
from jaxseq.verify._quantities import QUANTITIES as QUANTITIES
from jaxseq.verify._quantities import Quantity as Quantity

__all__ = [
    "MUTANTS",
    "QUANTITIES",
    "Enumeration",
    "Mutant",
    "MutationReport",
    "Quantity",
    "Report",
    "Row",
    "check",
    "gradient",
    "mutate",
    "quick_options",
]
"""What users call; the other names are for the packages of jaxseq itself."""
