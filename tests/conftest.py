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
    QUICK_COMPILING += ["--xla_cpu_parallel_codegen_split_count=1"]  # the other core is not idle
os.environ["XLA_FLAGS"] = " ".join([*QUICK_COMPILING, os.environ.get("XLA_FLAGS", "")]).strip()

gc.set_threshold(200_000, 20, 20)  # tracing makes many objects that live: one seventh of the time

import hypothesis  # noqa: E402
import jax  # noqa: E402
import jaxtyping  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_enable_x64", True)  # float32 is tested with arrays of float32
jaxtyping.install_import_hook("jaxseq", "beartype.beartype")  # runs every annotation of a shape

from experiments._programs import forget_programs  # noqa: E402

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


APART = ("test_docs.py",)
"""Modules whose tests share nothing."""
TOGETHER = {
    "laws of chains": ("chain", "derivatives enumeration extremes padding transformations"),
    "active learning": ("tagger", "active_loop active_state"),
    "CRFs of toys": (
        "tagger", "checkpoint crfsuite estimator learning predictions robustness storage",
    ),
    "CRFs of toys without labels": (
        "tagger", "entropy_weight self_training unlabelled unlabelled_refusals unlabelled_search",
    ),
    "HMMs of toys": (
        "tagger", "codl codl_ends constrained hmm_errors hmm_search hmm_storage hmm_tagger",
    ),
}  # fmt: skip
"""Modules that run the same programs, on chains or corpora of the same shapes."""
UNITS = {
    f"{folder}/test_{name}.py": unit
    for unit, (folder, names) in TOGETHER.items()
    for name in names.split()
}
LONGEST = (
    "scale/test_mesh.py", "chain/test_derivatives.py", "test_examples_are_true",
    "scale/test_processes.py", "scale/test_hmm_processes.py", "verify/test_mutate.py",
    "batch/test_batch_laws.py",
    "verify/test_check.py", "experiments/", "tagger/", "learn/",
)  # fmt: skip
"""What takes longest goes first, so that the workers end at about the same time."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Under ``-n``, units of work are handed out in the order of their first tests."""
    if not os.environ.get("PYTEST_XDIST_WORKER"):
        return
    items.sort(
        key=lambda item: next(
            (place for place, name in enumerate(LONGEST) if name in item.nodeid), len(LONGEST)
        )
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Under ``-n``, tests of a unit share a worker, with compiled programs and fixtures."""
    if config.option.dist != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # would put many tests before long ones

    class ByModule(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            module = Path(nodeid.partition("::")[0])
            if module.name in APART:
                return nodeid
            return UNITS.get("/".join(module.parts[-2:]), str(module))

    return ByModule(config, log)


_finished = itertools.count(1)


def pytest_runtest_teardown(item):
    """Forget compiled programs before there are too many of them."""
    if next(_finished) % 20 == 0:
        forget_programs(42_000)
