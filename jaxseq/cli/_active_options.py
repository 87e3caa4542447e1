"""Options of an active learner and of the tagger inside, and the learner that they describe."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jaxseq.cli._model_options import add_model_settings
from jaxseq.text import Templates

if TYPE_CHECKING:
    from jaxseq.learn.active import Strategy
    from jaxseq.tagger import ActiveLearner

OF_A_STRATEGY = {
    "per_sentence": ("tokens", "groups"),
    "per_form": ("tokens",),
    "alike": ("groups",),
    "width": ("spans",),
    "by": ("sequences",),
    "ask": ("sequences",),
    "keep_sure": ("sequences",),
}
"""Option → the only strategies that have it; none is set unless the user gives it."""


def add_learner_options(parser: argparse.ArgumentParser) -> None:
    """Add the groups of options about what to ask, when to stop, and how to train."""
    add = parser.add_argument_group("what to ask, and when to stop").add_argument
    add(
        "--strategy",
        choices=("tokens", "groups", "spans", "sequences"),
        default="tokens",
        help="ask for single tokens, for those that stand for many like them, for stretches of "
        "tokens, or for whole sentences (tokens)",
    )
    add("--count", type=int, default=500, metavar="N", help="tokens, or sentences, a round (500)")
    add(
        "--threshold",
        type=float,
        metavar="P",
        help="ask for no label that is at least so probable (0.99; of groups 0.999)",
    )
    add("--per-sentence", type=int, metavar="N", help="of tokens and groups: of one sentence a "
        "round, at most (any number)")  # fmt: skip
    add("--per-form", type=int, metavar="N", help="of tokens: of one word a round, at most (any "
        "number)")  # fmt: skip
    add(
        "--alike",
        metavar="TEMPLATE",
        help="of groups: tokens are alike where it has one value (lower(word[0]); with parts of "
        "speech lower(word[0])|pos[-1]|pos[1] is better)",
    )
    add("--width", type=int, metavar="N", help="of spans: tokens, at most (3)")
    add(
        "--by",
        choices=("viterbi", "entropy", "n_best"),
        help="of sequences: what tells how unsure the model is of a sentence (viterbi)",
    )
    add("--ask", choices=("all", "unsure"), help="of sequences: which of their tokens (all)")
    add(
        "--keep-sure",
        choices=("open", "model"),
        help="of sequences: whether the other tokens stay open or take the model's label (open)",
    )
    add("--initial", type=int, default=50, metavar="N", help="sentences of the first round, if no "
        "label is known (50)")  # fmt: skip
    add(
        "--initial-how",
        choices=("longest", "random", "shortest"),
        default="longest",
        help="which ones (longest)",
    )
    add("--kappa", type=float, default=0.9999, metavar="K", help="stop when the last two models "
        "agree by more, and little is left to ask (0.9999)")  # fmt: skip
    add("--budget", type=int, metavar="N", help="stop after so many labelled tokens")
    add("--max-rounds", type=int, metavar="N", help="stop after so many rounds")
    _add_training_options(parser.add_argument_group("training").add_argument)


def _add_training_options(add: Any) -> None:
    add_model_settings(add, "of L-BFGS, a round")
    add("--between", type=int, metavar="N", help="iterations of a round after which more is asked, "
        "at most; the last round, and jaxseq active train, have all (all)")  # fmt: skip
    add("--seed", type=int, default=0, metavar="N", help="of random first sentences (0)")
    add("--cores", type=int, metavar="N", help="threads to train with (all)")


def check_learner_options(options: argparse.Namespace) -> None:
    """ValueError for options that do not go together, or a strategy that makes no sense."""
    for name, strategies in OF_A_STRATEGY.items():
        if getattr(options, name) is not None and options.strategy not in strategies:
            flag = f"--{name.replace('_', '-')}"
            wanted = " or ".join(strategies)
            raise ValueError(f"{flag}: expected along with --strategy {wanted} only")
    for name in ("budget", "between"):
        given = getattr(options, name)
        if given is not None and given < 1:
            raise ValueError(f"--{name}: expected 1 or more, got {given}")
    _strategy(options)


def _strategy(options: argparse.Namespace) -> Strategy:
    from jaxseq.learn.active import Groups, Sequences, Spans, Tokens

    given = {
        name: getattr(options, name) for name in OF_A_STRATEGY if getattr(options, name) is not None
    }
    if options.threshold is not None:
        given["threshold"] = options.threshold
    kinds = {"tokens": Tokens, "groups": Groups, "spans": Spans, "sequences": Sequences}
    with naming_options({"count", *given}):
        return kinds[options.strategy](count=options.count, **given)


@contextmanager
def naming_options(settings: Collection[str]) -> Iterator[None]:
    """Errors on one of these settings, which begin with its name, begin with the option's."""
    try:
        yield
    except ValueError as error:
        name, colon, rest = str(error).partition(":")
        if name not in settings:
            raise
        raise ValueError(f"--{name.replace('_', '-')}{colon}{rest}") from None


def new_learner(options: argparse.Namespace, templates: Templates) -> ActiveLearner:
    """The learner that the options describe."""
    from jaxseq.tagger import ActiveLearner, CRFTagger

    tagger = CRFTagger(
        templates,
        l1=options.l1,
        l2=options.l2,
        max_iterations=options.max_iterations,
        weights=options.weights,
        cutoff=options.cutoff,
        scheme=options.scheme,
        cores=options.cores,
        seed=options.seed,
    )
    return ActiveLearner(
        tagger,
        _strategy(options),
        initial=options.initial,
        initial_how=options.initial_how,
        kappa=options.kappa,
        max_rounds=options.max_rounds,
        budget=options.budget,
        seed=options.seed,
        between=options.between,
    )
