"""``jaxseq active``: active learning with people, or other programs, as annotators.

Each subcommand is a process of its own on one folder; whatever happens to it, what was answered
is in the folder.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import Field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxseq.cli._active_run import (
    ActiveRun,
    Corpora,
    line_on_training,
    lines_on_dev,
    looked_at,
    opened,
    report_lines,
    tell,
    write_corpora,
)
from jaxseq.cli._annotate import add_annotate
from jaxseq.cli._files import (
    FEATURES,
    LABEL,
    OUTSIDE,
    Corpus,
    Layout,
    first_sentence,
    iter_input,
    iter_words,
    labelled_layout,
    model_place,
    name_reader,
    read_corpus,
    read_unlabelled,
    require_columns,
    require_file,
    require_outside_of_runs,
    require_rereadable,
    rereadable,
    say_replaced,
    shown,
    warn_mixed_schemes,
)
from jaxseq.cli._models import add_templates_option, choose_templates
from jaxseq.cli._options import (
    WEIGHTS,
    add_corpus_options,
    add_model_settings,
    flag,
    parse_l2,
    parse_labels,
)
from jaxseq.cli._questions import Question, as_task, ask_in_words, labelling_config, read_answers
from jaxseq.text import CONLLU, Sentence, Templates, open_to_replace

if TYPE_CHECKING:
    from jaxseq.active import ActiveLearner, Strategy

METAVARS = {int: "N", float: "P", str: "TEMPLATE"}


def strategy_settings() -> dict[str, dict[str, Field[Any]]]:
    """Name of a setting → the strategies that have it, each with its field."""
    from jaxseq.active import STRATEGIES

    settings: dict[str, dict[str, Field[Any]]] = {}
    for name, kind in STRATEGIES.items():
        for one in fields(kind):  # pyright: ignore[reportArgumentType] - a dataclass
            if "setting" in one.metadata:
                settings.setdefault(one.name, {})[name] = one
    return settings


def add_learner_options(parser: argparse.ArgumentParser) -> None:
    """Add the groups of options about what to ask, when to stop, and how to train."""
    from jaxseq.active import STRATEGIES

    add = parser.add_argument_group("what to ask, and when to stop").add_argument
    summaries = "; ".join(f"{name}: {kind.summary}" for name, kind in STRATEGIES.items())
    add("--strategy", choices=tuple(STRATEGIES), default="groups",
        help=f"what to ask for: {summaries} (groups)")  # fmt: skip
    for name, by_strategy in strategy_settings().items():
        about = next(iter(by_strategy.values())).metadata["setting"]
        of = "" if len(by_strategy) == len(STRATEGIES) else f"of {' and '.join(by_strategy)}: "
        # Without a default: that of the strategy holds, and an option that it lacks is noticed.
        how: dict[str, Any] = {"type": about.parse, "metavar": METAVARS.get(about.parse)}
        if about.choices:
            how = {"choices": about.choices}
        if about.parse is None:
            how = {"action": "store_const", "const": True}
        add(flag(name), help=f"{of}{about.help}", **how)
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
    add = parser.add_argument_group("training").add_argument
    add_model_settings(add, "of L-BFGS, a round", asking=True)
    add("--between", type=int, metavar="N", help="iterations of a round after which more is asked, "
        "at most; the last round, and jaxseq active train, have all (all)")  # fmt: skip
    add("--seed", type=int, default=0, metavar="N", help="of random first sentences (0)")
    add("--cores", type=int, metavar="N", help="threads to train with (all)")


def choose_strategy(options: argparse.Namespace) -> Strategy:
    """The strategy that the options describe; ValueError where they do not go together."""
    from jaxseq.active import STRATEGIES

    settings = {}
    for name, by_strategy in strategy_settings().items():
        value = getattr(options, name)
        if value is not None and options.strategy not in by_strategy:
            strategies = " or ".join(by_strategy)
            raise ValueError(f"{flag(name)}: expected along with --strategy {strategies} only")
        if value is not None:
            settings[name] = value
    with naming_options(settings):
        return STRATEGIES[options.strategy](**settings)


@contextmanager
def naming_options(settings: Collection[str]) -> Iterator[None]:
    """Errors on one of these settings, which begin with its name, begin with the option's."""
    try:
        yield
    except ValueError as error:
        name, colon, message = str(error).partition(":")
        if name not in settings:
            raise
        raise ValueError(f"{flag(name)}{colon}{message}") from None


def new_learner(options: argparse.Namespace, templates: Templates) -> ActiveLearner:
    from jaxseq.active import ActiveLearner
    from jaxseq.crf import CRFTagger

    def chosen(*names: str) -> dict[str, Any]:
        return {name: getattr(options, name) for name in names}

    of_tagger = ("l1", "l2", "max_iterations", "weights", "cutoff", "scheme", "cores", "seed")
    of_rounds = ("initial", "initial_how", "kappa", "max_rounds", "budget", "seed", "between")
    tagger = CRFTagger(templates, **chosen(*of_tagger))
    return ActiveLearner(tagger, choose_strategy(options), **chosen(*of_rounds))


def templates_for_pool(
    options: argparse.Namespace, train: Corpus | None
) -> tuple[Templates, Corpus]:
    """The templates, and a corpus with the columns that the pool is to have.

    Without labelled sentences, a corpus of none stands for them.
    """
    like, place = train, options.train
    if like is None:
        place = shown(options.pool)
        like = Corpus(place, [], [list(options.labels)], _layout_of_pool(options))
    return choose_templates(options.templates, like.layout.features, place), like


def _layout_of_pool(options: argparse.Namespace) -> Layout:
    """The columns that sentences with labels would have, if there were any."""
    if options.columns is not None:
        return labelled_layout(0, options, shown(options.pool))
    if options.label_column is not None:
        raise ValueError("--label-column: expected along with --train or --columns only")
    if options.pool_format == "plain":
        return Layout((FEATURES[0], LABEL))
    require_file(options.pool)
    # The first line tells the number of columns, and then the file is read from its beginning.
    require_rereadable(options.pool, "or else --columns with the names of its columns")
    block = first_sentence(options.pool, options)
    if block is not None and block.is_conllu:
        return Layout((*CONLLU, LABEL))
    width = 0 if block is None else len(block.columns)
    if not 1 <= width <= len(FEATURES) + 1:
        raise ValueError(
            f"{shown(options.pool)}: expected sentences of 1 to {len(FEATURES) + 1} columns, or "
            f"--columns with their names; found {f'{width} columns' if width else 'no sentence'}"
        )
    return Layout((*FEATURES[:width], LABEL))


def read_pool(options: argparse.Namespace, like: Corpus, needed: Sequence[str]) -> list[Sentence]:
    """The sentences of ``--pool``, at least one, without labels.

    `like` is what `templates_for_pool` returns, and `needed` are the columns that templates read.
    """
    if options.pool_format == "plain":  # words alone: no columns to be named
        place = shown(options.pool)
        require_columns(needed, [FEATURES[0]], name_reader(options.templates), place)
        sentences = [
            Sentence({FEATURES[0]: words}) for words in iter_words(options.pool, options.encoding)
        ]
        if not sentences:
            raise ValueError(f"{place}: expected at least one sentence, found none")
        return sentences
    sentences = read_unlabelled([options.pool], options, like, needed)
    if options.train is None:
        _refuse_labels(sentences, like, set(options.labels), shown(options.pool))
    return sentences


def _refuse_labels(
    sentences: Sequence[Sentence], like: Corpus, labels: set[str], place: str
) -> None:
    """ValueError when a column holds some of the labels: without --train nothing says which it is.

    What also occurs in the first column, as punctuation does, and the O, prove nothing.
    """
    words, *features = sentences[0].columns
    cells = {name: {cell for s in sentences for cell in s[name]} for name in (words, *features)}
    for name in features:
        suspects = sorted((cells[name] & labels) - {OUTSIDE} - cells[words])
        if suspects:
            raise ValueError(
                f"{place}: expected no labels in column {like.layout.names.index(name) + 1}, "
                f"{name!r}, found {suspects[0]!r} (--columns names the columns, the label last, "
                "and leaves one out with '-')"
            )


def add_start(subparsers: Any) -> None:
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
        "as in --train, or plain text, one sentence per line, tokens between spaces "
        "(same)")  # fmt: skip
    add("--train", metavar="FILE", help="sentences that have labels; the last column is the label")
    add("--labels", type=parse_labels, metavar="A,B,…", help="all labels that may be given; with "
        "--train those that it lacks")  # fmt: skip
    add("--dev", metavar="FILE", help="labelled sentences to score every model on")
    add("--out", required=True, metavar="DIR", help="the folder to make")
    add_templates_option(add)
    add_corpus_options(parser)
    add_learner_options(parser)
    add("--json", action="store_true", help="report as one JSON object")
    parser.set_defaults(run=_run_start)


def _run_start(options: argparse.Namespace) -> int:
    choose_strategy(options)  # before anything is read, which may take long
    for name in ("budget", "between"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name}: expected 1 or more, got {value}")
    out = Path(options.out)
    _require_place(out)
    if options.train is None and options.labels is None:
        raise ValueError("--labels: expected the labels that may be given, since --train is not")
    train = None
    if options.train is not None:
        train = read_corpus(options.train, options, scheme=options.scheme)
    sources = {name: getattr(options, name) for name in ("train", "pool", "dev")}
    with rereadable(options.pool) as options.pool:
        templates, like = templates_for_pool(options, train)
        pool = read_pool(options, like, templates.columns)
    dev = None
    if options.dev is not None:
        dev = read_corpus(options.dev, options, like=like)
        warn_mixed_schemes([each.scheme() for each in (train, dev) if each is not None])
    learner = new_learner(options, templates)
    _write(out, learner, train, pool, dev, options.labels, sources)
    with opened(options.out) as run:
        training = []
        if run.label_counts()["labelled_tokens"]:
            run.train()
            training.append(line_on_training(run))
        report = run.report()
    counts = (0 if train is None else len(train.sentences), len(pool))
    report |= {"given_sentences": counts[0], "pool_sentences": counts[1], "labels": run.classes}
    print(json.dumps(report, allow_nan=False) if options.json else _start_as_text(report, training))
    return 0


def _start_as_text(report: dict[str, Any], training: list[str]) -> str:
    lines = [
        f"read      {report['given_sentences']:,} sentences with labels, "
        f"{report['pool_sentences']:,} to choose from",
        f"labels    {' '.join(report['labels'])}; jaxseq active labels --add adds others",
        *training,
        *report_lines(report),
        f"then      jaxseq active query {report['folder']}, or annotate {report['folder']}",
    ]
    return "\n".join(lines)


def _require_place(out: Path) -> None:
    """ValueError unless a new folder can be made there."""
    if Path.cwd().is_relative_to(os.path.realpath(out)):
        raise ValueError(f"--out: expected a folder to make, got {str(out)!r}, which is in use")
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        what = "other files" if out.is_dir() else "a file"
        raise ValueError(f"{out}: expected nothing or an empty folder there, found {what}")
    require_outside_of_runs(str(out))


def _write(
    out: Path,
    learner: ActiveLearner,
    train: Corpus | None,
    pool: list[Any],
    dev: Corpus | None,
    labels_to_give: Sequence[str] | None,
    sources: dict[str, str | None],
) -> None:
    """Make the folder, which appears only when all of it is there."""
    from jaxseq._io import replacing_folder

    def words(corpus: Corpus | None) -> list[Sentence]:
        if corpus is None:
            return []
        label = corpus.layout.label_name
        return [sentence.without(label) for sentence in corpus.sentences]

    dev_labels = [] if dev is None else dev.known_labels()
    corpora = Corpora([*words(train), *pool], words(dev), dev_labels, sources)
    labels: Any = None if train is None else [*train.labels, *[None] * len(pool)]
    classes = set(labels_to_give or ())
    if train is not None:
        classes |= {label for row in train.labels for label in row if label is not None}
    with replacing_folder(out) as folder:
        learner.begin(corpora.pool, labels, sorted(classes), folder=folder)
        write_corpora(folder, corpora)


def _run_labels(options: argparse.Namespace) -> int:
    if options.add:
        with opened(options.folder) as run:
            run.learner.add_labels(options.add)
            labels = run.classes
    else:
        labels = looked_at(options.folder).classes
    print(json.dumps({"labels": labels}) if options.json else "\n".join(labels))
    return 0


TASKS, CONFIG, LINES = "tasks.json", "labels.xml", "queries.jsonl"


def _run_query(options: argparse.Namespace) -> int:
    if options.count is not None and options.count < 1:
        raise ValueError(f"--count: expected 1 or more, got {options.count}")
    say = (lambda _: None) if options.json else print  # one JSON object and nothing else
    with opened(options.folder) as run:
        queries = run.next_queries(say)[: options.count]
        status = run.learner.status()
        where = None
        if queries:
            where = run.folder / f"round-{run.round:03}"
            write_questions(where, ask_in_words(run, queries), run)
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
    tasks = json.dumps([as_task(question) for question in questions], indent=1, ensure_ascii=False)
    lines = [json.dumps(question.as_dict(), ensure_ascii=False) for question in questions]
    texts = {
        CONFIG: labelling_config(run.classes),
        LINES: "".join(f"{line}\n" for line in lines),
        TASKS: f"{tasks}\n",
    }
    for name, text in texts.items():
        with open_to_replace(where / name) as file:
            file.write(text)


def _run_answer(options: argparse.Namespace) -> int:
    text = list(iter_input(options.file))
    with opened(options.folder) as run:
        answers, skipped = read_answers(text, shown(options.file), run)
        try:
            # All or none, in one transaction, on the disk before the training begins.
            run.learner.answer(answers, round=run.round)
        except ValueError as error:  # labels that the scheme forbids, in one sentence
            raise ValueError(f"{shown(options.file)}: {error}") from error
        without = f", {skipped:,} without an answer" if skipped else ""
        tokens = len({(answer.sentence, answer.position) for answer in answers})
        lines = [f"answers   {tokens:,} tokens{without}"]
        if not options.no_train:
            run.train()
            lines.append(line_on_training(run))
        report = run.report() | {"answers": tokens, "without_answer": skipped}
        tell(report, options.json, lines)
    return 0


def _run_status(options: argparse.Namespace) -> int:
    run = looked_at(options.folder)
    sources = [f"--{name} {path}" for name, path in run.corpora.sources.items() if path is not None]
    tell(run.report(), options.json, [f"folder    {run.folder}, of {' '.join(sources)}"])
    return 0


def _run_train(options: argparse.Namespace) -> int:
    with opened(options.folder) as run:
        run.train(full=True)  # who calls this wants a model to use
        tell(run.report(), options.json, [line_on_training(run)])
    return 0


CHANGES = ("l1", "l2", "max_iterations", "weights", "cores")  # where not set, those of the run hold


def _run_finish(options: argparse.Namespace) -> int:
    options_set = {name: getattr(options, name) for name in CHANGES}
    changes = {name: value for name, value in options_set.items() if value is not None}
    run = looked_at(options.folder)  # without the lock: the run may go on meanwhile
    with model_place(options.out):  # before the training, which may take long
        say_replaced(options.out)
        with naming_options(changes):
            tagger = run.learner.refit(**changes)
        tagger.save(options.out)
    report = {
        "model": options.out,
        **run.label_counts(),
        "iterations": tagger.n_iter_,
        "objective": float(tagger.loss_),
        "l2": tagger.l2_,
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
        f"tokens{by_model}, objective {report['objective']:.6g}, l2 {report['l2']:.3g}",
        f"          {report['outcome']}",
        *lines_on_dev(report),
        f"model     {report['model']}",
    ]
    return "\n".join(lines)


EXAMPLE = """\
example:
  jaxseq active start --train few.txt --pool many.txt --dev dev.txt --scheme IOB2 \\
      --count 200 --out run
  jaxseq active query run        # writes run/round-001: tasks.json, labels.xml, queries.jsonl
  # Label Studio: a project with labels.xml as its labelling interface; import tasks.json; label;
  # export as JSON or JSON-MIN
  jaxseq active answer run export.json    # takes the labels in, trains, says where it stands
  jaxseq active status run                # whether to stop, and why
  jaxseq active annotate run              # or label here, in the terminal, one key a label
  jaxseq active labels run --add B-ADJP   # a label that was not thought of at the start
  jaxseq tag --model run/model new.txt    # the model of the last round is one like any other
  jaxseq active finish run --l2 auto --out final  # or one with other settings, of the same labels

answers of other programs, JSON lines (a list of labels: one of them is right):
  {"round": 1, "sentence": 17, "position": 4, "label": "B-NP"}
  {"round": 1, "sentence": 20, "start": 2, "labels": ["O", ["B-NP", "I-NP"], null]}
"""


def add_active(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Active learning with partial labels: the model asks for the labels that it is "
        "least sure of, learns from the answers, and says when it is enough."
    )
    parser.epilog = EXAMPLE
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    inner = parser.add_subparsers(title="subcommands", metavar="subcommand", required=True)

    def subcommand(name: str, run: Callable[..., int], **about: Any) -> Callable[..., Any]:
        """Add one that works on a folder; what is returned adds options to it."""
        added = inner.add_parser(name, **about)
        added.add_argument("folder", metavar="DIR", help="of jaxseq active start")
        added.add_argument("--json", action="store_true", help="print one JSON object")
        added.set_defaults(run=run)
        return added.add_argument

    add_start(inner)
    option = subcommand(
        "query",
        _run_query,
        help="write what to label next, for Label Studio and as JSON lines",
        description="Write the queries of this round that have no answer yet to DIR/round-NNN: "
        f"{TASKS} to import into Label Studio, {CONFIG}, the labelling interface of its project, "
        f"and {LINES}, the same for other programs. The queries stay the same until the next "
        "training.",
    )
    option("--count", type=int, metavar="N", help="only the N least sure ones (all of the round)")
    option = subcommand(
        "answer",
        _run_answer,
        help="take in answers, from Label Studio or as JSON lines, and train",
        description="Take in answers, some or all of the round under way, and train. If one of "
        "them is illegal none is taken in. Tasks of past rounds that come again in an export of "
        "Label Studio count as tasks without an answer, if their labels are those taken in then.",
    )
    option(
        "file",
        metavar="FILE",
        help='Label Studio\'s export, as JSON or JSON-MIN, or JSON lines such as {"round": 1, '
        '"sentence": 17, "position": 4, "label": "B-NP"} (- is standard input)',
    )
    option("--no-train", action="store_true", help="only take them in; the round goes on")
    add_annotate(inner)
    option = subcommand(
        "labels",
        _run_labels,
        help="list the labels that may be given, or add some",
        description="List the labels that may be given, or add some that were not thought of at "
        "the start. What was answered stays; the next training starts from the weights that are "
        "known. Queries that were written before do not offer new labels: write them again.",
    )
    option("--add", nargs="+", metavar="NAME", help="labels that are not known yet")
    subcommand(
        "train",
        _run_train,
        help="end the round: train on the labels so far",
        description="End the round: train on all labels so far, as jaxseq active answer does "
        "unless it is told not to, but to the end also where --between makes trainings short: for "
        "a model to be used before it is time to stop.",
    )
    subcommand(
        "status",
        _run_status,
        help="rounds, labels, scores, and whether to stop",
        description="Say where active learning stands, and whether to stop; also while another "
        "subcommand is at work on the folder.",
    )
    option = subcommand(
        "finish",
        _run_finish,
        help="train a model to be used, with other settings than the one that asks",
        description="Train a model from zeros on all labels so far (of a strategy that takes some "
        "from the model, on those too), with other settings than the model that asks, and save it. "
        "The run stays as it is, and may go on; this command may run while another subcommand is "
        "at work on the folder.",
        epilog="Settings that are not given are those of jaxseq active start.",
    )
    option("--out", required=True, metavar="MODEL", help="the folder to save the model in")
    option("--l1", type=float, metavar="X", help="strength of the l1 penalty")
    option("--l2", type=parse_l2, metavar="X", help="strength of the l2 penalty; a model that asks "
        "may want a larger one, which makes it less sure (where jaxseq active start has none, one "
        "that suits the number of labels); auto takes the best of a few in "
        "5-fold cross-validation on the labels so far")  # fmt: skip
    option("--max-iterations", type=int, metavar="N", help="of L-BFGS")
    option("--weights", choices=WEIGHTS, help="which pairs of attribute and label have a weight")
    option("--cores", type=int, metavar="N", help="threads to train with")
