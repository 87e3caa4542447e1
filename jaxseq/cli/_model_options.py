"""Options of a CRF that every command which trains one has."""

from __future__ import annotations

from typing import Any

WEIGHTS = ("mixed", "observed", "dense", "tied")
"""Choices of ``--weights``."""


def add_model_settings(add: Any, iterations: str) -> None:
    """Add penalties, iterations, and which weights there are.

    Args:
        add: of a parser or a group. iterations: of what there are so many at most.
    """
    add("--l1", type=float, default=0.0, metavar="X", help="strength of the l1 penalty (0)")
    add("--l2", type=float, default=1.0, metavar="X", help="strength of the l2 penalty (1)")
    add("--max-iterations", type=int, default=500, metavar="N", help=f"{iterations} (500)")
    add(
        "--weights",
        choices=WEIGHTS,
        default="mixed",
        help="which pairs of attribute and label have a weight (mixed)",
    )
    add("--cutoff", type=int, default=1, metavar="N", help="ignore attributes rarer than this (1)")
    add("--scheme", metavar="IOB2", help="forbid label sequences that this scheme does not allow")
