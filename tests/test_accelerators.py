"""Every program lowers for GPUs and TPUs: no callback to the host, no float64 where none was given,
no product in less than full precision.

Lowering needs no accelerator and compiles nothing: `jax.export` writes the program that one would
be given. With 64-bit numbers switched off, as they are unless a user switches them on, JAX has no
float64 at all. The suite switches them on, which is the harder case: then no *array* of a program
whose arguments are float32 is float64. Single numbers may be, as the −inf of
``jnp.where(legal, x, -jnp.inf)``, which is converted at once, or the learning rate of a step.
"""

from __future__ import annotations

import inspect
import re
from functools import partial
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from jaxseq import active, constraints, crf, hmm, homotopy, lattice
from tests.programs import COVERS, ON_THE_HOST, PROGRAMS, as_shapes

PLATFORMS = ["cuda", "tpu"]


def lower(function, *arguments) -> str:
    """The text of the program for all platforms at once."""
    exported = export.export(jax.jit(function), platforms=PLATFORMS)(*as_shapes(arguments))
    assert exported.platforms == tuple(PLATFORMS)
    return exported.mlir_module()


def double_arrays(text: str, allowed: str = "none") -> list[str]:
    """Lines with arrays of float64, of one dimension or more, but for certain shapes."""
    lines = re.sub(rf"tensor<{allowed}>", "", text).splitlines()
    return [line for line in lines if re.search(r"\dxf64\b", line)]


def rounded_products(text: str) -> list[str]:
    """Products of floating-point numbers that a TPU would round to bfloat16, a GPU to TF32."""
    lines = [line for line in text.splitlines() if "stablehlo.dot_general" in line]
    return [line for line in lines if "HIGHEST" not in line and re.search(r"[x<]f\d\d>", line)]


def callbacks(text: str) -> set[str]:
    """Calls back to the host, and to libraries that only a CPU has."""
    targets = set(re.findall(r"custom_call @([\w.]+)", text))
    targets |= set(re.findall(r'call_target_name = "([^"]+)"', text))
    return {name for name in targets if "callback" in name or name.startswith("lapack")}


@pytest.mark.parametrize("name", PROGRAMS)
def test_lowers_without_float64_callbacks_or_rounded_products(name):
    function, arguments = PROGRAMS[name]()
    text = lower(function, *arguments)
    assert "stablehlo" in text
    assert not callbacks(text)
    assert not double_arrays(text)
    assert not rounded_products(text)


@pytest.mark.parametrize("name", ["batch_log_partition", "supervised_step", "e_step"])
def test_without_64_bits_there_is_no_float64_at_all(name):
    with jax.enable_x64(False):
        function, arguments = PROGRAMS[name]()
        assert "f64" not in lower(function, *arguments)


# ---------------------------------------------------------------------- the list is complete


def _functions(module: ModuleType) -> set[str]:
    return {name for name in module.__all__ if inspect.isfunction(getattr(module, name))}


def test_no_public_function_is_missing():
    rooms = (lattice, constraints, crf, hmm, active, homotopy)
    public = {name for room in rooms for name in _functions(room)}
    lowered = set().union(*COVERS.values())
    assert not lowered & set(ON_THE_HOST)
    assert public - lowered - set(ON_THE_HOST) == set()


# -------------------------------------------------------------------- the checks can fail


def test_arrays_of_float64_are_noticed():
    ones = np.ones(3, np.float32)
    single = lower(lambda x: jnp.where(x > 0, x, -jnp.inf), ones)
    assert "f64" in single
    assert not double_arrays(single)
    for widened in (
        lambda x: x.astype(jnp.float64).sum().astype(jnp.float32),
        lambda x: x + jnp.arange(3.0).astype(jnp.float32),
    ):
        assert double_arrays(lower(widened, ones))


def test_rounded_products_are_noticed():
    ones, whole = np.ones(3, np.float32), np.ones(3, np.int32)
    assert rounded_products(lower(jnp.vdot, ones, ones))
    assert not rounded_products(lower(jnp.vdot, whole, whole))
    assert not rounded_products(lower(partial(jnp.vdot, precision="highest"), ones, ones))


def test_callbacks_are_noticed():
    def through_the_host(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    ones = np.ones(3, np.float32)
    assert callbacks(jax.jit(through_the_host).lower(ones).as_text())
    with pytest.raises((ValueError, NotImplementedError)):  # nor can it be lowered for others
        lower(through_the_host, ones)
