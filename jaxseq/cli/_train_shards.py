"""``jaxseq train --shards``: training from a folder of ``jaxseq shard``, larger than memory."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from jaxseq.cli._codl import check_codl_options
from jaxseq.cli._files import require_model_place
from jaxseq.cli._train_hmm import check_model_options
from jaxseq.cli._unlabelled import check_unlabelled_options

if TYPE_CHECKING:
    from jaxseq.tagger import CRFTagger

AT_ONCE = (
    "unlabelled",
    "warm_start",
    "coordinator",
    "num_processes",
    "process_id",
    "model_devices",
)
"""Options of trainings that hold the corpus, or that share it among processes."""
DECIDED = ("cutoff",)
"""Options that were decided when the shards were written."""


def add_shards_option(parser: argparse.ArgumentParser, needless: Sequence[argparse.Action]) -> None:
    """Add ``--shards``.

    Args:
        parser: of ``jaxseq train``.
        needless: options that are needed without shards, and not with them.
    """

    class Instead(argparse.Action):
        def __call__(self, _parser: Any, namespace: Any, values: Any, _name: Any = None) -> None:
            namespace.shards = values
            for option in needless:
                option.required = False

    parser.add_argument(
        "--shards",
        action=Instead,
        metavar="DIR",
        help="instead of --train and --templates: a folder of jaxseq shard, of which one part at a "
        "time is in memory; with --algorithm adamw or sgd",
    )


def check_shards_alone(options: argparse.Namespace) -> None:
    """ValueError for options that do not go with shards."""
    from jaxseq.scale._start import find_meeting

    if options.train is not None:
        raise ValueError("--shards: expected alone, got --train too")
    if options.templates is not None:
        raise ValueError("--templates: expected nothing along with --shards, which have features")
    if options.model != "crf":
        raise ValueError(f"--model: expected crf along with --shards, got {options.model}")
    for name in AT_ONCE:
        if getattr(options, name) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(f"{flag}: expected nothing along with --shards")
    for name in DECIDED:
        if getattr(options, name) != options.usual[name]:
            raise ValueError(f"--{name}: expected with jaxseq shard, not along with --shards")
    check_model_options(options, options.usual)
    check_unlabelled_options(options)
    check_codl_options(options)
    if find_meeting(None, None, None) is not None:
        raise ValueError("--shards: expected in a run of one process only, found variables of more")
    if options.algorithm == "lbfgs":
        raise ValueError(
            "--algorithm: expected adamw or sgd along with --shards, as L-BFGS needs the whole "
            "corpus at once"
        )


def train_on_shards(
    options: argparse.Namespace, untrained: Callable[[Any, argparse.Namespace], CRFTagger]
) -> tuple[CRFTagger, dict[str, int]]:
    """Train as the options say; the tagger, and the sentences and tokens that it has seen.

    Args:
        options: of ``jaxseq train``.
        untrained: templates and options → the tagger that they describe.
    """
    from jaxseq.learn import StreamedCorpus
    from jaxseq.tagger import train_from_shards

    require_model_place(options.out)
    index = StreamedCorpus(options.shards, batch_size=options.batch_size, seed=options.seed).index
    tagger = train_from_shards(options.shards, untrained(None, options))
    return tagger, {"sentences": index.sentences, "tokens": index.tokens}
