"""``jaxseq evaluate``: how good labels are."""

from __future__ import annotations

import argparse
import dataclasses
import json
from itertools import groupby

from jaxseq.cli._constraints import ConstrainedTagger, columns_of_rules, read_rules
from jaxseq.cli._files import (
    column_blocks,
    column_place,
    columns_of_model,
    read_corpus,
    require_columns,
    shown,
)
from jaxseq.cli._options import (
    add_constraint_options,
    add_corpus_options,
    check_constraint_options,
    flag,
)
from jaxseq.metrics import cohen_kappa, mcnemar, token_accuracy, usual_scores
from jaxseq.text import CONLLU

Labels = list[list[str]]
BOUNDARY = "-X-"  # the first cell of a line that ends a sentence, and is no token, for conlleval


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Evaluate the labels in a file, or those that a model predicts: spans as conlleval does, "
        "and labels that spell no spans, such as parts of speech, by tokens."
    )
    add = parser.add_argument
    add(
        "file",
        nargs="?",
        metavar="FILE",
        help="gold and predicted labels in its last two columns, as for conlleval; - for standard "
        "input",
    )
    add("--model", metavar="DIR", help="a model saved by jaxseq train, to predict with")
    add("--test", metavar="FILE", help="a labelled corpus to evaluate the model on")
    add_constraint_options(add)
    add_corpus_options(parser)
    add("--tokens", action="store_true", help="add token accuracy and Cohen's kappa")
    add(
        "--against",
        metavar="FILE2",
        help="another FILE with the same gold labels: add McNemar's test of the two predictions",
    )
    add("--json", action="store_true", help="print one JSON object instead of a table")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    gold, predicted, source = _labels(options)
    scores = usual_scores(gold, predicted)
    lines, report = [scores.table()], scores.as_dict()
    if options.tokens:
        accuracy, kappa = token_accuracy(gold, predicted), cohen_kappa(gold, predicted)
        lines += [f"tokens: accuracy: {100 * accuracy:6.2f}%; kappa: {kappa:.4f}"]
        report |= {"token_accuracy": accuracy, "kappa": kappa}
    if options.against is not None:
        # McNemar's test compares two predictions token by token, so the gold labels must agree.
        other_gold, other = _read_predictions(options.against, options)
        _check_same_gold(gold, other_gold, source, options.against)
        result = mcnemar(gold, predicted, other)
        lines += [
            f"McNemar: only {source} right: {result.n10}; only {options.against} right: "
            f"{result.n01}; chi2: {result.statistic:.4f}; p: {result.p_value:.4g}; "
            f"exact p: {result.exact_p_value:.4g}"
        ]
        report["mcnemar"] = dataclasses.asdict(result)
    print(json.dumps(report, allow_nan=False) if options.json else "\n".join(lines))
    return 0


def _labels(options: argparse.Namespace) -> tuple[Labels, Labels, str]:
    """Gold labels, predicted labels, and what the prediction is called."""
    if options.file is not None:
        if options.model is not None or options.test is not None:
            raise ValueError("evaluate: expected FILE, or --model and --test; got both")
        # Only two columns count, and names are needed for one that is named.
        needless = ("columns",) if options.label_column is None else ()
        for name in (*needless, "scheme_to", "unknown_label", "constraints", "beam"):
            if getattr(options, name) is not None:
                raise ValueError(f"{flag(name)}: expected with --model and --test only")
        return *_read_predictions(options.file, options), shown(options.file)
    if options.model is None or options.test is None:
        raise ValueError("evaluate: expected FILE, or --model and --test; got neither")
    return *_predictions_of_model(options), options.model


def _predictions_of_model(options: argparse.Namespace) -> tuple[Labels, Labels]:
    from jaxseq.taggers import load

    check_constraint_options(options)
    tagger = load(options.model)
    needed = columns_of_model(tagger, options.model)
    rules = None
    if options.constraints is not None:
        rules = read_rules(options.constraints, tagger.classes_.tolist())
    corpus = read_corpus(options.test, options)
    require_columns(needed, corpus.columns, "the model", options.test)
    require_columns(columns_of_rules(rules), corpus.columns, str(options.constraints), options.test)
    gold = corpus.known_labels()
    if rules is None:
        return gold, tagger.predict(corpus.sentences)
    # It says in one line which constraints could not be met, where the tagger warns each time.
    constrained = ConstrainedTagger(tagger, rules, options.beam)
    predicted = constrained.predict(corpus.sentences)
    constrained.say_unmet()
    return gold, predicted


def _read_predictions(path: str, options: argparse.Namespace) -> tuple[Labels, Labels]:
    """Gold labels, in the column before the last unless it is named, and predicted ones, the last.

    -DOCSTART- lines are tokens, as for conlleval, and -X- lines none.
    """
    gold: Labels = []
    predicted: Labels = []
    for block in column_blocks(path, options):
        width = len(block.columns)
        if width < 2:
            raise ValueError(
                f"{shown(path)}:{block.first}: expected at least 2 columns, the last two gold and "
                f"predicted labels, found {width}: {block.lines[0]!r:.200}"
            )
        place = -2
        if options.label_column is not None and not block.is_docstart:
            names = options.columns or (CONLLU if block.is_conllu else ())
            names = (*names, *[None] * (width - len(names)))
            place = column_place(names[: width - 1], options.label_column)
        elif block.is_conllu:
            raise ValueError(
                f"{shown(path)}:{block.line_number(0)}: expected --label-column with the column of "
                "the gold labels in CoNLL-U; the predicted ones are the last column"
            )
        rows = zip(block.columns[0], block.columns[place], block.columns[-1])
        for ends, pairs in groupby(rows, lambda row: row[0] == BOUNDARY):
            if not ends:
                _, right, guessed = zip(*pairs)
                gold.append(list(right))
                predicted.append(list(guessed))
    if not gold:
        raise ValueError(f"{shown(path)}: expected at least one token, found none")
    return gold, predicted


def _check_same_gold(gold: Labels, other: Labels, source: str, path: str) -> None:
    if len(gold) != len(other):
        raise ValueError(
            f"{path}: expected {len(gold)} sentences, as {source} has, found {len(other)}"
        )
    for index, (ours, theirs) in enumerate(zip(gold, other), 1):
        if ours != theirs:
            raise ValueError(
                f"{path}: sentence {index}: expected the gold labels of {source}, found others"
            )
