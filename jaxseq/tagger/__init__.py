"""The tagger: an estimator on top of features, models and learning."""

from jaxseq.tagger._crfsuite import import_crfsuite as import_crfsuite
from jaxseq.tagger._store import load as load
from jaxseq.tagger._tagger import CRFTagger as CRFTagger
