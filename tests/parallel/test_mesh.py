"""Eight devices give what one gives: objectives, E-steps, decoding, training."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from jaxseq.parallel import check_mesh, make_mesh

ROOT = Path(__file__).parents[2]
# Eight devices on few cores wait for each other; the limit is for those that never come.
FLAGS = [
    os.environ["XLA_FLAGS"],  # of the suite, which compile quickly
    "--xla_force_host_platform_device_count=8",
    "--xla_cpu_collective_call_terminate_timeout_seconds=600",
]
CLOSE = {"float32": 1e-6, "float64": 1e-12}
SEARCHES = ("training", "training in blocks", "EM")
"""Results of many steps, each of which may round differently."""


def run_module(name, flags, **more):
    """What a module prints as JSON, of a process with these flags."""
    env = {key: os.environ[key] for key in os.environ if not key.startswith(("JAX_", "XLA_"))}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env.get("PYTHONPATH", "")])
    env["XLA_FLAGS"] = " ".join(flags)
    command = [sys.executable, "-m", name]
    done = subprocess.run(command, env=env | more, cwd=ROOT, capture_output=True, text=True)
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


def test_blocks_stay_apart(found):
    """No device ever holds all of what is cut into four."""
    assert set(found["placement"].values()) == {0.25}


def test_no_device_ever_holds_the_table(found):
    """With eight blocks, and two steps remembered; before the first iteration and after each."""
    held = found["held"]
    assert held["looks"] >= 4
    assert held["largest share"] < 0.5
    assert held["largest share in prediction"] < 0.13


def test_rows_come_back_in_other_blocks(found):
    assert found["rows"] == {"tables tried": 48, "tables that differ": 0}


PAIRS = ["2 to 4", "2 to 1", "2 to no mesh", "no mesh to 2", "1 to 4"]


@pytest.mark.parametrize("pair", PAIRS)
def test_a_search_stopped_in_some_blocks_goes_on_in_others(found, pair):
    """To the point of one that was never stopped; and what it leaves is in its own blocks."""
    assert found["gone on with"][pair] <= 1e-12
    index, *parts = found["gone on with"][f"files, {pair}"]
    blocks = {"4": 4, "2": 2}.get(pair.split(" to ")[1], 0)
    assert index == "search"
    assert [name.rsplit("-", 1)[1] for name in parts] == [str(block) for block in range(blocks)]


def test_parts_that_are_cut_or_missing_are_named(found):
    told = found["gone on with"]
    assert re.match(r"ValueError: \S*search\.part-\d+-1: expected a checkpoint", told["cut"])
    assert re.match(r"ValueError: \S*search\.part-\d+-1: expected a part of", told["missing"])
    assert "there is none" in told["missing"]


def test_a_kill_before_the_index_leaves_the_checkpoint_before_it(found):
    told = found["gone on with"]
    assert told["killed"] == "OSError: killed"
    assert told["index is as before"]
    assert len(told["files of two"]) == 1 + 2 * 2  # the parts of both
    assert told["after the kill"] <= 1e-12
    assert len(told["files of one"]) == 1 + 2


def test_a_search_that_is_over_leaves_no_parts(found):
    """Not even those of one that was killed; files of other names stay."""
    assert found["gone on with"]["orphans"] == ["other.part-1-0", "search.part-2"]


def test_programs_of_a_mesh_are_for_accelerators(found):
    """Lowered for GPUs and TPUs: without callbacks, float64 or products that are rounded."""
    assert len(found["lowered"]) == 17
    assert not {name: wrong for name, wrong in found["lowered"].items() if wrong}


# ------------------------------------------------------------------------------- in this process


def test_mesh_of_other_axes_is_refused():
    devices = np.array(jax.devices()[:1])
    with pytest.raises(ValueError, match="expected the axis 'data'"):
        check_mesh(Mesh(devices, ("batch",)))
    with pytest.raises(ValueError, match=r"expected a jax\.sharding\.Mesh, got 3"):
        check_mesh(3)
    with pytest.raises(ValueError, match="can be divided by, got 3"):
        make_mesh(jax.devices()[:1], model=3)


def test_a_mesh_of_one_axis_is_one_of_two():
    devices = np.array(jax.devices()[:1])
    assert check_mesh(Mesh(devices, ("data",))) == make_mesh(jax.devices()[:1])
