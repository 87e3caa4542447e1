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


CUT = {"test_batch_laws.py": "packed", "test_docs.py": ""}
"""Large modules whose tests share little: cut by a word of their names, or at every test."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Under ``-n``, tests of a module share a worker, with compiled programs and fixtures."""
    if config.option.dist != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByModule(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            module, _, test = nodeid.partition("::")
            word = CUT.get(Path(module).name)
            if word is None:
                return module
            return f"{module} {word in test}" if word else nodeid

    return ByModule(config, log)


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
