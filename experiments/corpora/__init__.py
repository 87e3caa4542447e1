"""Embedded corpora: seeded generators of text that is labelled, invented and free to give away."""

from experiments.corpora._ads import AD_LABELS as AD_LABELS
from experiments.corpora._ads import ads as ads
from experiments.corpora._chunks import chunks as chunks
from experiments.corpora._citations import CITATION_LABELS as CITATION_LABELS
from experiments.corpora._citations import citations as citations
from experiments.corpora._genes import gene_mentions as gene_mentions
