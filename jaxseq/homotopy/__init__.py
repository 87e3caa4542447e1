"""Homotopy continuation for fixed-point problems: paths from labelled to unlabelled data."""

from jaxseq.homotopy._critical import CriticalPoint as CriticalPoint
from jaxseq.homotopy._critical import Kind as Kind
from jaxseq.homotopy._critical import find_critical_points as find_critical_points
from jaxseq.homotopy._follow import follow_path as follow_path
from jaxseq.homotopy._path import Event as Event
from jaxseq.homotopy._path import Path as Path
from jaxseq.homotopy._path import PathOutcome as PathOutcome
from jaxseq.homotopy._path import Selection as Selection
from jaxseq.homotopy._path import StepOutcome as StepOutcome
from jaxseq.homotopy._path import choose as choose
from jaxseq.homotopy._path import greatest_after_start as greatest_after_start
from jaxseq.homotopy._path import load_path as load_path
from jaxseq.homotopy._path import save_path as save_path
from jaxseq.homotopy._path import select_max_entropy as select_max_entropy
from jaxseq.homotopy._path import select_min_eigenvalue as select_min_eigenvalue
from jaxseq.homotopy._path import select_monotone as select_monotone
from jaxseq.homotopy._problem import Problem as Problem
from jaxseq.homotopy._problem import Structure as Structure
from jaxseq.homotopy._problem import freeze as freeze
from jaxseq.homotopy._problem import linear_weights as linear_weights
from jaxseq.homotopy._settings import Jacobian as Jacobian
from jaxseq.homotopy._settings import PathSettings as PathSettings
from jaxseq.homotopy._settings import Predictor as Predictor
from jaxseq.homotopy._settings import published_settings as published_settings
from jaxseq.homotopy._spectrum import Spectrum as Spectrum
from jaxseq.homotopy._spectrum import leading_eigenvalues as leading_eigenvalues

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
"""What users call; the other names are for the packages of jaxseq itself."""
