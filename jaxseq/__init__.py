"""jaxseq: sequence labelling with few labels, in functional JAX."""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from jaxseq._lazy import lazy_names as _lazy_names
from jaxseq._runtime import Outcome as Outcome
from jaxseq._runtime import map_on_cores as map_on_cores

if _TYPE_CHECKING:
    from jaxseq import active as active
    from jaxseq import constraints as constraints
    from jaxseq import crf as crf
    from jaxseq import expectations as expectations
    from jaxseq import hmm as hmm
    from jaxseq import homotopy as homotopy
    from jaxseq import lattice as lattice
    from jaxseq import metrics as metrics
    from jaxseq import parallel as parallel
    from jaxseq import representations as representations
    from jaxseq import shards as shards
    from jaxseq import study as study
    from jaxseq import taggers as taggers
    from jaxseq import text as text
    from jaxseq import verify as verify
    from jaxseq.active import ActiveLearner as ActiveLearner
    from jaxseq.constraints import CoDL as CoDL
    from jaxseq.crf import CRF as CRF
    from jaxseq.crf import CRFTagger as CRFTagger
    from jaxseq.crf import CrossValidation as CrossValidation
    from jaxseq.crf import choose_entropy_weight as choose_entropy_weight
    from jaxseq.crf import choose_l2 as choose_l2
    from jaxseq.crf import import_crfsuite as import_crfsuite
    from jaxseq.hmm import HMM as HMM
    from jaxseq.hmm import HMMTagger as HMMTagger
    from jaxseq.lattice import *  # noqa: F403 - the functions of lattices are offered here as well
    from jaxseq.shards import train_from_shards as train_from_shards
    from jaxseq.shards import write_shards as write_shards
    from jaxseq.study import fit_semi_supervised as fit_semi_supervised
    from jaxseq.taggers import SelfTraining as SelfTraining
    from jaxseq.taggers import load as load

# All is loaded on first use. The command line needs none of it to print its help or to refuse its
# arguments, and JAX, which everything imports, takes a while to load.

_PACKAGES = (
    "active", "constraints", "crf", "expectations", "hmm", "homotopy", "lattice", "metrics",
    "parallel", "representations", "shards", "study", "taggers", "text", "verify",
)  # fmt: skip
_NAMES = {
    "active": ("ActiveLearner",),
    "constraints": ("CoDL",),
    "crf": (
        "CRF",
        "CRFTagger",
        "CrossValidation",
        "choose_entropy_weight",
        "choose_l2",
        "import_crfsuite",
    ),
    "hmm": ("HMM", "HMMTagger"),
    "shards": ("train_from_shards", "write_shards"),
    "study": ("fit_semi_supervised",),
    "taggers": ("SelfTraining", "load"),
}
_LATER = {name: f"{__name__}.{name}" for name in _PACKAGES}
_LATER |= {name: _LATER[package] for package, names in _NAMES.items() for name in names}

_load, _ = _lazy_names(__name__, _LATER)


def __getattr__(name: str) -> _Any:
    # Other private names are asked for by programs that look around; no need to load JAX for them.
    if name not in _LATER and (name == "__all__" or not name.startswith("_")):
        lattice = _load("lattice")
        if name == "__all__":
            return sorted({"Outcome", "map_on_cores", *_LATER, *lattice.__all__})
        if name in lattice.__all__:
            return getattr(lattice, name)
    return _load(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
