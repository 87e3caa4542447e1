"""``jaxseq active answer``: take labels in, and learn from them."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from jaxseq.cli._active_run import ActiveRun, add_folder_and_json, opened, tell
from jaxseq.cli._active_status import line_on_training
from jaxseq.cli._files import iter_input, shown

if TYPE_CHECKING:
    from jaxseq.learn.active import Answer


def add_answer(subparsers: Any) -> None:
    """Add the parser of ``jaxseq active answer``."""
    parser = subparsers.add_parser(
        "answer",
        help="take in answers, from Label Studio or as JSON lines, and train",
        description="Take in answers, some or all of the round under way, and train. If one of "
        "them is illegal none is taken in. Tasks of past rounds that come again in an export of "
        "Label Studio count as tasks without an answer, if their labels are those taken in then.",
    )
    add_folder_and_json(parser)
    parser.add_argument(
        "file",
        metavar="FILE",
        help='Label Studio\'s export, as JSON or JSON-MIN, or JSON lines such as {"round": 1, '
        '"sentence": 17, "position": 4, "label": "B-NP"} (- is standard input)',
    )
    parser.add_argument(
        "--no-train", action="store_true", help="only take them in; the round goes on"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    lines = list(iter_input(options.file))
    with opened(options.folder) as run:
        answers, skipped = read_answers(lines, shown(options.file), run)
        try:
            run.learner.answer(answers, round=run.round)
        except ValueError as error:  # labels that the scheme forbids, in one sentence
            raise ValueError(f"{shown(options.file)}: {error}") from error
        without = f", {skipped:,} without an answer" if skipped else ""
        tokens = len({(answer.sentence, answer.position) for answer in answers})
        told = [f"answers   {tokens:,} tokens{without}"]
        if not options.no_train:
            run.train()
            told.append(line_on_training(run))
        report = run.report() | {"answers": tokens, "without_answer": skipped}
        tell(report, options.json, told)
    return 0


def read_answers(lines: list[str], path: str, run: ActiveRun) -> tuple[list[Answer], int]:
    """The answers of a file in either form, at least one, and how many entries had none.

    Args:
        lines: of the file. path: what messages call it. run: whom the answers are for.
    """
    from jaxseq.cli._active_lines import answers_of_lines
    from jaxseq.cli._active_rules import AnswerRules
    from jaxseq.cli._label_studio_export import answers_of_export

    rules = AnswerRules(run.round, run.corpora, run.classes, run.label_of)
    text = "\n".join(lines)
    if text.lstrip().startswith("["):
        answers, skipped = answers_of_export(_parsed(text, path), path, rules)
    else:
        answers, skipped = answers_of_lines(lines, path, rules)
    if not answers:
        entries = f"{skipped} entries without one" if skipped else "nothing"
        raise ValueError(f"{path}: expected at least one answer, found {entries}")
    return answers, skipped


def _parsed(text: str, path: str) -> list[Any]:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno}: expected JSON, got {error.msg}") from error
    except RecursionError:
        raise ValueError(f"{path}: expected an export of Label Studio, got JSON too deep") from None
