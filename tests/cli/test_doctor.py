"""``jaxseq doctor``: what it says, and that it notices what is wrong."""

import json

import jax
import pytest

import jaxseq
from jaxseq.cli._doctor import examine
from jaxseq.crf import Plan


def test_nothing_is_wrong_here(succeed):
    out = succeed("doctor")
    assert out.rstrip().endswith("no problems found")
    for word in ("versions", "machine", "devices", "kernels", "compiled programs", "float64"):
        assert word in out
    assert jax.__version__ in out


def test_json_holds_the_same(succeed):
    report = json.loads(succeed("doctor", "--json"))
    assert report["problems"] == []
    assert report["versions"]["jax"] == jax.__version__
    assert "orbax-checkpoint" not in report["versions"]
    assert [name.split()[0] for name in report["devices"].values()] == ["cpu"] * jax.device_count()
    assert report["jaxseq"]["default float"] == "float64"  # as the suite has it
    assert report["jaxseq"]["kernels"].startswith(("in C++", "by XLA; none in C++: "))


def test_why_there_are_no_kernels(succeed, monkeypatch):
    monkeypatch.setattr("jaxseq.native.why_not", lambda: "no compiler")
    assert "by XLA; none in C++: no compiler" in succeed("doctor")


def test_cores_are_those_that_this_process_may_use(succeed, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3, 5, 6}, raising=False)
    report = json.loads(succeed("doctor", "--json"))
    assert (report["machine"]["cores"], report["machine"]["cores usable"]) == (64, 3)
    assert Plan.from_tagger(jaxseq.CRFTagger(cores=None)).cores == 3


def test_without_a_device_there_is_a_problem(run, monkeypatch):
    def none(*_):
        raise RuntimeError("Unable to initialize backend 'cuda'")

    monkeypatch.setattr(jax, "devices", none)
    status, out, err = run("doctor")
    assert (status, err) == (1, "")
    assert "JAX finds no device: Unable to initialize backend 'cuda'" in out
    assert "no problems found" not in out
    status, out, _ = run("doctor", "--json")
    assert (status, json.loads(out)["devices"]) == (1, {})


@pytest.mark.parametrize("writable", [True, False])
def test_the_folder_of_compiled_programs(tmp_path, writable):
    place = tmp_path / "cache"
    place.mkdir() if writable else place.touch()
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(place))
    try:
        report = examine({})
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert report["folders"]["compiled programs"] == str(place)
    wrong = f"{place}: expected a folder that can be written, for compiled programs"
    assert report["problems"] == ([] if writable else [wrong])


def test_other_processes_and_folders_are_seen_in_the_environment():
    report = examine(
        {
            "JAX_COORDINATOR_ADDRESS": "10.0.0.1:1234",
            "JAX_NUM_PROCESSES": "4",
            "JAX_PROCESS_ID": "2",
            "JAXSEQ_DATA": "/corpora",
            "HOME": "/nowhere",
            "XLA_FLAGS": "--xla_dump_to=/somewhere",
        }
    )
    assert not report["problems"]
    assert report["jaxseq"]["other processes"] == "at 10.0.0.1:1234, 4 in all, this one is 2"
    assert report["folders"]["data"] == "/corpora"
    assert "HOME" not in report["environment"]
    assert report["environment"]["XLA_FLAGS"] == "--xla_dump_to=/somewhere"


def test_an_environment_that_contradicts_itself_is_a_problem():
    report = examine({"JAX_NUM_PROCESSES": "4"})
    assert any("--coordinator" in problem for problem in report["problems"])
    assert report["jaxseq"]["other processes"] == "the environment contradicts itself"
