"""Kernels in C for the CPU, compiled on first use; XLA does the same where they are not."""
