"""Settings that all processes of a training must have alike: else one would wait for the rest."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from jax.sharding import Mesh

from jaxseq.parallel import Peers
from jaxseq.text import Templates

if TYPE_CHECKING:
    from jaxseq.constraints import CoDL
    from jaxseq.crf import CRFTagger, EntropyTerm, Plan
    from jaxseq.hmm import HMMPlan, HMMTagger

OF_EACH = ("cores", "progress", "checkpoint")
"""Parameters that may differ: a path may be spelt in several ways."""


def check_alike(
    tagger: CRFTagger,
    plan: Plan,
    term: EntropyTerm,
    vocabulary: str,
    given: dict[str, Any],
    peers: Peers,
) -> None:
    """ValueError unless all processes train with the same settings.

    Args:
        tagger: with the parameters. plan: how to search.
        term, vocabulary: what unlabelled sentences are to do.
        given: further arguments, of which it matters whether they are there.
        peers: all processes, which must call this together.
    """
    if peers.count == 1:
        return
    settings, told = tagger.get_params(deep=False), _told(tagger)
    if settings["templates"] is not None:
        chosen = settings["templates"]
        chosen = chosen if isinstance(chosen, Templates) else Templates(chosen)
        told["templates"] = str(chosen.to_json())
    weight = term.weight
    if callable(weight):
        weight = term.pieces(plan.settings.max_iterations)
    told |= {"entropy_weight": str(weight), "entropy_gradient": term.gradient}
    told["vocabulary"] = vocabulary
    _compare(told, plan.checkpoint, plan.mesh, given, peers)


def check_hmm_alike(tagger: HMMTagger, plan: HMMPlan, given: dict[str, Any], peers: Peers) -> None:
    """As `check_alike`, for hidden Markov models."""
    if peers.count == 1:
        return
    _compare(_told(tagger), plan.checkpoint, plan.mesh, given, peers)


def check_codl_alike(codl: CoDL, mesh: Mesh | None, given: dict[str, Any], peers: Peers) -> None:
    """As `check_alike`, for constraint-driven learning; but for the constraints."""
    if peers.count == 1:
        return
    told = {f"estimator: {name}": value for name, value in _told(codl.estimator).items()}
    told |= {"estimator": type(codl.estimator).__name__, **_told(codl)}
    _compare(told, codl.checkpoint, mesh, given, peers)


def _told(learner: CRFTagger | HMMTagger | CoDL) -> dict[str, str]:
    """The parameters that are plain values."""
    settings = {**learner.get_params(deep=False)}
    if isinstance(settings.get("classes"), Collection):
        settings["classes"] = sorted(map(str, settings["classes"]))
    left_out = (*OF_EACH, "estimator", "constraints")
    return {name: str(value) for name, value in settings.items() if name not in left_out}


def _compare(
    told: dict[str, str], checkpoint: Any, mesh: Mesh | None, given: dict[str, Any], peers: Peers
) -> None:
    for name, value in {"checkpoint": checkpoint, **given}.items():
        told[name] = "none" if value is None else "given"
    told["mesh"] = "none" if mesh is None else str(mesh.devices.shape)
    peers.check_same("settings", told)
