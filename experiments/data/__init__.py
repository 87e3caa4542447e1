"""The corpora of the experiments: which files, from where, and sentences of them.

No corpus comes with this repository: the licences of several do not allow it. A person puts the
files into a folder, under the names of ``registry.txt``, and gives the folder by ``--data`` or by
the variable ``JAXSEQ_DATA``. Where there is no folder, generators stand in for the corpora, and
every result says which of the two it has used.
"""

from experiments.data._catalogue import CORPORA as CORPORA
from experiments.data._catalogue import Corpus as Corpus
from experiments.data._data import Data as Data
from experiments.data._registry import is_missing as is_missing
from experiments.data._registry import locate as locate
from experiments.data._sources import Source as Source
from experiments.data._sources import choose_sources as choose_sources
from experiments.data._sources import data_folder as data_folder
