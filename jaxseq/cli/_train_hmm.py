"""``jaxseq train hmm``: a hidden Markov model by counting, or by EM."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from jaxseq._runtime import Outcome
from jaxseq.cli._models import FAMILIES, add_hmm_settings, untrained_hmm
from jaxseq.cli._options import parse_probability, require_with
from jaxseq.cli._train import (
    Trained,
    TrainingData,
    add_expectations_option,
    add_process_options,
    add_training_options,
    add_unlabelled_options,
    expectations_from,
    run_training,
)

if TYPE_CHECKING:
    from jaxseq.hmm import HMMTagger
    from jaxseq.parallel import Peers


def add_hmm(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Train a hidden Markov model: relative frequencies of the labelled sentences, and with "
        "--unlabelled EM from there. Ctrl-C keeps the best model so far."
    )
    add_training_options(parser, "the unfinished EM", "hmm")
    add_hmm_settings(parser)
    group = parser.add_argument_group("EM on unlabelled sentences")
    add_unlabelled_options(group)
    add = group.add_argument
    add("--max-iterations", type=int, default=500, metavar="N", help="of EM (500)")
    add("--em", choices=("soft", "hard"), help="count all labellings, or only the best (soft)")
    add(
        "--em-weight",
        type=parse_probability,
        metavar="X",
        help="of the unlabelled sentences, 0 to 1 (0.2)",
    )
    add(
        "--freeze",
        type=parse_families,
        metavar="FAMILIES",
        help=f"what EM leaves as it is: some of {', '.join(FAMILIES)}, separated by commas, or "
        "nothing (transition)",
    )
    add_expectations_option(group, "EM then counts by projection (none)")
    add_process_options(parser)
    parser.set_defaults(run=_run, method="hmm")


def parse_families(text: str) -> tuple[str, ...]:
    """Names of families separated by commas, as an argument."""
    if text == "nothing":
        return ()
    names = tuple(name.strip() for name in text.split(","))
    if not set(names) <= set(FAMILIES) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(
            f"expected nothing or some of {', '.join(FAMILIES)}, separated by commas, got {text!r}"
        )
    return names


def _run(options: argparse.Namespace) -> int:
    names = ("vocabulary", "em_weight", "freeze", "expectations")
    require_with(options, names, "--unlabelled FILE")
    if options.expectations is not None and (options.em == "hard" or options.checkpoint):
        raise ValueError("--expectations: expected none with --em hard or --checkpoint")
    return run_training(options, untrained_hmm, _learn)


def _learn(
    tagger: HMMTagger, data: TrainingData, options: argparse.Namespace, _peers: Peers
) -> Trained:
    train, arguments = data.train, data.fit_arguments()
    arguments |= {"expectations": expectations_from(options) or []}
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
            "expectations": len(arguments["expectations"]),
            "vocabulary": tagger.vocabulary,
            "log_likelihood": tagger.log_likelihood_,
        }
        weight = "their share" if tagger.weight is None else f"{tagger.weight:g}"
        frozen = ", ".join(tagger.frozen) or "nothing"
        lines = [f"EM        {tagger.em}, weight {weight}, frozen {frozen}"]
    return Trained(tagger, interrupted, report, lines)
