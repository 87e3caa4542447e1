"""Features learnt from text without labels: clusters of words, Brown paths, states, vectors."""

from jaxseq.representations._brown import BrownTree as BrownTree
from jaxseq.representations._brown import brown_clusters as brown_clusters
from jaxseq.representations._brown import neighbour_counts as neighbour_counts
from jaxseq.representations._contexts import cluster_directions as cluster_directions
from jaxseq.representations._contexts import positive_information as positive_information
from jaxseq.representations._learn import learn_representation as learn_representation
from jaxseq.representations._lexicon import Lexicon as Lexicon
from jaxseq.representations._lexicon import Normalisation as Normalisation
from jaxseq.representations._representation import Representation as Representation
from jaxseq.representations._representation import load_representation as load_representation
from jaxseq.representations._states import StateModel as StateModel
from jaxseq.representations._vectors import read_vectors as read_vectors
from jaxseq.representations._vectors import (
    representation_from_vectors as representation_from_vectors,
)

__all__ = [
    "BrownTree",
    "Lexicon",
    "Normalisation",
    "Representation",
    "StateModel",
    "brown_clusters",
    "learn_representation",
    "load_representation",
    "read_vectors",
    "representation_from_vectors",
]
"""What users call; the other names are for the packages of jaxseq itself and its tests."""
