"""Eight devices give what one gives: objectives, E-steps, decoding, training."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from jaxseq.parallel import check_mesh, make_mesh
from tests.processes import ROOT, environment

# Eight devices on few cores wait for each other; the limit is for those that never come.
FLAGS = [
    os.environ["XLA_FLAGS"],  # of the suite, which compile quickly
    "--xla_force_host_platform_device_count=8",
    "--xla_cpu_collective_call_terminate_timeout_seconds=600",
]
CLOSE = {"float32": 1e-6, "float64": 1e-12}
SEARCHES = ("training", "training of dense weights", "EM")
"""Results of many steps, each of which may round differently."""


def run_module(name, flags, **more):
    """What a module prints as JSON, of a process with these flags."""
    env = environment(XLA_FLAGS=" ".join(flags), **more)
    command = [sys.executable, "-m", name]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def found():
    return run_module("tests.parallel.on_mesh", FLAGS)


def test_there_are_eight_devices(found):
    assert found["devices"] == 8


@pytest.mark.parametrize("dtype", CLOSE)
def test_results_agree(found, dtype):
    far = {
        name: distance
        for name, distance in found[dtype].items()
        if name not in SEARCHES and not distance <= CLOSE[dtype]
    }
    assert not far
    assert len(found[dtype]) > 6


def test_searches_end_at_one_point(found):
    for name in SEARCHES:
        assert found["float32"][name] <= 2e-3, name  # rounding, after many steps


def test_training_from_shards_agrees(found):
    assert list(found["shards"]) == ["3 streams on 2", "3 streams on 8"]
    assert max(found["shards"].values()) <= 1e-12


PAIRS = ["8 to 1", "8 to no mesh", "no mesh to 8", "1 to 8"]


@pytest.mark.parametrize("pair", PAIRS)
def test_a_search_stopped_on_some_devices_goes_on_with_others(found, pair):
    """To the point of one that was never stopped; its state is in one file."""
    assert found["gone on with"][pair] <= 1e-12
    assert found["gone on with"][f"files, {pair}"] == ["search"]


def test_programs_of_a_mesh_are_for_accelerators(found):
    """Lowered for GPUs and TPUs: without callbacks, float64 or products that are rounded."""
    assert len(found["lowered"]) == 10
    assert not {name: wrong for name, wrong in found["lowered"].items() if wrong}


# ------------------------------------------------------------------------------- in this process


def test_mesh_of_other_axes_is_refused():
    devices = np.array(jax.devices()[:1])
    with pytest.raises(ValueError, match="expected the axis 'data'"):
        check_mesh(Mesh(devices, ("batch",)))
    with pytest.raises(ValueError, match=r"expected a jax\.sharding\.Mesh, got 3"):
        check_mesh(3)
    with pytest.raises(ValueError, match="expected the axis 'data' alone"):
        check_mesh(Mesh(devices[:, None], ("data", "model")))
    with pytest.raises(ValueError, match="devices: expected at least one"):
        make_mesh([])


def test_a_mesh_of_jax_will_do():
    devices = np.array(jax.devices()[:1])
    assert check_mesh(Mesh(devices, ("data",))) == make_mesh(jax.devices()[:1])
