"""The weight of the entropy that cross-validation chooses, kept until the training is over."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxseq.cli._corpus import Corpus
from jaxseq.text import Sentence

if TYPE_CHECKING:
    from jaxseq.tagger import CRFTagger, EntropyWeights
    from jaxseq.tagger._notes import Notes

FOLDS = 5
SCORES, CHOICE = ".cross-validation", ".entropy-weight"
"""What the names of the files that are kept end with, after that of ``--checkpoint``."""


@dataclass(frozen=True)
class EntropyChoice:
    """What cross-validation found.

    Args:
        found: the scores. scoring: by what, as `jaxseq.choose_entropy_weight` calls it.
        seconds: that it took. notes: of the choice, so that it is not made again.
    """

    found: EntropyWeights
    scoring: str
    seconds: float
    notes: Notes

    def as_dict(self) -> dict[str, Any]:
        """For the report."""
        return {
            "scoring": self.scoring,
            "folds": FOLDS,
            "weights": list(self.found.weights),
            "means": self.found.means.tolist(),
        }

    def table(self) -> str:
        """The mean score of each weight, the best one marked."""
        by = {"span_f1": "span F1"}.get(self.scoring, self.scoring)
        lines = [f"weights   mean {by} in {FOLDS}-fold cross-validation ({self.seconds:.1f} s)"]
        for weight, mean in zip(self.found.weights, self.found.means):
            mark = " *" if weight == self.found.best else ""
            lines.append(f"          {weight:<6g}  {mean:.4f}{mark}")
        return "\n".join(lines)


def checkpoint_files(checkpoint: str) -> tuple[str, ...]:
    """All files that may be kept under the name of a checkpoint.

    Example:
        >>> checkpoint_files("kept")
        ('kept', 'kept.cross-validation', 'kept.entropy-weight')
    """
    return checkpoint, checkpoint + SCORES, checkpoint + CHOICE


def check_choosable(train: Corpus) -> None:
    """ValueError for a corpus that cannot be cross-validated on."""
    train.known_labels()
    if len(train.sentences) < FOLDS:
        raise ValueError(
            f"{train.path}: expected at least {FOLDS} sentences to choose the weight of the "
            f"entropy on, found {len(train.sentences)}"
        )


def choose_weight(
    tagger: CRFTagger, train: Corpus, others: list[Sentence], options: argparse.Namespace
) -> EntropyChoice:
    """Cross-validate, or go on with that, or remember what it found when it was over.

    Args:
        tagger: the settings. train: a corpus that passes `check_choosable`.
        others: the unlabelled sentences.
        options: of the command line.
    """
    from jaxseq.tagger import EntropyWeights, choose_entropy_weight
    from jaxseq.tagger._entropy_weight import scoring_of
    from jaxseq.tagger._notes import Notes, settings_of

    began = time.perf_counter()
    scoring = scoring_of(label for labels in train.labels for label in labels if label is not None)
    _, scores, choice = checkpoint_files(options.checkpoint or "")
    vocabulary = options.vocabulary or "all"
    job = (settings_of(tagger), scoring, FOLDS, vocabulary, train.sentences, train.labels, others)
    notes = Notes(options.checkpoint and choice, job)
    kept = notes.load()
    if kept is not None:
        found = EntropyWeights(tuple(kept["weights"]), np.array(kept["scores"]))
    else:
        found = choose_entropy_weight(
            tagger,
            train.sentences,
            train.labels,
            unlabelled=others,
            folds=FOLDS,
            scoring=scoring,
            seed=options.seed,
            entropy_gradient=options.entropy_gradient or "mann",
            vocabulary=vocabulary,
            progress=tagger.progress,
            checkpoint=options.checkpoint and scores,
        )
        notes.save({"weights": list(found.weights), "scores": found.scores.tolist()})
    return EntropyChoice(found, scoring, time.perf_counter() - began, notes)
