"""Metrics of labelled sequences: accuracy, spans, agreement, and a test of difference."""

from jaxseq.metrics._agreement import cohen_kappa as cohen_kappa
from jaxseq.metrics._agreement import token_accuracy as token_accuracy
from jaxseq.metrics._mcnemar import McNemar as McNemar
from jaxseq.metrics._mcnemar import mcnemar as mcnemar
from jaxseq.metrics._span_scores import SpanCounts as SpanCounts
from jaxseq.metrics._span_scores import SpanScores as SpanScores
from jaxseq.metrics._span_scores import span_scores as span_scores
from jaxseq.metrics._spans import spans as spans
