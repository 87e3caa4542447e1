"""Kernels in C++ for the CPU, compiled on first use; XLA does the same where they are not."""

from jaxseq.native._lattice import call_native as call_native
from jaxseq.native._lattice import has_native as has_native
from jaxseq.native._lattice import why_not as why_not
