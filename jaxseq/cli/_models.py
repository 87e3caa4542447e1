"""The models that may be trained: their settings as options, and taggers to be trained."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jaxseq.cli._files import Corpus, require_columns
from jaxseq.cli._options import CommandParser, add_model_settings
from jaxseq.cli._templates import choose_templates
from jaxseq.text import Templates

if TYPE_CHECKING:
    from jaxseq.crf import CRFTagger
    from jaxseq.hmm import HMMTagger

FAMILIES = ("initial", "transition", "emission")  # the multinomials of a hidden Markov model


def add_models(
    parser: CommandParser,
    method: str,
    title: str,
    add_options: Callable[[CommandParser, str], None],
) -> None:
    """Add the models that a method may train as sub-commands; the first is the default.

    Args:
        parser: of the method.
        method: its name on the command line.
        title: what it is, in words.
        add_options: adds the options of the method for one of the models, by its name.
    """

    def add_crf(crf: CommandParser) -> None:
        crf.description = f"{title} of a conditional random field."
        add_options(crf, "crf")
        add_crf_settings(crf)
        crf.set_defaults(method=f"{method} crf", untrained=untrained_crf)

    def add_hmm(hmm: CommandParser) -> None:
        hmm.description = f"{title} of a hidden Markov model."
        add_options(hmm, "hmm")
        add_hmm_settings(hmm)
        hmm.set_defaults(method=f"{method} hmm", untrained=untrained_hmm)

    models = {
        "crf": ("a conditional random field (the default)", add_crf),
        "hmm": ("a hidden Markov model", add_hmm),
    }
    parser.add_commands(models, title="models", default="crf")


def add_crf_settings(parser: argparse.ArgumentParser) -> None:
    """Add the settings of a CRF and of its search."""
    add = parser.add_argument_group("model and search").add_argument
    add_model_settings(add, "of L-BFGS")
    algorithms = ("lbfgs", "adamw", "sgd")
    add("--algorithm", choices=algorithms, default="lbfgs", help="how to minimise the loss (lbfgs)")
    add("--epochs", type=int, default=20, metavar="N", help="of adamw and sgd (20)")
    add("--batch-size", type=int, default=64, metavar="N", help="sentences, of adamw and sgd (64)")
    add("--learning-rate", type=float, metavar="X", help="of adamw and sgd")
    add(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="of the order of mini-batches, and of folds (0)",
    )


def untrained_crf(options: argparse.Namespace, train: Corpus | None) -> CRFTagger:
    """The tagger that the options describe; without a corpus, one without templates."""
    from jaxseq.crf import CRFTagger

    templates: Templates | None = None
    if train is not None:
        templates = choose_templates(options.templates, train.names[:-1], train.path)
    names = (
        "l1", "l2", "max_iterations", "seed", "weights", "cutoff", "scheme", "algorithm",
        "epochs", "batch_size", "learning_rate", "cores", "checkpoint",
    )  # fmt: skip
    settings = {name: getattr(options, name) for name in names}
    return CRFTagger(templates, **settings, progress=False if options.quiet else None)


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


# Parameters of `HMMTagger` whose options are called otherwise.
OPTION_NAMES = {"weight": "em_weight", "frozen": "freeze"}


def untrained_hmm(options: argparse.Namespace, train: Corpus) -> HMMTagger:
    """The tagger that the options describe; ValueError where its column is not in the corpus."""
    from jaxseq.hmm import HMMTagger

    names = (
        "column", "unknown_below", "initial_smoothing", "transition_smoothing",
        "emission_smoothing", "classes", "decoding", "max_iterations", "em", "weight", "frozen",
        "vocabulary", "cores", "checkpoint",
    )  # fmt: skip
    values = {name: getattr(options, OPTION_NAMES.get(name, name), None) for name in names}
    # What the user has not set keeps the tagger's own default, which the help repeats.
    settings: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    tagger = HMMTagger(**settings, progress=False if options.quiet else None)
    require_columns([tagger.column], train.columns, "the model", train.path)
    return tagger


def columns_read(tagger: Any) -> tuple[str, ...]:
    """Names of the columns that an untrained tagger will read."""
    templates = getattr(tagger, "templates", None)
    return (tagger.column,) if templates is None else templates.columns
