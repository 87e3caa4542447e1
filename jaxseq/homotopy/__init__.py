"""Homotopy continuation for fixed-point problems: paths from labelled to unlabelled data."""

from jaxseq.homotopy._follow import CriticalPoint, Kind, find_critical_points, follow_path
from jaxseq.homotopy._path import (
    Event,
    Path,
    PathOutcome,
    Selection,
    StepOutcome,
    load_path,
    save_path,
    select_max_entropy,
    select_min_eigenvalue,
    select_monotone,
)
from jaxseq.homotopy._problem import (
    Jacobian,
    PathSettings,
    Predictor,
    Problem,
    Structure,
    freeze,
    linear_weights,
    published_settings,
)
from jaxseq.homotopy._spectrum import Spectrum, leading_eigenvalues

__all__ = [
    "CriticalPoint",
    "Event",
    "Jacobian",
    "Kind",
    "Path",
    "PathOutcome",
    "PathSettings",
    "Predictor",
    "Problem",
    "Selection",
    "Spectrum",
    "StepOutcome",
    "Structure",
    "find_critical_points",
    "follow_path",
    "freeze",
    "leading_eigenvalues",
    "linear_weights",
    "load_path",
    "published_settings",
    "save_path",
    "select_max_entropy",
    "select_min_eigenvalue",
    "select_monotone",
]
