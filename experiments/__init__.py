"""Reproducible experiments and benchmarks; run as ``python -m experiments``."""
