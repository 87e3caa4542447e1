"""``jaxseq doctor``: what it says, and that it notices what is broken."""

import json

import jax
import pytest

import jaxseq
from jaxseq.cli import _doctor
from jaxseq.cli import _doctor as _doctor_checks
from jaxseq.cli import _doctor as _doctor_facts
from jaxseq.cli._doctor import CHECKS, CheckError, run_checks
from jaxseq.crf import Plan


def quick(monkeypatch, **checks):
    """Only these checks, by the names that are given."""
    monkeypatch.setattr(_doctor_checks, "CHECKS", {name: run for name, run in checks.items()})


def fine():
    return "as it ought to be"


def broken():
    raise CheckError("log Z: expected 1, got 2")


def crashing():
    raise TypeError("a library\nhas changed")


def test_all_well(succeed, monkeypatch):
    """The real checks, on the devices that are here; a busy machine may take its time."""
    monkeypatch.setattr(_doctor, "SECONDS", 1e6)
    out = succeed("doctor")
    assert out.rstrip().endswith("all well")
    for word in ("versions", "devices", "compilation cache", "self-check", "tokens/s", "float64"):
        assert word in out
    assert jax.__version__ in out


def test_json_holds_the_same(succeed, monkeypatch):
    quick(monkeypatch, one=fine)
    report = json.loads(succeed("doctor", "--json"))
    assert report["well"] is True
    assert report["problems"] == []
    assert report["versions"]["jax"] == jax.__version__
    assert [device["platform"] for device in report["devices"]] == ["cpu"] * jax.device_count()
    assert report["numbers"]["default float"] == "float64"  # as the suite has it
    assert report["jaxseq"]["engine"].startswith("auto")
    assert [check["said"] for check in report["checks"]] == ["as it ought to be"]


def test_cores_are_those_that_this_process_may_use(succeed, monkeypatch):
    quick(monkeypatch, one=fine)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3, 5, 6}, raising=False)
    report = json.loads(succeed("doctor", "--json"))
    assert (report["machine"]["cores"], report["machine"]["cores usable"]) == (64, 3)
    assert report["jaxseq"]["shards at a time"] == report["jaxseq"]["shards of a corpus"] == 3
    assert Plan.from_tagger(jaxseq.CRFTagger(cores=None)).cores == 3
    assert "orbax-checkpoint" not in report["versions"]


@pytest.mark.parametrize("check", [broken, crashing])
def test_what_is_broken_is_named_and_is_status_one(run, monkeypatch, check):
    quick(monkeypatch, one=fine, two=check)
    status, out, err = run("doctor")
    assert (status, err) == (1, "")
    last = out.rstrip().splitlines()[-1]
    assert "1 problem:" in out
    assert "two on cpu" in last
    assert ("expected 1, got 2" if check is broken else "TypeError: a library has changed") in last
    assert "all well" not in out
    status, out, _ = run("doctor", "--json")
    report = json.loads(out)
    assert (status, report["well"]) == (1, False)
    assert [check["passed"] for check in report["checks"]] == [True, False]


def test_a_wrong_answer_of_the_library_is_noticed(monkeypatch):
    true = jaxseq.log_partition
    monkeypatch.setattr(jaxseq, "log_partition", lambda chain: true(chain) + 0.01)
    with pytest.raises(CheckError, match="log Z: expected"):
        CHECKS["inference"]()


def test_a_wrong_gradient_of_the_library_is_noticed(monkeypatch):
    true = jaxseq.entropy

    def halved(chain):
        value = true(chain)
        return jax.lax.stop_gradient(value / 2) + value / 2

    monkeypatch.setattr(jaxseq, "entropy", halved)
    with pytest.raises(CheckError, match="gradient of the entropy"):
        CHECKS["inference"]()


def test_a_wrong_training_step_is_noticed(monkeypatch):
    true = jaxseq.crf.entropy_regularised_gradient

    def flipped(*arguments):
        loss, gradient = true(*arguments)
        return loss, jax.tree.map(lambda leaf: -leaf, gradient)

    monkeypatch.setattr(jaxseq.crf, "entropy_regularised_gradient", flipped)
    with pytest.raises(CheckError, match="a step along the gradient"):
        CHECKS["training step"]()


def test_no_check_is_begun_when_the_time_is_up(monkeypatch):
    quick(monkeypatch, one=fine, two=broken)
    findings = run_checks(jax.devices()[:1], -1.0)
    assert [finding.passed for finding in findings] == [None, None]
    report = _doctor.examine(-1.0)
    assert report["well"]
    assert any("not checked" in note for note in report["notes"])
    assert _doctor.as_text(report).endswith("nothing wrong in what was checked")


def test_without_a_device_there_is_a_problem(run, monkeypatch):
    def none(*_):
        raise RuntimeError("Unable to initialize backend 'cuda'")

    monkeypatch.setattr(jax, "devices", none)
    status, out, err = run("doctor")
    assert (status, err) == (1, "")
    assert "JAX finds no device: Unable to initialize backend 'cuda'" in out


def test_the_cache_of_compiled_programs_is_measured(monkeypatch, tmp_path):
    (tmp_path / "program").write_bytes(b"x" * 2_000_000)
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    try:
        facts, notes, problems = _doctor_facts.collect_facts({})
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    cache = facts["compilation_cache"]
    assert (cache["on"], cache["files"], cache["size"]) == (True, 1, "2.0 MB")
    assert cache["folder"] == str(tmp_path)
    assert not problems
    assert not any("compiled anew" in note for note in notes)


def test_other_processes_are_seen_in_the_environment():
    given = {
        "JAX_COORDINATOR_ADDRESS": "10.0.0.1:1234",
        "JAX_NUM_PROCESSES": "4",
        "JAX_PROCESS_ID": "2",
        "HOME": "/nowhere",
        "XLA_FLAGS": "--xla_dump_to=/somewhere",
    }
    facts, _, problems = _doctor_facts.collect_facts(given)
    assert not problems
    assert facts["distributed"]["coordinator"] == "10.0.0.1:1234"
    assert (facts["distributed"]["processes"], facts["distributed"]["this one"]) == (4, 2)
    assert "HOME" not in facts["environment"]
    assert facts["environment"]["XLA_FLAGS"] == "--xla_dump_to=/somewhere"


def test_an_environment_that_contradicts_itself_is_a_problem():
    facts, _, problems = _doctor_facts.collect_facts({"JAX_NUM_PROCESSES": "4"})
    assert any("--coordinator" in problem for problem in problems)
    assert facts["distributed"]["other processes"] == "the environment contradicts itself"
