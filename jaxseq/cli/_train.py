"""``jaxseq train``: from a labelled corpus to a model."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxseq.cli._codl import (
    add_codl_options,
    check_codl_options,
    lines_on_codl,
    rules_to_train_under,
    train_codl,
)
from jaxseq.cli._constrain import ConstrainedTagger, columns_of_rules
from jaxseq.cli._corpus import Corpus, add_corpus_options, read_corpus
from jaxseq.cli._entropy_choice import check_choosable, checkpoint_files
from jaxseq.cli._files import require_model_place
from jaxseq.cli._methods import Trained, train_with
from jaxseq.cli._model_options import add_model_settings
from jaxseq.cli._processes import (
    add_process_options,
    check_model_devices,
    on_all_devices,
    read_training,
    run_in_processes,
)
from jaxseq.cli._template_choice import BUILT_IN, choose_templates
from jaxseq.cli._train_hmm import (
    OF_A_CRF,
    add_model_options,
    check_model_options,
    line_on_em,
    train_hmm,
    untrained_hmm,
)
from jaxseq.cli._train_shards import add_shards_option, check_shards_alone, train_on_shards
from jaxseq.cli._unlabelled import (
    add_unlabelled_options,
    check_unlabelled_options,
    read_unlabelled,
)
from jaxseq.metrics import span_scores
from jaxseq.text import Sentence, Templates

if TYPE_CHECKING:
    import numpy as np

    from jaxseq.scale import Peers
    from jaxseq.tagger import CRFTagger, HMMTagger


def add_train(subparsers: Any) -> None:
    """Add the parser of ``jaxseq train``."""
    parser = subparsers.add_parser(
        "train",
        help="train a CRF, or an HMM, on a labelled corpus",
        description="Train a CRF, or an HMM, on a labelled corpus and save it. Ctrl-C keeps the "
        "best model so far.",
    )
    add = parser.add_argument
    train = add(
        "--train",
        required=True,
        nargs="+",
        metavar="FILE",
        help="the corpus, in one file or several; the last column is the label",
    )
    add("--dev", metavar="FILE", help="another, to evaluate the model on")
    templates = add(
        "--templates",
        required=True,
        metavar="T",
        help=f"a file of templates, jaxseq's or CRF++'s, or one of {', '.join(BUILT_IN)}",
    )
    add("--out", required=True, metavar="DIR", help="where to save the model")
    add_shards_option(parser, (train, templates))
    add_model_options(parser, templates)
    add_corpus_options(parser)
    search = parser.add_argument_group("search")
    _add_search_options(search.add_argument)
    add_unlabelled_options(parser)
    add_codl_options(parser)
    add_process_options(parser)
    add("--quiet", action="store_true", help="no progress bar and no report")
    add("--json", action="store_true", help="report as one JSON object")
    usual = {name: parser.get_default(name) for name in OF_A_CRF}
    parser.set_defaults(run=_run, usual=usual)


def _add_search_options(add: Any) -> None:
    add_model_settings(add, "of L-BFGS or EM")
    add("--algorithm", choices=("lbfgs", "adamw", "sgd"), default="lbfgs", help="(lbfgs)")
    add(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="of the order of mini-batches, and of folds (0)",
    )
    add("--epochs", type=int, default=20, metavar="N", help="of adamw and sgd (20)")
    add("--batch-size", type=int, default=64, metavar="N", help="sentences, adamw and sgd (64)")
    add("--learning-rate", type=float, metavar="X", help="of adamw and sgd")
    add(
        "--checkpoint",
        metavar="FILE",
        help="keep the unfinished search here, and go on from it; self-training and CoDL keep "
        "their labels here instead, --choose-entropy-weight its scores and its choice beside it, "
        "in FILE.cross-validation and FILE.entropy-weight",
    )
    add("--warm-start", metavar="DIR", help="begin with the weights of this model")
    add("--cores", type=int, metavar="N", help="threads to train with (all)")


def _run(options: argparse.Namespace) -> int:
    if options.shards is not None:
        return run_in_processes(options, _train_from_shards)
    if options.streams is not None:
        raise ValueError("--streams: expected along with --shards only")
    options.files, options.train = options.train, options.train[0]
    return run_in_processes(options, _train)


def _train_from_shards(options: argparse.Namespace, peers: Peers | None) -> int:
    writes = peers is None or peers.is_first
    dev = dev_labels = None
    with contextlib.nullcontext() if peers is None else peers.guard():
        check_shards_alone(options)
        if options.checkpoint is not None:
            _check_checkpoint(options.checkpoint, options.out)
        if writes:
            require_model_place(options.out)
        if options.dev is not None and writes:
            dev = read_corpus(options.dev, options)
            dev_labels = dev.known_labels()
    tagger, counted = train_on_shards(options, _untrained_crf, peers)
    if not writes:
        return 0
    tagger.save(options.out)
    report, table = _report(Trained(tagger), counted, options.out), None
    if dev is not None and dev_labels is not None:
        scores = span_scores(dev_labels, tagger.predict(dev.sentences))
        table, report["dev"] = scores.table(), scores.as_dict()
    if not options.quiet:
        print(json.dumps(report, allow_nan=False) if options.json else _as_text(report, table))
    return 0


class _Input(NamedTuple):
    """All that is read before training; with several processes, the part of this one."""

    tagger: CRFTagger | HMMTagger
    train: Corpus
    numbers: np.ndarray | None
    others: list[Sentence] | None
    older: CRFTagger | None
    rules: Any
    dev: Corpus | None
    dev_labels: list[list[str]] | None


def _read(options: argparse.Namespace, peers: Peers | None) -> _Input:
    """Check the options, and read all files: a mistake in one is found before training."""
    from jaxseq.tagger import load

    writes = peers is None or peers.is_first
    check_model_options(options, options.usual)
    check_unlabelled_options(options)
    check_codl_options(options)
    check_model_devices(options)
    if writes:
        require_model_place(options.out)
    if options.checkpoint is not None:
        _check_checkpoint(options.checkpoint, options.out)
    train, numbers = read_training(options.files, options, peers)
    tagger, needed = _untrained(options, train)
    rules = rules_to_train_under(options, train, peers)
    needed = tuple(dict.fromkeys([*needed, *columns_of_rules(rules)]))
    dev = dev_labels = others = None
    if options.dev is not None and writes:
        dev = read_corpus(options.dev, options, like=train.names)
        dev_labels = dev.known_labels()
    if options.choose_entropy_weight:
        check_choosable(train)
    if options.unlabelled is not None:
        part = (0, 1) if peers is None else (peers.index, peers.count)
        others = read_unlabelled(options, train, needed, part)
    older = None if options.warm_start is None else load(options.warm_start)
    return _Input(tagger, train, numbers, others, older, rules, dev, dev_labels)


def _train(options: argparse.Namespace, peers: Peers | None) -> int:
    from jaxseq.scale._watch import others_not_needed
    from jaxseq.tagger import CRFTagger
    from jaxseq.tagger._hmm_tagger import ImpossibleSentence

    writes = peers is None or peers.is_first
    with contextlib.nullcontext() if peers is None else peers.guard():
        tagger, train, numbers, others, older, rules, dev, dev_labels = _read(options, peers)
    together = on_all_devices(options, peers, numbers)
    if options.codl and others is not None:
        trained = train_codl(tagger, train, others, rules, options, peers, together)
    elif isinstance(tagger, CRFTagger):
        trained = train_with(tagger, train, others, older, options, together)
    else:
        trained = train_hmm(tagger, train, others, options, together)
    counted = _count(train, trained, peers)
    if not writes:
        return 0
    if trained.interrupted is not None:
        print(
            f"jaxseq: interrupted after {trained.interrupted}: the best model so far is kept",
            file=sys.stderr,
        )
    with others_not_needed():
        trained.tagger.save(options.out)
    report = _report(trained, counted, options.out)
    table = None
    if dev is not None and dev_labels is not None:
        predictor = trained.tagger
        if rules is not None:
            predictor = ConstrainedTagger(trained.tagger, rules, options.beam)
        # What did not fit one device in training does not now.
        shared = {"mesh": together["mesh"]} if options.model_devices is not None else {}
        try:
            scores = span_scores(dev_labels, predictor.predict(dev.sentences, **shared))
            table, report["dev"] = scores.table(), scores.as_dict()
        except ImpossibleSentence as error:  # the model is written: what it did is told still
            print(f"jaxseq: {options.dev}: not evaluated: {error}", file=sys.stderr)
    if options.quiet:
        return 0
    print(json.dumps(report, allow_nan=False) if options.json else _as_text(report, table))
    return 0


def _check_checkpoint(checkpoint: str, out: str) -> None:
    """ValueError unless a search can be kept there."""
    if os.path.isdir(checkpoint):
        raise ValueError(f"{checkpoint}: expected a file, found a folder")
    model = Path(out).resolve()
    for name in checkpoint_files(checkpoint):
        if model in (Path(name).resolve(), *Path(name).resolve().parents):
            raise ValueError(f"{name}: expected a file outside of the model's folder {out}")


def _untrained(
    options: argparse.Namespace, train: Corpus
) -> tuple[CRFTagger | HMMTagger, Sequence[str]]:
    """The tagger that the options describe, and the columns that it reads."""
    if options.model == "hmm":
        hmm = untrained_hmm(options, train)
        return hmm, (hmm.column,)
    templates = choose_templates(options.templates, train.names[:-1], options.train)
    return _untrained_crf(templates, options), templates.columns


def _untrained_crf(templates: Templates | None, options: argparse.Namespace) -> CRFTagger:
    from jaxseq.tagger import CRFTagger

    return CRFTagger(
        templates,
        l1=options.l1,
        l2=options.l2,
        max_iterations=options.max_iterations,
        seed=options.seed,
        weights=options.weights,
        cutoff=options.cutoff,
        scheme=options.scheme,
        algorithm=options.algorithm,
        epochs=options.epochs,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        cores=options.cores,
        progress=False if options.quiet else None,
        checkpoint=options.checkpoint,
    )


def _count(train: Corpus, trained: Trained, peers: Peers | None) -> dict[str, int]:
    """Sentences and tokens, those of all processes together."""
    own = [len(train.sentences), train.tokens]
    both = [own] if peers is None else peers.exchange(own)
    sentences, tokens = (sum(numbers) for numbers in zip(*both))
    if trained.unlabelled is not None and peers is not None and peers.count > 1:
        for name in ("sentences", "tokens"):
            trained.unlabelled[name] = sum(peers.exchange(trained.unlabelled[name]))
    return {"sentences": sentences, "tokens": tokens}


def _report(trained: Trained, counted: dict[str, int], out: str) -> dict[str, Any]:
    from jaxseq.tagger import CRFTagger

    tagger: CRFTagger | HMMTagger = trained.tagger
    # A model that is mixed of others was not trained itself; how long CoDL took is told apart.
    taken = getattr(tagger, "seconds_", {})
    features, everything = (taken.get(name, 0.0) for name in ("features", "all"))
    if isinstance(tagger, CRFTagger):
        counts = {"attributes": tagger.extractor_.attribute_count}
        counts["evaluations"] = tagger.n_evaluations_
    else:
        counts = {"words": len(tagger.vocabulary_.words)}
    return {
        **counted,
        "unlabelled": trained.unlabelled,
        **counts,
        "labels": len(tagger.classes_),
        "iterations": tagger.n_iter_,
        "loss": tagger.loss_ if math.isfinite(tagger.loss_ or 0.0) else None,
        "outcome": tagger.outcome_,
        "seconds": {"features": features, "training": everything - features, **trained.seconds},
        "model": out,
        "dev": None,
    }


def _as_text(report: dict[str, Any], table: str | None) -> str:
    seconds = report["seconds"]
    loss = "" if report["loss"] is None else f", loss {report['loss']:.6g}"
    title, kind = ("words", "words") if "words" in report else ("features", "attributes")
    lines = [
        f"read      {report['sentences']:,} sentences, {report['tokens']:,} tokens",
        *_lines_on_unlabelled(report["unlabelled"], seconds),
        f"{title:8}  {report[kind]:,} {kind}, {report['labels']} labels "
        f"({seconds['features']:.1f} s)",
        f"training  {report['iterations']} iterations{loss} ({seconds['training']:.1f} s)",
        f"          {report['outcome']}",
        f"model     {report['model']}",
    ]
    return "\n".join(lines if table is None else [*lines, "", table])


def _lines_on_unlabelled(report: dict[str, Any] | None, seconds: dict[str, float]) -> list[str]:
    if report is None:
        return []
    counts = f"          {report['sentences']:,} unlabelled sentences, {report['tokens']:,} tokens"
    if report["method"] == "entropy":
        names = ("entropy_weight", "entropy_gradient", "vocabulary")
        weight, gradient, vocabulary = (report[name] for name in names)
        chosen = f"weight {weight:g}, gradient {gradient}, vocabulary {vocabulary}"
        return [counts, f"entropy   {chosen}"]
    if report["method"] == "codl":
        return [counts, *lines_on_codl(report, seconds["codl"])]
    if report["method"] == "em":
        return [counts, line_on_em(report)]
    rounds = f"rounds    {report['rounds']} of self-training ({seconds['self_training']:.1f} s)"
    return [counts, rounds, f"          {report['outcome']}"]
