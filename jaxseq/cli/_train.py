"""``jaxseq train``: from a labelled corpus to a model, by one of several methods."""

from __future__ import annotations

from jaxseq.cli._options import CommandParser
from jaxseq.cli._train_codl import add_codl
from jaxseq.cli._train_crf import add_crf
from jaxseq.cli._train_hmm import add_hmm
from jaxseq.cli._train_self import add_self


def add_train(parser: CommandParser) -> None:
    """Add the methods of ``jaxseq train``, each with its own options."""
    parser.description = (
        "Train a model on a labelled corpus and save it. Each method has options of its own: see "
        "jaxseq train METHOD --help. Without a method, jaxseq train means jaxseq train crf."
    )
    parser.add_commands(
        {
            "crf": (
                "conditional random field, with entropy regularisation or from shards",
                add_crf,
            ),
            "hmm": ("hidden Markov model, by counting or by EM", add_hmm),
            "codl": ("constraint-driven learning of either of them", add_codl),
            "self": ("self-training of either of them", add_self),
        },
        title="methods",
        default="crf",
    )
