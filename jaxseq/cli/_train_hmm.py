"""``jaxseq train --model hmm``: its options, its training and its report."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, cast

from jaxseq.cli._columns import require_columns
from jaxseq.cli._corpus import Corpus
from jaxseq.cli._methods import Trained, train_with
from jaxseq.cli._unlabelled import parse_probability
from jaxseq.text import Sentence

if TYPE_CHECKING:
    from jaxseq.tagger import HMMTagger

WITH_UNLABELLED = ("em_weight", "freeze")
OPTIONS = (
    "column",
    "unknown_below",
    "initial_smoothing",
    "transition_smoothing",
    "emission_smoothing",
    "em",
    "decoding",
    "classes",
    *WITH_UNLABELLED,
)
"""Of hidden Markov models alone; none of them is set unless the user gives it."""

OF_A_CRF = (
    "templates",
    "l1",
    "l2",
    "weights",
    "cutoff",
    "scheme",
    "algorithm",
    "seed",
    "epochs",
    "batch_size",
    "learning_rate",
    "warm_start",
    "model_devices",
    "entropy_weight",
    "entropy_gradient",
    "choose_entropy_weight",
)
"""Options that a hidden Markov model has no use for."""

FAMILIES = ("initial", "transition", "emission")


def add_model_options(parser: argparse.ArgumentParser, templates: argparse.Action) -> None:
    """Add ``--model`` and the group of options about hidden Markov models.

    Args:
        parser: of ``jaxseq train``.
        templates: what reads ``--templates``; only a CRF needs them.
    """

    class Choose(argparse.Action):
        """Which arguments are missing is looked at when all have been read."""

        def __call__(self, parser, namespace, values, option_string=None):
            setattr(namespace, self.dest, values)
            templates.required = values == "crf"

    parser.add_argument(
        "--model",
        action=Choose,
        choices=("crf", "hmm"),
        default="crf",
        help="conditional random field, or hidden Markov model, which reads one column and has no "
        "templates (crf)",
    )
    group = parser.add_argument_group(
        "hidden Markov models",
        "Relative frequencies of the labelled sentences; with --unlabelled, EM from there.",
    )
    _add_hmm_options(group.add_argument)


def _add_hmm_options(add: Any) -> None:
    add("--column", metavar="NAME", help="that the model is of (word)")
    add(
        "--unknown-below",
        type=int,
        metavar="N",
        help="words seen fewer times are one unknown word (5)",
    )
    for name, usual in zip(FAMILIES, ("0.2", "0.2", "0.05")):
        what = {"initial": "first label", "transition": "transition", "emission": "word"}[name]
        add(
            f"--{name}-smoothing",
            type=float,
            metavar="X",
            help=f"added to the count of every {what} ({usual})",
        )
    add("--em", choices=("soft", "hard"), help="count all labellings, or the best (soft)")
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


def check_model_options(options: argparse.Namespace, usual: dict[str, Any]) -> None:
    """ValueError for options of the other kind of model, or that do not go together.

    Args:
        options: of the command line.
        usual: the values of the options of a CRF that the user has not given.
    """
    given = [name for name in OPTIONS if getattr(options, name) is not None]
    if options.model == "crf":
        if given:
            raise ValueError(f"{_flag(given[0])}: expected with --model hmm only")
        return
    for name in OF_A_CRF:
        if getattr(options, name) != usual[name]:
            raise ValueError(f"{_flag(name)}: expected with --model crf only")
    for name in WITH_UNLABELLED:
        if name in given and options.unlabelled is None:
            raise ValueError(f"{_flag(name)}: expected along with --unlabelled FILE only")
        if name in given and options.self_training:
            raise ValueError(f"--self-training: expected no {_flag(name)} along with it")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def untrained_hmm(options: argparse.Namespace, train: Corpus) -> HMMTagger:
    """The tagger that the options describe; ValueError when its column is not in the corpus."""
    from jaxseq.tagger import HMMTagger

    named = {"em_weight": "weight", "freeze": "frozen"}
    given = {named.get(name, name): getattr(options, name) for name in (*OPTIONS, "vocabulary")}
    tagger = HMMTagger(
        max_iterations=options.max_iterations,
        cores=options.cores,
        progress=False if options.quiet else None,
        checkpoint=options.checkpoint,
        **{name: value for name, value in given.items() if value is not None},
    )
    there = [name for name in train.names[:-1] if name is not None]
    require_columns([tagger.column], there, "the model", options.train)
    return tagger


def train_hmm(
    tagger: HMMTagger,
    train: Corpus,
    others: list[Sentence] | None,
    options: argparse.Namespace,
    together: dict[str, Any],
) -> Trained:
    """Train in the way that the options ask for; self-training raises KeyboardInterrupt when no
    round was complete yet.

    Args:
        tagger: the settings. train, others: labelled and unlabelled sentences.
        options: of the command line. together: what `fit` is told of a run of several processes.
    """
    if options.self_training:
        return train_with(cast(Any, tagger), train, others, None, options)
    tagger.fit(train.sentences, train.labels, unlabelled=others, **together)
    interrupted = None
    if tagger.outcome_.startswith("interrupted"):
        interrupted = f"{tagger.n_iter_} iterations"
    report = None
    if others is not None:
        report = {
            "sentences": len(others),
            "tokens": sum(map(len, others)),
            "method": "em",
            "em": tagger.em,
            "em_weight": tagger.weight,
            "frozen": list(tagger.frozen),
            "vocabulary": tagger.vocabulary,
            "log_likelihood": tagger.log_likelihood_,
        }
    return Trained(cast(Any, tagger), interrupted, report)


def line_on_em(report: dict[str, Any]) -> str:
    """How unlabelled sentences were learnt from, for the report."""
    weight = "their share" if report["em_weight"] is None else f"{report['em_weight']:g}"
    frozen = ", ".join(report["frozen"]) or "nothing"
    return f"EM        {report['em']}, weight {weight}, frozen {frozen}"
