"""Homotopy continuation: the path of fixed points from labelled to unlabelled data."""

from jaxseq.learn.homotopy._critical import CriticalPoint as CriticalPoint
from jaxseq.learn.homotopy._critical import Kind as Kind
from jaxseq.learn.homotopy._critical import find_critical_points as find_critical_points
from jaxseq.learn.homotopy._follow import follow_path as follow_path
from jaxseq.learn.homotopy._path import Event as Event
from jaxseq.learn.homotopy._path import Outcome as Outcome
from jaxseq.learn.homotopy._path import Path as Path
from jaxseq.learn.homotopy._path import StepOutcome as StepOutcome
from jaxseq.learn.homotopy._problem import Problem as Problem
from jaxseq.learn.homotopy._problem import Structure as Structure
from jaxseq.learn.homotopy._problem import freeze as freeze
from jaxseq.learn.homotopy._problem import linear_weights as linear_weights
from jaxseq.learn.homotopy._select import Selection as Selection
from jaxseq.learn.homotopy._select import select_max_entropy as select_max_entropy
from jaxseq.learn.homotopy._select import select_min_eigenvalue as select_min_eigenvalue
from jaxseq.learn.homotopy._select import select_monotone as select_monotone
from jaxseq.learn.homotopy._settings import Jacobian as Jacobian
from jaxseq.learn.homotopy._settings import Predictor as Predictor
from jaxseq.learn.homotopy._settings import Settings as Settings
from jaxseq.learn.homotopy._settings import published_settings as published_settings
from jaxseq.learn.homotopy._spectrum import Spectrum as Spectrum
from jaxseq.learn.homotopy._spectrum import leading_eigenvalues as leading_eigenvalues
from jaxseq.learn.homotopy._store import load_path as load_path
from jaxseq.learn.homotopy._store import save_path as save_path
