"""Searches that are stopped on some devices and gone on with on others.

Of `tests.parallel.on_mesh`, whose process has the devices.
"""

import tempfile
from pathlib import Path

import jax
import numpy as np

from jaxseq.crf import CRFTagger
from jaxseq.parallel import make_mesh
from tests.parallel import problems

SETTINGS = {
    "templates": ["word[0]", "word[-1]|word[0]"],
    "weights": "dense",
    "dtype": "float64",
    "tolerance": 0.0,
    "l2": 1.0,
    "cores": 1,
    "progress": False,
    "checkpoint_every": 3,
}
STOPPED, ALL = 4, 7
"""Iterations."""


def draw_sentences(rng, count):
    """Sentences of three labels, some without a word."""
    X = [[f"w{i}" for i in rng.integers(0, 9, rng.integers(0, 9))] for _ in range(count)]
    return X, [["ABC"[int(word[1:]) % 3] for word in sentence] for sentence in X]


def fit(iterations, mesh=None, checkpoint=None):
    """A tagger."""
    data = draw_sentences(np.random.default_rng(60), 15)
    settings = {**SETTINGS, "max_iterations": iterations, "checkpoint": checkpoint}
    return CRFTagger(**settings).fit(*data, mesh=mesh)


def gone_on_with():
    """Distance from a search that was not stopped, for each pair of where it began and ended."""
    whole = fit(ALL)
    devices = jax.devices()
    meshes = {"no mesh": None, "1": make_mesh(devices[:1]), "8": make_mesh(devices)}
    pairs = ("8", "1"), ("8", "no mesh"), ("no mesh", "8"), ("1", "8")
    with tempfile.TemporaryDirectory() as place:
        for begun, ended in pairs:
            path = Path(place) / f"{begun} {ended}" / "search"
            fit(STOPPED, meshes[begun], path)
            found = fit(ALL, meshes[ended], path)
            far = problems.distance((whole.loss_, whole.model_), (found.loss_, found.model_))
            yield f"{begun} to {ended}", far
            yield f"files, {begun} to {ended}", sorted(file.name for file in path.parent.iterdir())
