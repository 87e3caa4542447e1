"""A run of active learning as the subcommands see it: opened, trained, described."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxseq.cli._active_files import Corpora, read_corpora
from jaxseq.metrics import span_scores

try:
    import fcntl
except ImportError:  # not on every system; there nobody is kept out
    fcntl = None

if TYPE_CHECKING:
    from jaxseq.learn.active import Query
    from jaxseq.tagger import ActiveLearner, CRFTagger

Say = Callable[[str], object]
TRIES, PAUSE = 4, 0.1
"""How often a folder is looked at that changes meanwhile, and seconds between."""
NOTHING_ASKED = "there is nothing to ask in round {}"


@dataclass(frozen=True, eq=False)
class ActiveRun:
    """An opened folder of ``jaxseq active start``.

    Args:
        folder: where. corpora: its sentences. learner: resumed.
    """

    folder: Path
    corpora: Corpora
    learner: ActiveLearner

    @property
    def round(self) -> int:
        """The number of the round under way: trainings done."""
        return self.learner._begun().round

    @property
    def classes(self) -> list[str]:
        """All labels."""
        return self.learner._begun().pool.classes

    @property
    def has_model(self) -> bool:
        """Whether something was trained already."""
        return self.learner._begun().tagger is not None

    def asked(self) -> list[Query]:
        """The queries of this round, answered or not; none before they are proposed."""
        return self.learner._begun().queries or []

    def answered_now(self) -> list[tuple[int, int]]:
        """Sentence and position of the tokens answered in this round, the last one last."""
        return list(self.learner._begun().answered)

    def is_answered(self, sentence: int, position: int) -> bool:
        """Whether the annotator has labelled a token."""
        state = self.learner._begun()
        begin = int(state.pool.lengths[:sentence].sum())
        return bool(state.known.answered[begin + position])

    def label_of(self, sentence: int, position: int) -> str | tuple[str, ...] | None:
        """The annotator's label of a token, or several possible ones; None for no answer."""
        return self.learner._begun().known.label_of(sentence, position)

    def has_labels(self) -> bool:
        """Whether the annotator has labelled any token."""
        return bool(self.learner._begun().known.answered.any())

    def label_counts(self) -> dict[str, int]:
        """How many tokens the annotator has labelled, and how many others the model."""
        known = self.learner._begun().known
        return {
            "labelled_tokens": int(known.answered.sum()),
            "guessed_tokens": int(known.guessed.sum()),
        }

    def train(self, *, whole: bool = False) -> None:
        """End the round; a model that would be the last is compared with one from zeros.

        Args:
            whole: as of `ActiveLearner.train`.
        """
        learner = self.learner.train(whole=whole)
        warm = learner.history_[-1]["start"] == "warm"
        if warm and learner.check_warm_start and learner.status().stop:
            learner.recheck()

    def next_queries(self, say: Say) -> list[Query]:
        """What to ask now; none when nothing is left.

        A round of which all is answered, or in which there was nothing to ask, ends by training.

        Args:
            say: told before each training, which may take a while.
        """
        queries = self.learner.propose()
        while not queries and (self.asked() or not self.learner.status().stop):
            done = "all queries of round {} are answered" if self.asked() else NOTHING_ASKED
            say(f"{done.format(self.round)}: training")
            self.train()
            queries = self.learner.propose()
        return queries

    def report(self) -> dict[str, Any]:
        """Where it stands, with scores on the sentences of ``--dev``, ready for JSON."""
        report = {"folder": str(self.folder), **self.learner.status().as_dict()}
        return report | self.scores(self.learner.tagger_ if self.has_model else None)

    def scores(self, tagger: CRFTagger | None) -> dict[str, float | None]:
        """F1 and accuracy of a tagger on the sentences of ``--dev``, None where there are none."""
        scores: dict[str, float | None] = {"dev_f1": None, "dev_accuracy": None}
        if self.corpora.dev and tagger is not None:
            measured = span_scores(self.corpora.dev_labels, tagger.predict(self.corpora.dev))
            scores["dev_accuracy"] = measured.accuracy
            if measured.overall.gold or measured.overall.predicted:  # labels of phrases
                scores["dev_f1"] = measured.overall.f1
        return scores


@contextmanager
def opened(folder: str) -> Iterator[ActiveRun]:
    """Open a folder of ``jaxseq active start``, and keep others out of it meanwhile.

    Raises:
        ValueError: when it is no such folder, is not sound, or another process is at work on it.
    """
    from jaxseq.tagger import ActiveLearner

    path = _folder(folder)
    with _locked(path):
        corpora = read_corpora(path)
        yield ActiveRun(path, corpora, ActiveLearner.resume(path, corpora.pool))


def looked_at(folder: str) -> ActiveRun:
    """A folder of ``jaxseq active start`` as it is now, to read only: others may be at work on it.

    Raises:
        ValueError: when it is no such folder, or is not sound.
    """
    from jaxseq.tagger import ActiveLearner

    path = _folder(folder)
    corpora = read_corpora(path)
    for _ in range(TRIES):
        # A model may be replaced between a look at the journal and one at the model.
        with suppress(FileNotFoundError):
            learner = ActiveLearner.resume(path, corpora.pool, read_only=True)
            return ActiveRun(path, corpora, learner)
        time.sleep(PAUSE)
    raise ValueError(
        f"{path / 'model'}: expected the model that the journal names last, found none"
    )


def _folder(name: str) -> Path:
    path = Path(name)
    if not path.is_dir():
        raise ValueError(f"{name}: expected a folder of jaxseq active start, there is none")
    return path


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The operating system gives the lock back when the process ends, however it ends."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"{folder}: expected to be alone, another jaxseq active command is at work on it"
            ) from None
        yield
    finally:
        os.close(descriptor)


# -------------------------------------------------------------------------------------- words


def add_folder_and_json(parser: argparse.ArgumentParser) -> None:
    """Add the folder, which every subcommand but ``start`` takes, and ``--json``."""
    parser.add_argument("folder", metavar="DIR", help="of jaxseq active start")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def tell(report: dict[str, Any], as_json: bool, first: list[str]) -> None:
    """Print a report of `ActiveRun.report`, `first` before its lines."""
    if as_json:
        print(json.dumps(report, allow_nan=False))
    else:
        print("\n".join([*first, *lines_of(report)]))


def lines_of(report: dict[str, Any]) -> list[str]:
    """A report in words."""
    lines = [
        f"round     {report['round']}",
        f"labelled  {report['labelled_tokens']:,} of {report['tokens']:,} tokens "
        f"({report['labelled_share']:.2%}), in {report['labelled_sentences']:,} of "
        f"{report['sentences']:,} sentences ({report['sentence_share']:.2%})",
    ]
    if report["guessed_tokens"]:
        lines.append(f"          and {report['guessed_tokens']:,} tokens by the model")
    if report["kappa"] is not None:
        lines.append(f"kappa     {report['kappa']:.6f}, agreement of the last two models")
    if report["informative"] is not None:
        lines.append(f"left      {report['informative']:,} informative units to ask")
    if report["waiting"]:
        lines.append(f"waiting   {report['waiting']:,} queries of this round have no answer yet")
    lines += lines_on_dev(report)
    return [*lines, f"stop      {'yes' if report['stop'] else 'no'}: {report['why']}"]


def lines_on_dev(report: dict[str, Any]) -> list[str]:
    """The scores on the sentences of ``--dev`` in words, a line; none where there are none."""
    if report["dev_accuracy"] is None:
        return []
    phrases = "" if report["dev_f1"] is None else f"F1 {report['dev_f1']:.2%}, "
    return [f"dev       {phrases}accuracy {report['dev_accuracy']:.2%}"]
