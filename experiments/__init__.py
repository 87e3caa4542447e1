"""Reproducible experiments and benchmarks; run as ``python -m experiments``.

`experiments._paper` says what a paper's folder holds. The names below are for its ``report.py``.
"""

from experiments._section import Figure as Figure
from experiments._section import Section as Section
from experiments._section import markdown_table as markdown_table
from experiments._section import mean_and_spread as mean_and_spread
