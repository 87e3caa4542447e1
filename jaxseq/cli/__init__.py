"""The command ``jaxseq``: arguments in, text out; the work is done by the other packages."""

from jaxseq.cli._main import main as main

__all__ = [
    "main",
]
"""What users call; the other names are for the packages of jaxseq itself."""
