"""The models that may be trained: their settings as options, and taggers to be trained."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from jaxseq.cli._files import Corpus, require_columns, require_file
from jaxseq.cli._options import AUTO, Names, add_classes_option, add_model_settings
from jaxseq.text import (
    CONLL2000,
    CONLL2003,
    CONLLU,
    GENE_MENTION,
    TOKEN_IDENTITY,
    Templates,
    general_templates,
    read_templates,
)

if TYPE_CHECKING:
    from jaxseq.crf import CRFTagger
    from jaxseq.hmm import HMMTagger

FAMILIES = ("initial", "transition", "emission")  # the multinomials of a hidden Markov model


def add_crf_settings(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("model and search").add_argument
    add_model_settings(add, "of L-BFGS")
    add_classes_option(add)
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
    add(
        "--representation",
        metavar="WORDS",
        help="what jaxseq represent has learnt of words; the templates get clusters of the word "
        "and its neighbours more, unless they call them themselves",
    )


def untrained_crf(options: argparse.Namespace, train: Corpus | None) -> CRFTagger:
    """The tagger that the options describe; without a corpus, one without templates."""
    from jaxseq.crf import CRFTagger

    templates: Templates | None = None
    if train is not None:
        templates = choose_templates(options.templates, train.layout.features, train.path)
    names = (
        "l1", "l2", "max_iterations", "seed", "weights", "cutoff", "scheme", "algorithm",
        "epochs", "batch_size", "learning_rate", "cores", "checkpoint", "classes",
        "representation",
    )  # fmt: skip
    settings = {name: getattr(options, name) for name in names}
    if options.l2 == AUTO:  # chosen when the sentences are read
        settings["l2"] = None
    if options.representation is not None:
        from jaxseq.representations import load_representation

        settings["representation"] = load_representation(options.representation)
    return CRFTagger(templates, **settings, progress=False if options.quiet else None)


def add_hmm_settings(parser: argparse.ArgumentParser) -> None:
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
    add_classes_option(add)
    add(
        "--decoding",
        choices=("viterbi", "max_marginal"),
        help="predict the best labelling, or the best label of each token (viterbi)",
    )


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
    if templates is None:
        return (tagger.column,)
    representation = tagger.representation
    more = () if representation is None else (representation.column,)
    return tuple(dict.fromkeys([*templates.columns, *more]))


# Templates that the user names: a file, or those of a paper. Without a name they are the general
# ones, for all columns that there are.

GENERAL = "general"

# Names that need no file; a file of such a name is reached as ``./name``.
OF_PAPERS = {
    "conll2000": CONLL2000,
    "conll2003": CONLL2003,
    "gene": GENE_MENTION,
    "token": TOKEN_IDENTITY,
}

BUILT_IN = (GENERAL, *OF_PAPERS)


def add_templates_option(add: Any) -> Any:
    return add(
        "--templates",
        metavar="T",
        help=f"a file of templates, jaxseq's or CRF++'s, or one of {', '.join(BUILT_IN)} "
        f"({GENERAL}: words, their spelling and neighbours, and all other columns)",
    )


def choose_templates(name: str | None, columns: Names, place: str) -> Templates:
    """The templates of this built-in name, or those in the file of this name.

    The columns are those of the training data, without the label; a CRF++ file counts them from 0.
    """
    there = [column for column in columns if column is not None]
    if name is None or name == GENERAL:
        # The annotation of CoNLL-U is what is learnt, now or later: new text has none of it.
        is_conllu = len(set(there) & set(CONLLU)) >= len(CONLLU) - 1
        return general_templates(["word"] if is_conllu else there)
    if name in OF_PAPERS:
        templates = OF_PAPERS[name]
    else:
        if not os.path.exists(name):
            raise ValueError(
                f"--templates: expected a file or one of {', '.join(BUILT_IN)}, got {name!r}"
            )
        require_file(name)
        # A column that is left out keeps its number, for CRF++, but cannot be read.
        templates = read_templates(name, [column or "-" for column in columns])
    require_columns(templates.columns, there, f"the template set {name}", place)
    return templates
