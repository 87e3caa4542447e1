"""What `python -m build` makes: a wheel that brings its kernels and needs no compiler."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from jaxseq.native import _compiler

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, which is built from the sdist."""
    for tool in ("build", "hatchling", "pip"):
        pytest.importorskip(tool)
    try:
        _compiler.find_compiler()
    except _compiler.CannotBuild as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("dist")
    # Without isolation, which would fetch hatchling from the network.
    run("-m", "build", "--no-isolation", "--outdir", folder, ROOT, JAXSEQ_BUILD_KERNELS="1")
    assert len(list(folder.glob("jaxseq-*.tar.gz"))) == 1
    (built,) = folder.glob("jaxseq-*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """The Python of an environment that has the wheel, but no other jaxseq."""
    folder = tmp_path_factory.mktemp("wheel") / "venv"
    run("-m", "venv", "--without-pip", folder)
    installed = folder / "bin" / "python"
    run("-m", "pip", "--python", installed, "install", "--quiet", "--no-index", "--no-deps", wheel)
    # The dependencies are those of the suite: Python reads no .pth files of a folder that is named
    # in one, so that an editable installation of jaxseq stays behind.
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    paths = folder / "lib" / version / "site-packages" / "dependencies.pth"
    paths.write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    return installed


def run(*command, python=sys.executable, **environment):
    """Python's output, in an environment that names no other jaxseq."""
    hidden = ("PYTHONPATH", "JAXSEQ_NATIVE", "CXX")
    env = {name: value for name, value in os.environ.items() if name not in hidden} | environment
    process = subprocess.run(
        [str(part) for part in (python, "-P", *command)], env=env, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def test_the_wheel_is_for_any_python_and_has_every_variant(wheel):
    assert "-py3-none-" in wheel.name
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")}
    is_x86 = sysconfig.get_platform().endswith("x86_64")
    variants = list(_compiler.VARIANTS) if is_x86 else ["baseline"]
    libraries = _compiler.LIBRARIES.keys() - {"processor"}
    files = {f"{variant}/{library}.so" for variant in variants for library in libraries}
    assert names == {f"jaxseq/native/bundled/{file}" for file in files | {"processor.so"}}


@pytest.mark.parametrize("variant", ["", "baseline"])
def test_an_installed_wheel_finds_its_kernels_without_a_compiler(python, tmp_path, variant):
    """The best of this processor, and those of an old one."""
    cache = tmp_path / "cache"
    environment = {"PATH": str(tmp_path), "JAXSEQ_CACHE_DIR": str(cache), "JAXSEQ_NATIVE": variant}
    assert not any(shutil.which(name, path=str(tmp_path)) for name in _compiler.COMPILERS)
    said = run(ROOT / "tests" / "native" / "check_wheel.py", python=python, **environment)
    assert f"/bundled/{variant}" in said
    assert str(python.parents[1]) in said  # not of a checkout
    assert not cache.exists()
