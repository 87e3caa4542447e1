"""``jaxseq train hmm``: a hidden Markov model by counting, or by EM."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from jaxseq._runtime import Outcome
from jaxseq.cli._files import Corpus, require_columns
from jaxseq.cli._options import parse_probability, require_with
from jaxseq.cli._training import (
    Trained,
    add_process_options,
    add_training_options,
    add_unlabelled_option,
    add_vocabulary_option,
    check_places,
    columns_read,
    finish,
    fit_arguments,
    read_data,
    read_training,
    run_in_processes,
)

if TYPE_CHECKING:
    from jaxseq.hmm import HMMTagger
    from jaxseq.parallel import Peers

FAMILIES = ("initial", "transition", "emission")
"""The multinomials of the model."""


def add_hmm(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``jaxseq train hmm``."""
    parser.description = (
        "Train a hidden Markov model: relative frequencies of the labelled sentences, and with "
        "--unlabelled EM from there. Ctrl-C keeps the best model so far."
    )
    add_training_options(parser, "the unfinished EM")
    add_hmm_settings(parser)
    group = parser.add_argument_group("EM on unlabelled sentences")
    add_unlabelled_option(group)
    add_vocabulary_option(group)
    add = group.add_argument
    add("--max-iterations", type=int, default=500, metavar="N", help="of EM (500)")
    add("--em", choices=("soft", "hard"), help="count all labellings, or only the best (soft)")
    add(
        "--em-weight",
        type=parse_probability,
        metavar="X",
        help="of the unlabelled sentences, 0 to 1 (their share of all sentences)",
    )
    add(
        "--freeze",
        type=parse_families,
        metavar="FAMILIES",
        help=f"what EM leaves as it is: some of {', '.join(FAMILIES)}, separated by commas",
    )
    add_process_options(parser)
    parser.set_defaults(run=_run, method="hmm")


def add_hmm_settings(parser: argparse.ArgumentParser) -> None:
    """Add the settings of a model without EM."""
    add = parser.add_argument_group("model").add_argument
    add("--column", metavar="NAME", help="the column that the model reads (word)")
    add(
        "--unknown-below",
        type=int,
        metavar="N",
        help="treat words seen fewer times as one unknown word (5)",
    )
    events = zip(FAMILIES, ("first label", "transition", "word"), ("0.2", "0.2", "0.05"))
    for family, event, usual in events:
        add(
            f"--{family}-smoothing",
            type=float,
            metavar="X",
            help=f"added to the count of every {event} ({usual})",
        )
    add(
        "--classes",
        type=parse_labels,
        metavar="LABELS",
        help="all labels, separated by commas, where the labelled sentences may lack some",
    )
    add(
        "--decoding",
        choices=("viterbi", "max_marginal"),
        help="predict the best labelling, or the best label of each token (viterbi)",
    )


def parse_labels(text: str) -> tuple[str, ...]:
    """Labels separated by commas, as an argument.

    Example:
        >>> parse_labels("author, title")
        ('author', 'title')
    """
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"expected labels separated by commas, got {text!r}")
    return names


def parse_families(text: str) -> tuple[str, ...]:
    """Names of families separated by commas, as an argument.

    Example:
        >>> parse_families("initial,transition")
        ('initial', 'transition')
    """
    names = tuple(name.strip() for name in text.split(","))
    if not set(names) <= set(FAMILIES) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(
            f"expected some of {', '.join(FAMILIES)}, separated by commas, got {text!r}"
        )
    return names


OPTION_NAMES = {"weight": "em_weight", "frozen": "freeze"}
"""Parameters of `HMMTagger` whose options are called otherwise."""


def untrained_hmm(options: argparse.Namespace, train: Corpus) -> HMMTagger:
    """The tagger that the options describe; ValueError where its column is not in the corpus."""
    from jaxseq.hmm import HMMTagger

    names = (
        "column", "unknown_below", "initial_smoothing", "transition_smoothing",
        "emission_smoothing", "classes", "decoding", "max_iterations", "em", "weight", "frozen",
        "vocabulary", "cores", "checkpoint",
    )  # fmt: skip
    values = {name: getattr(options, OPTION_NAMES.get(name, name), None) for name in names}
    settings: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    tagger = HMMTagger(**settings, progress=False if options.quiet else None)
    require_columns([tagger.column], train.columns, "the model", train.path)
    return tagger


def _run(options: argparse.Namespace) -> int:
    require_with(options, ("vocabulary", "em_weight", "freeze"), "--unlabelled FILE")
    return run_in_processes(options, _train)


def _train(options: argparse.Namespace, peers: Peers) -> int:
    with peers.guard():
        check_places(options, peers)
        train, numbers = read_training(options.train, options, peers)
        tagger = untrained_hmm(options, train)
        data = read_data(options, peers, train, numbers, columns_read(tagger))
    arguments = fit_arguments(data, peers)
    tagger.fit(train.sentences, train.labels, unlabelled=data.unlabelled, **arguments)
    interrupted = None
    if tagger.outcome_ is Outcome.INTERRUPTED:
        # Even before the first iteration there is a model: that of the labelled sentences.
        interrupted = f"{tagger.n_iter_} iterations"
    report, lines = None, []
    if data.unlabelled is not None:
        report = {
            "method": "em",
            "em": tagger.em,
            "em_weight": tagger.weight,
            "frozen": list(tagger.frozen),
            "vocabulary": tagger.vocabulary,
            "log_likelihood": tagger.log_likelihood_,
        }
        weight = "their share" if tagger.weight is None else f"{tagger.weight:g}"
        frozen = ", ".join(tagger.frozen) or "nothing"
        lines = [f"EM        {tagger.em}, weight {weight}, frozen {frozen}"]
    trained = Trained(tagger, interrupted, report, lines)
    return finish(options, peers, data.dev, trained, *data.counts(peers))
