"""``jaxseq train --shards``: training from a folder of ``jaxseq shard``, larger than memory."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxseq.cli._codl import check_codl_options
from jaxseq.cli._train_hmm import check_model_options
from jaxseq.cli._unlabelled import check_unlabelled_options

if TYPE_CHECKING:
    from jaxseq.scale import Peers
    from jaxseq.tagger import CRFTagger

AT_ONCE = ("unlabelled", "warm_start", "model_devices")
"""Options of trainings that hold the corpus, or that cut the weights into blocks."""
DECIDED = ("cutoff",)
"""Options that were decided when the shards were written."""


def add_shards_option(parser: argparse.ArgumentParser, needless: Sequence[argparse.Action]) -> None:
    """Add ``--shards`` and ``--streams``.

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
    parser.add_argument(
        "--streams",
        type=int,
        metavar="N",
        help="with --shards: parts that every batch has sentences of (1). With as many as "
        "processes, each process reads and needs files of its own only; with fewer, they share "
        "the sentences of a file",
    )


def check_shards_alone(options: argparse.Namespace) -> None:
    """ValueError for options that do not go with shards."""
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
    if options.algorithm == "lbfgs":
        raise ValueError(
            "--algorithm: expected adamw or sgd along with --shards, as L-BFGS needs the whole "
            "corpus at once"
        )


def train_on_shards(
    options: argparse.Namespace,
    untrained: Callable[[Any, argparse.Namespace], CRFTagger],
    peers: Peers | None,
) -> tuple[CRFTagger, dict[str, int]]:
    """Train as the options say; the tagger, and the sentences and tokens that it has seen.

    Args:
        options: of ``jaxseq train``.
        untrained: templates and options → the tagger that they describe.
        peers: the processes of this run, if it is one of several.
    """
    from jaxseq.learn._shard_files import read_index
    from jaxseq.scale import make_mesh
    from jaxseq.tagger import train_from_shards

    several = peers is not None and peers.count > 1
    tagger = train_from_shards(
        options.shards,
        untrained(None, options),
        streams=1 if options.streams is None else options.streams,
        mesh=make_mesh() if several else None,
    )
    index = read_index(Path(options.shards))
    return tagger, {"sentences": index.sentences, "tokens": index.tokens}
