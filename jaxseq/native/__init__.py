"""Kernels in C++ for the CPU. Where they cannot be had, XLA computes the same."""

from jaxseq.native._compiler import CannotBuild as CannotBuild
from jaxseq.native._lattices import call_native as call_native
from jaxseq.native._lattices import has_native as has_native
from jaxseq.native._lattices import is_worthwhile as is_worthwhile
from jaxseq.native._lattices import why_not as why_not
from jaxseq.native._lattices import why_not_native as why_not_native
from jaxseq.native._loader import load_library as load_library
from jaxseq.native._loader import warn_of_loss as warn_of_loss

__all__ = [
    "call_native",
    "has_native",
    "is_worthwhile",
    "why_not",
]
"""What users call; the other names are for the packages of jaxseq itself."""
