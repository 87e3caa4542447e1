"""Settings of the whole suite; they must stand before JAX or jaxseq is imported.

Compiling is nearly all that the tests cost, so XLA is told to optimise little. Flags that the
user has set come last and win: ``XLA_FLAGS="--xla_backend_optimization_level=3
--xla_cpu_use_fusion_emitters=true" pytest`` tests the code that users run.
"""

import gc
import itertools
import os
from importlib.metadata import version
from pathlib import Path

QUICK_COMPILING = ["--xla_backend_optimization_level=0"]
if version("jaxlib").startswith("0.10."):  # XLA aborts on a flag that it does not know
    QUICK_COMPILING += ["--xla_cpu_use_fusion_emitters=false"]
os.environ["XLA_FLAGS"] = " ".join([*QUICK_COMPILING, os.environ.get("XLA_FLAGS", "")]).strip()

gc.set_threshold(200_000, 20, 20)  # tracing makes many objects that live: one seventh of the time

import hypothesis  # noqa: E402
import jax  # noqa: E402
import jaxtyping  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_enable_x64", True)  # float32 is tested with arrays of float32
jaxtyping.install_import_hook("jaxseq", "beartype.beartype")  # runs every annotation of a shape

SLOW_IS_FINE = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large]
hypothesis.settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=4,
    suppress_health_check=SLOW_IS_FINE,
)
hypothesis.settings.register_profile(
    "thorough",
    deadline=None,
    database=None,
    max_examples=300,
    suppress_health_check=SLOW_IS_FINE,
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_configure(config):
    """Under ``-n``, tests that share compiled programs go to one worker."""
    if getattr(config.option, "dist", "no") == "load":
        config.option.dist = "loadgroup"


def pytest_collection_modifyitems(config, items):
    """Tests that share compiled programs or costly fixtures, mostly those of a module, share one
    worker; large modules are cut where they share little."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        group = [item.path.parent.name, item.path.stem]
        if item.path.parent.name == "chain" and "entry" in parameters:
            group = [parameters["entry"].name]
        elif item.path.stem == "test_batch_laws":
            group.append(parameters.get("layout", ""))
        elif item.path.stem == "test_docs":
            group.append(parameters.get("part", ""))
        item.add_marker(pytest.mark.xdist_group("-".join(group)))


MAPS, MOST_MAPS = Path("/proc/self/maps"), 30_000
_finished = itertools.count(1)


def pytest_runtest_teardown(item):
    """Forget compiled programs before there are too many of them.

    Each holds a few mappings of memory, of which Linux gives a process 65,530; past that the
    compiler crashes.
    """
    if next(_finished) % 20 == 0 and MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()
