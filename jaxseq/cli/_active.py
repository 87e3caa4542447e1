"""``jaxseq active``: active learning with people, or other programs, as annotators.

Each subcommand is a process of its own on one folder; whatever happens to it, what was answered
is in the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxseq.active import Answer
from jaxseq.cli._annotate import add_annotate
from jaxseq.cli._files import (
    FEATURES,
    LABEL,
    STANDARD,
    Corpus,
    iter_blocks,
    iter_input,
    read_corpus,
    require_columns,
    require_file,
    require_model_place,
    require_rereadable,
    shown,
)
from jaxseq.cli._options import WEIGHTS, Names, add_corpus_options
from jaxseq.cli._questions import (
    ActiveRun,
    AnswerRules,
    Corpora,
    Question,
    Refusals,
    add_active_train,
    add_folder_and_json,
    add_learner_options,
    add_status,
    check_learner_options,
    labelling_config,
    line_on_training,
    lines_of,
    lines_on_dev,
    looked_at,
    naming_options,
    new_learner,
    opened,
    questions_of,
    task_of,
    tell,
    write_corpora,
)
from jaxseq.cli._templates import BUILT_IN, BY_COLUMNS, choose_templates, usual_templates
from jaxseq.cli._unlabelled import OUTSIDE, read_unlabelled
from jaxseq.text import Sentence, Templates, open_to_replace

# -------------------------------------------------------------------------------------------------
# The pool of active learning: sentences in the format of the labelled ones, or plain text.


def templates_for_pool(
    options: argparse.Namespace, train: Corpus | None
) -> tuple[Templates, Corpus]:
    """The templates, and a corpus with the columns that the pool is to have.

    Args:
        options: those of ``jaxseq active start``.
        train: the labelled sentences, or None: then a corpus of none stands for them.
    """
    like, place = train, options.train
    if like is None:
        place = shown(options.pool)
        like = Corpus(place, [], [list(options.labels)], _names_of_pool(options))
    columns = like.names[:-1]
    name = usual_templates(columns) if options.templates is None else options.templates
    return choose_templates(name, columns, place), like


def _names_of_pool(options: argparse.Namespace) -> Names:
    """Names of the columns that sentences with labels would have, if there were any."""
    if options.columns is not None:
        if len(options.columns) < 2 or options.columns[-1] is None:
            raise ValueError("--columns: expected a name for the label, the last, and one before")
        return options.columns
    if options.pool_format == "plain":
        return (FEATURES[0], LABEL)
    path: str = options.pool
    if path == STANDARD:
        raise ValueError("--pool: expected a file, or --columns with the names of its columns")
    require_file(path)
    require_rereadable(path, "or else --columns with the names of its columns")
    blocks = iter_blocks(path, options.delimiter)
    width = next((block.width for block in blocks if not block.is_docstart), 0)
    if not 1 <= width <= len(FEATURES) + 1:
        raise ValueError(
            f"{path}: expected sentences of 1 to {len(FEATURES) + 1} columns, or --columns with "
            f"their names; found {f'{width} columns' if width else 'no sentence'}"
        )
    return (*FEATURES[:width], LABEL)


def read_pool(options: argparse.Namespace, like: Corpus, needed: Sequence[str]) -> list[Sentence]:
    """The sentences of ``--pool``, without labels.

    Args:
        options: those of ``jaxseq active start``.
        like: of `templates_for_pool`. needed: the columns that the templates read.

    Returns:
        At least one sentence.
    """
    if options.pool_format == "plain":
        return _read_plain(options, needed)
    named = argparse.Namespace(**{**vars(options), "unlabelled": [options.pool]})
    sentences = read_unlabelled(named, like, needed)
    if options.train is None:
        _refuse_labels(sentences, like, set(options.labels), shown(options.pool))
    return sentences


def _refuse_labels(
    sentences: Sequence[Sentence], like: Corpus, labels: set[str], place: str
) -> None:
    """ValueError when a column holds some of the labels: without --train nothing says which it is.

    What also occurs in the first column, as punctuation does, and the O, prove nothing.
    """
    words, *others = sentences[0].columns
    cells = {name: {cell for s in sentences for cell in s[name]} for name in (words, *others)}
    for name in others:
        found = sorted((cells[name] & labels) - {OUTSIDE} - cells[words])
        if found:
            raise ValueError(
                f"{place}: expected no labels in column {like.names.index(name) + 1}, {name!r}, "
                f"found {found[0]!r} (--columns names the columns, the label last, and leaves one "
                "out with '-')"
            )


def _read_plain(options: argparse.Namespace, needed: Sequence[str]) -> list[Sentence]:
    place = shown(options.pool)
    require_columns(needed, [FEATURES[0]], f"the template set {options.templates}", place)
    lines = (line.split() for line in iter_input(options.pool))
    sentences = [Sentence({FEATURES[0]: words}) for words in lines if words]
    if not sentences:
        raise ValueError(f"{place}: expected at least one sentence, found none")
    return sentences


# -------------------------------------------------------------------------------------------------
# ``jaxseq active start``: a folder for active learning, and its first model.


if TYPE_CHECKING:
    from jaxseq.active import ActiveLearner


def add_start(subparsers: Any) -> None:
    """Add the parser of ``jaxseq active start``."""
    parser = subparsers.add_parser(
        "start",
        help="make the folder of a run, and train its first model",
        description="Make the folder that all other subcommands work on, with copies of the "
        "sentences, and train the first model if there are labels. Without --train the first "
        "queries are whole sentences.",
    )
    add = parser.add_argument
    add("--pool", required=True, metavar="FILE", help="sentences to choose from; labels in it are "
        "never looked at; columns may lack the label (- is standard input)")  # fmt: skip
    add("--pool-format", choices=("same", "plain"), default="same", help="of the pool: columns "
        "as in --train, or plain text, one sentence a line, tokens between spaces (same)")  # fmt: skip
    add("--train", metavar="FILE", help="sentences that have labels; the last column is the label")
    add("--labels", type=parse_labels, metavar="A,B,…", help="all labels that may be given; with "
        "--train those that it lacks")  # fmt: skip
    add("--dev", metavar="FILE", help="labelled sentences to score every model on")
    add("--out", required=True, metavar="DIR", help="the folder to make")
    add("--templates", metavar="T", help="a file of templates, jaxseq's or CRF++'s, or one of "
        f"{', '.join(BUILT_IN)} (of {', '.join(BY_COLUMNS)} the first that the columns "
        "allow)")  # fmt: skip
    add_corpus_options(parser)
    add_learner_options(parser)
    add("--json", action="store_true", help="report as one JSON object")
    parser.set_defaults(run=_run_start)


def parse_labels(text: str) -> tuple[str, ...]:
    """Labels separated by commas, as an argument.

    Example:
        >>> parse_labels("B-NP, I-NP,O")
        ('B-NP', 'I-NP', 'O')
    """
    labels = tuple(label.strip() for label in text.split(","))
    if "" in labels or len(set(labels)) < len(labels):
        raise argparse.ArgumentTypeError(
            f"expected different labels separated by commas, such as B-NP,I-NP,O, got {text!r}"
        )
    return labels


def _run_start(options: argparse.Namespace) -> int:
    check_learner_options(options)
    out = Path(options.out)
    _require_place(out)
    if options.train is None and options.labels is None:
        raise ValueError("--labels: expected the labels that may be given, since --train is not")
    train = None
    if options.train is not None:
        train = read_corpus(options.train, options, scheme=options.scheme)
    templates, like = templates_for_pool(options, train)
    pool = read_pool(options, like, templates.columns)
    dev = None
    if options.dev is not None:
        dev = read_corpus(options.dev, options, like=like.names)
    learner = new_learner(options, templates)
    _write(out, learner, train, pool, dev, options)
    with opened(options.out) as run:
        told = []
        if run.has_labels():
            run.train()
            told.append(line_on_training(run))
        report = run.report()
    counts = (0 if train is None else len(train.sentences), len(pool))
    report |= {"given_sentences": counts[0], "pool_sentences": counts[1], "labels": run.classes}
    print(json.dumps(report, allow_nan=False) if options.json else _as_text(report, told))
    return 0


def _as_text(report: dict[str, Any], told: list[str]) -> str:
    lines = [
        f"read      {report['given_sentences']:,} sentences with labels, "
        f"{report['pool_sentences']:,} to choose from",
        f"labels    {' '.join(report['labels'])}; jaxseq active labels --add adds others",
        *told,
        *lines_of(report),
        f"then      jaxseq active query {report['folder']}, or annotate {report['folder']}",
    ]
    return "\n".join(lines)


# ------------------------------------------------------------------------------------- folder


def _require_place(out: Path) -> None:
    """ValueError unless a new folder can be made there."""
    if Path.cwd().is_relative_to(out.resolve()):
        raise ValueError(f"--out: expected a folder to make, got {str(out)!r}, which is in use")
    if out.is_dir() and any(out.iterdir()):
        raise ValueError(f"{out}: expected nothing or an empty folder there, found other files")
    require_model_place(str(out))


def _write(
    out: Path,
    learner: ActiveLearner,
    train: Corpus | None,
    pool: list[Any],
    dev: Corpus | None,
    options: argparse.Namespace,
) -> None:
    """Make the folder, which appears only when all of it is there."""
    given = [] if train is None else [s.without(str(train.names[-1])) for s in train.sentences]
    sources = {name: getattr(options, name) for name in ("train", "pool", "dev")}
    dev_sentences = [] if dev is None else [s.without(str(dev.names[-1])) for s in dev.sentences]
    dev_labels = [] if dev is None else dev.known_labels()
    corpora = Corpora([*given, *pool], dev_sentences, dev_labels, sources)
    labels: Any = None if train is None else [*train.labels, *[None] * len(pool)]
    classes = set(options.labels or ())
    if train is not None:
        classes |= {label for row in train.labels for label in row if label is not None}
    folder = out.absolute().with_name(f".{out.absolute().name}.{secrets.token_hex(6)}.tmp")
    try:
        learner.begin(corpora.pool, labels, sorted(classes), folder=folder)
        write_corpora(folder, corpora)
        os.replace(folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -------------------------------------------------------------------------------------------------
# Answers in JSON lines, as programs write them.


def answers_of_lines(
    lines: Iterable[str], path: str, rules: AnswerRules
) -> tuple[list[Answer], int]:
    """Read answers, a JSON object a line.

    Either one token, ``{"round", "sentence", "position", "label"}``, or neighbours, ``{"round",
    "sentence", "start", "labels"}``: a line of ``queries.jsonl`` with ``"labels"`` added is one.
    A label may be a list of possible ones, and None among the labels is no answer.

    Args:
        lines: of the file. path: what messages call it. rules: what answers must be.

    Returns:
        The answers, and how many lines had none: those of ``queries.jsonl`` as they are.

    Raises:
        ValueError: with the file and the line, for all lines that are something else.

    Example:
        >>> from jaxseq.cli._questions import Corpora
        >>> from jaxseq.text import Sentence
        >>> rules = AnswerRules(2, Corpora([Sentence({"word": ["a", "b"]})], [], [], {}), ["N"])
        >>> answers_of_lines(['{"round": 2, "sentence": 0, "position": 1, "label": "N"}'], "f", rules)
        ([Answer(sentence=0, position=1, label='N')], 0)
    """  # noqa: E501 - a line of the example
    answers: list[Answer] = []
    skipped, refusals = 0, Refusals(path)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        with refusals.noted():
            found = _answers_of(line, f"{path}:{number}", rules)
            answers += found
            skipped += not found
    refusals.tell()
    return answers, skipped


def _answers_of(line: str, place: str, rules: AnswerRules) -> list[Answer]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: expected a JSON object, got {error}") from error
    if not isinstance(row, dict):
        raise ValueError(f"{place}: expected a JSON object, got {line!r:.60}")
    rules.round_of(row.get("round"), place)
    sentence = rules.sentence(row.get("sentence"), place)
    if "label" in row and "labels" in row:
        raise ValueError(f"{place}: expected 'label' or 'labels', got both")
    if "label" in row:
        position = rules.position(row.get("position"), sentence, place)
        return [Answer(sentence, position, rules.label(row["label"], place))]
    if "labels" in row:
        return _neighbours(row, sentence, place, rules)
    if "guess" in row:  # a query that nobody has answered
        return []
    raise ValueError(f"{place}: expected 'label' with 'position', or 'labels' with 'start'")


def _neighbours(row: dict[str, Any], sentence: int, place: str, rules: AnswerRules) -> list[Answer]:
    start, labels = rules.position(row.get("start"), sentence, place, "start"), row["labels"]
    if not isinstance(labels, list):
        raise ValueError(f"{place}: expected 'labels', a list, got {labels!r:.60}")
    words = rules.corpora.words(sentence)
    most = row.get("stop", len(words))
    if start + len(labels) > len(words) or ("stop" in row and start + len(labels) != most):
        raise ValueError(
            f"{place}: expected labels for tokens {start} … {most} − 1 of sentence {sentence}, got "
            f"{len(labels)}"
        )
    if "words" in row and row["words"] != list(words[start : start + len(labels)]):
        raise ValueError(
            f"{place}: expected the words of sentence {sentence} from {start} on, "
            f"{' '.join(words[start : start + len(labels)])!r}, got {row['words']!r:.80}"
        )
    return [
        Answer(sentence, start + offset, rules.label(label, place))
        for offset, label in enumerate(labels)
        if label is not None
    ]


# -------------------------------------------------------------------------------------------------
# ``jaxseq active labels``: the labels that may be given, and more of them.


def add_labels(subparsers: Any) -> None:
    """Add the parser of ``jaxseq active labels``."""
    parser = subparsers.add_parser(
        "labels",
        help="list the labels that may be given, or add some",
        description="List the labels that may be given, or add some that were not thought of at "
        "the start. What was answered stays; the next training starts from the weights that are "
        "known. Queries that were written before do not offer new labels: write them again.",
    )
    add_folder_and_json(parser)
    parser.add_argument("--add", nargs="+", metavar="NAME", help="labels that are not known yet")
    parser.set_defaults(run=_run_labels)


def _run_labels(options: argparse.Namespace) -> int:
    if options.add:
        with opened(options.folder) as run:
            run.learner.add_labels(options.add)
            labels = run.classes
    else:
        labels = looked_at(options.folder).classes
    print(json.dumps({"labels": labels}) if options.json else "\n".join(labels))
    return 0


# -------------------------------------------------------------------------------------------------
# ``jaxseq active query``: what to label next, in files.


TASKS, CONFIG, LINES = "tasks.json", "labels.xml", "queries.jsonl"


def add_query(subparsers: Any) -> None:
    """Add the parser of ``jaxseq active query``."""
    parser = subparsers.add_parser(
        "query",
        help="write what to label next, for Label Studio and as JSON lines",
        description="Write the queries of this round that have no answer yet to DIR/round-NNN: "
        f"{TASKS} to import into Label Studio, {CONFIG}, the labelling interface of its project, "
        f"and {LINES}, the same for other programs. The queries stay the same until the next "
        "training.",
    )
    add_folder_and_json(parser)
    parser.add_argument(
        "--count", type=int, metavar="N", help="only the N least sure ones (all of the round)"
    )
    parser.set_defaults(run=_run_query)


def _run_query(options: argparse.Namespace) -> int:
    if options.count is not None and options.count < 1:
        raise ValueError(f"--count: expected 1 or more, got {options.count}")
    say = (lambda _: None) if options.json else print
    with opened(options.folder) as run:
        queries = run.next_queries(say)[: options.count]
        status = run.learner.status()
        where = None
        if queries:
            where = run.folder / f"round-{run.round:03}"
            write_questions(where, questions_of(run, queries), run)
    tokens = sum(query.stop - query.start for query in queries)
    report = {
        "round": status.round,
        "queries": len(queries),
        "tokens": tokens,
        "folder": None if where is None else str(where),
        "stop": status.stop,
        "why": status.why,
    }
    print(json.dumps(report, allow_nan=False) if options.json else _query_as_text(report))
    return 0


def _query_as_text(report: dict[str, Any]) -> str:
    if report["folder"] is None:
        return f"nothing to ask: {report['why']}"
    where = Path(report["folder"])
    lines = [
        f"round     {report['round']}: {report['queries']:,} queries, {report['tokens']:,} tokens",
        f"tasks     {where / TASKS}",
        f"          {where / CONFIG} is the labelling interface",
        f"lines     {where / LINES}",
        f"then      jaxseq active answer {where.parent} EXPORT.json",
    ]
    return "\n".join([*lines, f"stop      yes: {report['why']}"] if report["stop"] else lines)


def write_questions(where: Path, questions: list[Question], run: ActiveRun) -> None:
    """Write the three files of a round; each appears only when complete."""
    os.makedirs(where, exist_ok=True)
    tasks = json.dumps([task_of(question) for question in questions], indent=1, ensure_ascii=False)
    lines = [json.dumps(question.as_dict(), ensure_ascii=False) for question in questions]
    texts = {
        CONFIG: labelling_config(run.classes),
        LINES: "".join(f"{line}\n" for line in lines),
        TASKS: f"{tasks}\n",
    }
    for name, text in texts.items():
        with open_to_replace(where / name) as file:
            file.write(text)


# -------------------------------------------------------------------------------------------------
# ``jaxseq active answer``: take labels in, and learn from them.


if TYPE_CHECKING:
    from jaxseq.active import Answer


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
    parser.set_defaults(run=_run_answer)


def _run_answer(options: argparse.Namespace) -> int:
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
    from jaxseq.cli._questions import AnswerRules, answers_of_export

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


# -------------------------------------------------------------------------------------------------
# ``jaxseq active finish``: a model to be used, with other settings than the one that asks.


CHANGES = ("l1", "l2", "max_iterations", "weights", "cores")
"""Options that are settings of the tagger; those of the run hold where they are not given."""


def add_finish(subparsers: Any) -> None:
    """Add the parser of ``jaxseq active finish``."""
    parser = subparsers.add_parser(
        "finish",
        help="train a model to be used, with other settings than the one that asks",
        description="Train a model from zeros on all labels so far (of a strategy that takes some "
        "from the model, on those too), with other settings than the model that asks, and save it. "
        "The run stays as it is, and may go on; this command may run while another subcommand is "
        "at work on the folder.",
        epilog="Settings that are not given are those of jaxseq active start.",
    )
    add = parser.add_argument
    add("--out", required=True, metavar="MODEL", help="the folder to save the model in")
    add("--l1", type=float, metavar="X", help="strength of the l1 penalty")
    add("--l2", type=float, metavar="X", help="strength of the l2 penalty; a model that asks may "
        "want a larger one, which makes it less sure")  # fmt: skip
    add("--max-iterations", type=int, metavar="N", help="of L-BFGS")
    add("--weights", choices=WEIGHTS, help="which pairs of attribute and label have a weight")
    add("--cores", type=int, metavar="N", help="threads to train with")
    add_folder_and_json(parser)
    parser.set_defaults(run=_run_finish)


def _run_finish(options: argparse.Namespace) -> int:
    given = {name: getattr(options, name) for name in CHANGES}
    changes = {name: value for name, value in given.items() if value is not None}
    run = looked_at(options.folder)
    require_model_place(options.out)
    with naming_options(changes):
        tagger = run.learner.refit(**changes)
    tagger.save(options.out)
    report = {
        "model": options.out,
        **run.label_counts(),
        "iterations": tagger.n_iter_,
        "objective": float(tagger.loss_),
        "outcome": tagger.outcome_,
        **run.scores(tagger),
    }
    print(json.dumps(report, allow_nan=False) if options.json else _finish_as_text(report))
    return 0


def _finish_as_text(report: dict[str, Any]) -> str:
    guessed = report["guessed_tokens"]
    by_model = f" and {guessed:,} tokens labelled by the model" if guessed else ""
    lines = [
        f"training  {report['iterations']} iterations on {report['labelled_tokens']:,} labelled "
        f"tokens{by_model}, objective {report['objective']:.6g}",
        f"          {report['outcome']}",
        *lines_on_dev(report),
        f"model     {report['model']}",
    ]
    return "\n".join(lines)


SUBCOMMANDS = (
    add_start, add_query, add_answer, add_annotate, add_labels, add_active_train, add_status,
    add_finish,
)  # fmt: skip

EXAMPLE = """\
example:
  jaxseq active start --train few.txt --pool many.txt --dev dev.txt --templates conll2000 \\
      --scheme IOB2 --count 200 --threshold 0.9 --out run
  jaxseq active query run        # writes run/round-001: tasks.json, labels.xml, queries.jsonl
  # Label Studio: a project with labels.xml as its labelling interface; import tasks.json; label;
  # export as JSON or JSON-MIN
  jaxseq active answer run export.json    # takes the labels in, trains, says where it stands
  jaxseq active status run                # whether to stop, and why
  jaxseq active annotate run              # or label here, in the terminal, one key a label
  jaxseq active labels run --add B-ADJP   # a label that was not thought of at the start
  jaxseq tag --model run/model new.txt    # the model of the last round is one like any other
  jaxseq active finish run --l2 0.1 --out final  # or one with other settings, of the same labels

answers of other programs, JSON lines (a list of labels: one of them is right):
  {"round": 1, "sentence": 17, "position": 4, "label": "B-NP"}
  {"round": 1, "sentence": 20, "start": 2, "labels": ["O", ["B-NP", "I-NP"], null]}
"""


def add_active(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``jaxseq active``."""
    parser.description = (
        "Active learning with partial labels: the model asks for the labels that it is "
        "least sure of, learns from the answers, and says when it is enough."
    )
    parser.epilog = EXAMPLE
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    inner = parser.add_subparsers(title="subcommands", metavar="subcommand", required=True)
    for add_subcommand in SUBCOMMANDS:
        add_subcommand(inner)
