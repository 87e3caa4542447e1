"""Settings of the whole suite; they must stand before JAX or jaxseq is imported.

Compiling is nearly all that the tests cost, so XLA is told to optimise little. Flags that the
user has set come last and win: ``XLA_FLAGS="--xla_backend_optimization_level=3
--xla_cpu_use_fusion_emitters=true" pytest`` tests the code that users run.
"""

import gc
import itertools
import os
import shutil
import tempfile
from importlib.metadata import version

QUICK_COMPILING = ["--xla_backend_optimization_level=0"]
if version("jaxlib").startswith("0.10."):  # XLA aborts on a flag that it does not know
    QUICK_COMPILING += ["--xla_cpu_use_fusion_emitters=false"]
    QUICK_COMPILING += ["--xla_cpu_parallel_codegen_split_count=1"]  # the other core is not idle
os.environ["XLA_FLAGS"] = " ".join([*QUICK_COMPILING, os.environ.get("XLA_FLAGS", "")]).strip()

# What one process has compiled, the other worker and the processes that tests start need not. The
# folder is that of the process which makes it: workers find the variable set.
OWN_CACHE = None
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    OWN_CACHE = tempfile.mkdtemp(prefix="jaxseq-tests-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = OWN_CACHE
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

gc.set_threshold(200_000, 20, 20)  # tracing makes many objects that live: one seventh of the time

import hypothesis  # noqa: E402
import jax  # noqa: E402
import jaxtyping  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_enable_x64", True)  # float32 is tested with arrays of float32
jaxtyping.install_import_hook("jaxseq", "beartype.beartype")  # runs every annotation of a shape

from jaxseq._runtime import forget_programs  # noqa: E402

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


def pytest_unconfigure():
    """Leave no programs behind."""
    if OWN_CACHE is not None:
        shutil.rmtree(OWN_CACHE, ignore_errors=True)


@pytest.fixture(scope="module")
def unchecked():
    """The library's own words, not those of a type checker."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


LONGEST = (
    "parallel/test_processes", "test_docs", "parallel/", "mutants/", "native/test_wheel",
    "lattice/test_batch_laws", "verify/", "lattice/", "experiments/",
)  # fmt: skip
"""What takes longest goes first, so that the workers end at about the same time."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Put the longest files first: `--dist loadfile` hands files out in this order."""
    items.sort(
        key=lambda item: next(
            (place for place, name in enumerate(LONGEST) if name in item.nodeid), len(LONGEST)
        )
    )


_finished = itertools.count(1)


def pytest_runtest_teardown(item):
    """Forget compiled programs before there are too many of them."""
    if next(_finished) % 20 == 0:
        forget_programs(42_000)
