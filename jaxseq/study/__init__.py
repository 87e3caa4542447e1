"""Which way of learning serves a corpus best: methods compared on the labelled sentences."""

from jaxseq.study._choose import Choice as Choice
from jaxseq.study._choose import Contender as Contender
from jaxseq.study._choose import fit_semi_supervised as fit_semi_supervised
from jaxseq.study._scores import SentenceCounts as SentenceCounts
from jaxseq.study._scores import count_by_sentence as count_by_sentence
from jaxseq.study._scores import resampled_scores as resampled_scores

__all__ = [
    "Choice",
    "Contender",
    "SentenceCounts",
    "count_by_sentence",
    "fit_semi_supervised",
    "resampled_scores",
]
