"""The command ``jaxseq``: arguments in, text out; the work is done by the other packages."""

from jaxseq.cli._main import main as main
