"""Two processes on loopback give what one gives, and say what is wrong when something is."""

import io
import json
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given

import jaxseq
from jaxseq.cli import _train, main
from jaxseq.cli._train import check_same_files, read_own_unlabelled, read_training
from jaxseq.crf import CRFTagger
from jaxseq.parallel import OtherProcessError, Peers, check_alike, find_meeting, join_processes
from jaxseq.text import DictExtractor, SharedCorpus, TemplateExtractor
from tests.parallel import in_processes, streamed
from tests.parallel.on_mesh import draw_sentences
from tests.processes import ROOT, environment

CLOSE = {"float32": 1e-6, "float64": 1e-12}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def start(arguments, module="jaxseq"):
    """A process of its own, with none of the suite's settings but those that compile quickly.

    Of a module, or of a program of several lines.
    """
    return subprocess.Popen(
        [sys.executable, "-c" if "\n" in module else "-m", module, *map(str, arguments)],
        env=environment(),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_pair(arguments, module="jaxseq"):
    """The same command as processes 0 and 1."""
    place = ["--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", 2, "--process-id"]
    return [start([*arguments, *place, index], module) for index in range(2)]


def finish(processes):
    """Exit status, output and errors of each."""
    told = [process.communicate(timeout=600) for process in processes]
    return [(process.returncode, *texts) for process, texts in zip(processes, told)]


def write_corpus(path, X, y):
    blocks = ["\n".join(f"{w} {label}" for w, label in zip(*pair)) for pair in zip(X, y) if pair[0]]
    path.write_text("\n\n".join(blocks) + "\n")


# ------------------------------------------------------------------------- two real processes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def found(folder):
    shards = folder / "streamed"
    streamed.write(shards)
    with jax.enable_x64(False):
        left = {"checkpoint": shards / "left by one"}
        streamed.train(shards / "all", 2, stop_after=streamed.STOPPED, **left)
    port = free_port()
    pair = [start([port, i, folder], "tests.parallel.in_processes") for i in range(2)]
    ended = finish(pair)
    assert [status for status, *_ in ended] == [0, 0], ended[0][2][-3000:] + ended[1][2][-3000:]
    return json.loads(ended[0][1].splitlines()[-1])


@pytest.mark.parametrize("split", in_processes.SPLITS)
@pytest.mark.parametrize("dtype", CLOSE)
def test_objective_and_counts_agree(found, dtype, split):
    expected = in_processes.alone(dtype)["supervised, counts"]
    for ours, theirs in zip(expected, found[dtype][split]["supervised, counts"]):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            scale = max(np.abs(one).max(initial=0), 1e-3)
            assert np.isfinite(one).all()
            np.testing.assert_allclose(one, other, rtol=0, atol=CLOSE[dtype] * scale)


@pytest.mark.parametrize("split", in_processes.SPLITS)
@pytest.mark.parametrize("dtype", CLOSE)
def test_entropy_regularised_objective_agrees(found, dtype, split):
    """The value, and the gradient as a whole: of an entropy's, single entries are small differences
    of large numbers."""
    ours, theirs = in_processes.alone(dtype), found[dtype][split]
    (value, *gradient), (other, *others) = (each["regularised"] for each in (ours, theirs))
    supervised = ours["supervised, counts"][0][0]
    assert abs(value[0] - supervised[0]) > 1.0
    assert value[0] == pytest.approx(other[0], rel=CLOSE[dtype])
    one, two = np.concatenate(gradient), np.concatenate(others)
    assert one.shape == two.shape
    assert np.linalg.norm(one - two) <= CLOSE[dtype] * np.linalg.norm(one)


def test_training_agrees(found):
    """The vocabulary, in its order, and the weights."""
    X, y = draw_sentences(np.random.default_rng(3), 15)
    with jax.enable_x64(False):
        tagger = CRFTagger(**in_processes.SETTINGS).fit(X, y)
    told = found["trained"]
    assert tagger.extractor_.attribute_names() == told["attributes"]
    assert tagger.loss_ == pytest.approx(told["loss"], rel=1e-5)
    for one, other in zip(in_processes.as_lists(tagger.model_), told["model"]):
        np.testing.assert_allclose(one, other, atol=2e-3)
    by_turns, by_the_first = ([told[place] for told in found["labels"]] for place in (0, 1))
    assert by_turns == [tagger.predict(X[place::2]) for place in (0, 1)]
    assert by_the_first == [tagger.predict(X), []]


def test_entropy_regularisation_agrees(found):
    X, y = draw_sentences(np.random.default_rng(3), 15)
    with jax.enable_x64(False):
        tagger = CRFTagger(**in_processes.SETTINGS, max_iterations=5)
        tagger.fit(X, y, unlabelled=X[:5], entropy_weight=0.3)
    for one, other in zip(in_processes.as_lists(tagger.model_), found["trained"]["sure"]):
        np.testing.assert_allclose(one, other, atol=2e-3)


def test_settings_that_differ_are_refused_by_all(found):
    own, other = found["differing"]
    same = "own ValueError: settings: expected the same in all processes, got {"
    for told in (own, other):
        wrong = f"{same}'max_iterations': '3'}} in process 0 and {{'max_iterations': '4'}}"
        assert told["iterations"].startswith(wrong)
        assert told["unlabelled"].startswith(f"{same}'unlabelled': 'none'}} in process 0 and")
        assert told["codl"].startswith("own ValueError: mesh: expected devices of this process")
    assert own["nonsense"] == f"other: process 1: {other['nonsense'].partition(': ')[2]}"


def test_a_search_that_two_left_is_gone_on_with_by_one(found, folder):
    """To where two would have come."""
    X, y = draw_sentences(np.random.default_rng(3), 15)
    kept = folder / "stopped"
    assert kept.exists()
    with jax.enable_x64(False):
        tagger = CRFTagger(**in_processes.SETTINGS, checkpoint=kept)
        tagger.fit(X, y)
    assert tagger.n_iter_ > 4
    assert tagger.loss_ == pytest.approx(found["trained"]["loss"], rel=1e-5)
    tagger.save(folder / "gone on")
    assert not kept.exists()


# ------------------------------------------------------------------------ shards on disk


def assert_near(found, expected, tolerance):
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("name", "streams"), [("shared", 1), ("own files", 2)])
def test_training_from_shards_agrees(found, folder, name, streams):
    """Where both read the same files, and where each has its own only."""
    with jax.enable_x64(False):
        expected = streamed.arrays_of(streamed.train(folder / "streamed" / "all", streams))
    assert max(np.abs(expected[0])) > 0.1
    first, second = (told[name] for told in found["streamed"])
    assert first == second
    assert_near(first, expected, 1e-6)


def test_adamw_from_shards_agrees(found, folder):
    """In float64: where a gradient is nearly 0, AdamW divides rounding errors by it."""
    with jax.enable_x64(True):
        given = {"algorithm": "adamw", "dtype": "float64"}
        tagger = streamed.train(folder / "streamed" / "all", 2, **given)
    assert_near(found["streamed"][0]["adamw"], streamed.arrays_of(tagger), 1e-9)


def test_streamed_training_goes_on_with_any_number_of_processes(found, folder):
    """With two as if it had not been stopped, to the bit; process 0 alone needs the checkpoint."""
    whole, place = found["streamed"][0]["own files"], folder / "streamed"
    for told in found["streamed"]:
        assert told["gone on with by two"] == whole
        assert_near(told["left by one"], whole, 1e-6)
    kept = place / "left by two"
    assert kept.exists()
    with jax.enable_x64(False):
        tagger = streamed.train(place / "all", 2, checkpoint=kept)
    assert_near(streamed.arrays_of(tagger), whole, 1e-6)
    tagger.save(place / "saved")
    left = [name for name in ("left by one", "left by two") if (place / name).exists()]
    assert left == ["left by one"]  # nobody has saved its model


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("lacking", "3.safetensors: expected a shard of the corpus there, found none"),
        ("of another vocabulary", "3.safetensors: expected a shard of the vocabulary"),
        ("changed", "3.safetensors: expected the file that index.json describes; it was changed"),
        ("noticed late", "2.safetensors: expected the file that index.json describes"),
    ],
)
def test_a_shard_that_one_process_cannot_use_is_an_error_of_all(found, folder, name, wrong):
    other, own = (told[name] for told in found["streamed"])
    assert own.startswith(f"own ValueError: {folder / 'streamed' / name / 'shard-0000'}{wrong}")
    assert other == own.replace("own ValueError: ", "other: process 1: ", 1)


def test_shards_of_different_corpora_and_streams_are_refused_by_all(found):
    for told in found["streamed"]:
        assert told["another"].startswith("own ValueError: shards: the index: expected the")
        wrong = "own ValueError: settings: expected the same in all processes, got {'streams': '1'}"
        assert told["streams"].startswith(wrong)


def test_command_line_trains_from_the_shards_of_each_process(found, folder):
    """Each has a folder with its own; the fixture has written them."""
    place = folder / "streamed"
    usual = ["train", "--algorithm", "sgd", "--learning-rate", 0.05, "--epochs", 2]
    usual += ["--batch-size", 9, "--streams", 2]
    meet = ["--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", 2, "--process-id"]
    pair = [
        start([*usual, "--shards", place / f"of {i}", "--json", "--out", place / "many", *meet, i])
        for i in range(2)
    ]
    with jax.enable_x64(False):
        one = [*usual, "--shards", place / "all", "--out", place / "one", "--quiet"]
        assert main([*map(str, one)]) == 0
    (status, output, errors), (other, silent, _) = finish(pair)
    assert (status, other) == (0, 0), errors
    assert json.loads(output)["sentences"] == 40
    assert silent == ""
    models = [streamed.arrays_of(jaxseq.load(place / name)) for name in ("one", "many")]
    assert_near(*models, 1e-6)


# ------------------------------------------------------------------------------------- errors


def test_an_error_of_one_is_told_to_all(found):
    other, own = found["refused"]
    assert own == "own ValueError: y[0]: expected 2 labels, one per token, got 1 labels"
    assert other == "other: process 1: y[0]: expected 2 labels, one per token, got 1 labels"


def test_a_checkpoint_that_cannot_be_written_is_told_to_all(found, folder):
    own, other = found["full disk"]
    told = f"{folder / 'full'}: cannot be read or written: File too large"
    assert own == f"own OSError: {told}"
    assert other == f"other: process 0: {told}"
    assert not (folder / "full").exists()


def test_another_vocabulary_is_refused_by_all(found):
    for told in found["other vocabulary"]:
        assert told.startswith("vocabulary: expected the same in all processes")


def test_command_line_gives_the_same_model(folder):
    """Of two files, one for each process."""
    X, y = draw_sentences(np.random.default_rng(5), 30)
    files = [folder / "one.txt", folder / "two.txt"]
    write_corpus(files[0], X[:22], y[:22])
    write_corpus(files[1], X[22:], y[22:])
    (folder / "templates").write_text("word[0]\nword[-1]|word[0]\n")
    usual = ["train", "--train", *files, "--templates", folder / "templates", "--json"]
    usual += ["--l2", "1"]  # with less the search ends where rounding decides
    pair = start_pair([*usual, "--out", folder / "many"])
    with jax.enable_x64(False):
        assert main([*map(str, usual), "--out", str(folder / "one")]) == 0
    (status, output, errors), (other, silent, _) = finish(pair)
    assert (status, other) == (0, 0), errors
    report = json.loads(output)
    assert report["sentences"] == sum(map(bool, X))
    assert silent == ""
    one, many = (jaxseq.load(folder / name) for name in ("one", "many"))
    assert one.extractor_.attribute_names() == many.extractor_.attribute_names()
    assert one.classes_.tolist() == many.classes_.tolist()
    np.testing.assert_allclose(one.model_.weights, many.model_.weights, atol=2e-3)


@pytest.mark.parametrize("first", [1, 2])
def test_command_line_goes_on_with_another_number_of_processes(folder, first):
    """What one process left, two go on with, and the other way round."""
    X, y = draw_sentences(np.random.default_rng(5), 30)
    files = [folder / f"{name}.txt" for name in "abc"]
    for file, part in zip(files, (slice(0, 18), slice(18, 24), slice(24, 30))):
        write_corpus(file, X[part], y[part])
    (folder / "both").write_text("word[0]\nword[-1]|word[0]\n")
    usual = ["train", "--train", *files, "--templates", folder / "both", "--json", "--quiet"]
    kept = folder / f"left by {first}"

    def run(count, out, *more):
        arguments = [*usual, "--out", folder / out, *more]
        if count == 1:
            with jax.enable_x64(False):
                assert main([*map(str, arguments)]) == 0
        else:
            ended = finish(start_pair(arguments))
            assert [status for status, *_ in ended] == [0, 0], ended[0][2][-2000:]

    run(first, f"cut {first}", "--checkpoint", kept, "--max-iterations", 5)
    assert kept.exists()
    run(3 - first, f"further {first}", "--checkpoint", kept)
    assert not kept.exists()
    run(1, f"whole {first}")
    further, whole = (jaxseq.load(folder / f"{name} {first}") for name in ("further", "whole"))
    assert further.extractor_.attribute_names() == whole.extractor_.attribute_names()
    np.testing.assert_allclose(further.model_.weights, whole.model_.weights, atol=2e-3)


def test_truncated_shard(folder):
    """Every process says whose file is wrong, and nothing is written."""
    (folder / "whole.txt").write_text("a N\nb V\n\n")
    (folder / "cut.txt").write_text("a N\nb V\n\nb")
    files = [folder / "whole.txt", folder / "cut.txt"]
    (folder / "words").write_text("word[0]\n")
    pair = start_pair(
        ["train", "--train", *files, "--templates", folder / "words", "--out", folder / "none"]
    )
    wrong = f"{files[1]}:4: expected 2 columns (word, label), found 1: 'b'"
    for index, (status, output, errors) in enumerate(finish(pair)):
        assert (status, output) == (2, "")
        last = errors.strip().splitlines()[-1]
        whose = "process 1: " if index == 0 else ""
        assert last == f"jaxseq: error: process {index}: {whose}{wrong}"
    assert not (folder / "none").exists()


KILLED = [(1, "STOP"), (0, "STOP"), (1, "KILL"), (0, "KILL"), (1, "TERM"), (0, "USR1")]
"""Which process is sent what; those that stand still come first: they are waited for longest."""


def kill_one(folder, killed, how):
    """Seconds until the other process ended, and exit status and errors of each."""
    kept = folder / f"kept {killed} {how}"
    arguments = ["train", "--train", folder / "long.txt", "--templates", folder / "pairs"]
    arguments += ["--out", folder / f"model {killed} {how}", "--checkpoint", kept, "--l2", "0.001"]
    pair = start_pair(arguments, "tests.parallel.slow_train")
    while not kept.exists() and pair[0].poll() is None:
        time.sleep(0.05)
    pair[killed].send_signal(getattr(signal, f"SIG{how}"))
    ended = time.monotonic()
    told = {1 - killed: finish([pair[1 - killed]])[0]}
    seconds = time.monotonic() - ended
    if how == "STOP":
        pair[killed].kill()
    told[killed] = finish([pair[killed]])[0]
    return seconds, {index: (status, errors) for index, (status, _, errors) in told.items()}


@pytest.fixture(scope="module")
def ends(folder):
    """Of all cases, side by side: they wait for heartbeats more than they work."""
    X, y = draw_sentences(np.random.default_rng(6), 30)
    write_corpus(folder / "long.txt", X, y)
    (folder / "pairs").write_text("word[0]\nword[-1]|word[0]\nword[0]|word[1]\n")
    with ThreadPoolExecutor(3) as pool:
        yield {case: pool.submit(kill_one, folder, *case) for case in KILLED}


@pytest.mark.parametrize(("killed", "how"), KILLED)
def test_a_killed_process_is_missed(folder, ends, killed, how):
    """The other ends within two minutes, with a message; its checkpoint is whole.

    So it is where one fails by what nobody has foreseen (USR1), and says so; and where one stands
    still (STOP) and breaks no connection: then, and where process 0 is gone, JAX ends the other.
    """
    seconds, told = ends[killed, how].result()
    assert seconds < 120
    kept = folder / f"kept {killed} {how}"
    status, errors = told[1 - killed]
    if how == "USR1":
        line = "jaxseq: error: process 0: unexpected KeyError: 'nobody thought of this'"
        assert (told[killed][0], told[killed][1].splitlines()[-1]) == (1, line)
    if how == "USR1" and status == 2:  # it was told, as both were keeping the checkpoint
        last = errors.splitlines()[-1]
        assert last == line.replace("process 0: ", "process 1: process 0: ")
    elif status == 1:  # its connection broke
        assert "another process of this run has ended or cannot be reached" in errors
        assert f"the search up to its last checkpoint is in {kept}" in errors
    else:  # the service of JAX, which is process 0's, or a heartbeat was missed
        assert (killed, how) not in ((1, "KILL"), (1, "TERM"))
        assert status == -signal.SIGABRT, errors
        assert "This most likely indicates that another task died" in errors
    assert kept.exists()
    assert not (folder / f"model {killed} {how}").exists()


# ------------------------------------------------------------------------ without other processes


def in_threads(count, work):
    """``work(peers)`` in a thread for each of so many processes that share this one's memory."""
    barrier, box, found = threading.Barrier(count), [b""] * count, [None] * count

    def run(index):
        def exchange(message):
            box[index] = message
            barrier.wait()
            told = list(box)
            barrier.wait()
            return told

        try:
            found[index] = work(Peers(index, count, exchange))
        except Exception as error:
            found[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


WORD = st.text("aAbé", min_size=1, max_size=2)
SENTENCES = st.lists(st.lists(WORD, max_size=5), min_size=1, max_size=9)


@given(SENTENCES, st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_vocabulary_of_all_is_that_of_one(sentences, count, cutoff, dicts):
    def make():
        if dicts:
            return DictExtractor(cutoff=cutoff)
        return TemplateExtractor(["word[0]", "word[-1]|lower(word[0])", "word[1]"], cutoff=cutoff)

    if dicts:
        sentences = [[{"w": word, word: 2.0} for word in sentence] for sentence in sentences]
    whole = make()
    features = whole.fit_transform(sentences)

    def work(peers):
        own = np.arange(peers.index, len(sentences), peers.count)
        extractor = make()
        shared = SharedCorpus(peers.gather, own)
        return extractor, extractor.fit_transform([sentences[q] for q in own], shared), own

    ends = np.cumsum(features.lengths)
    for extractor, part, own in in_threads(count, work):
        assert extractor.attribute_names() == whole.attribute_names()
        rows = [row for q in own for row in range(ends[q] - features.lengths[q], ends[q])]
        expected = [sorted(i for i in features.ids[row].tolist() if i >= 0) for row in rows]
        assert [sorted(i for i in row if i >= 0) for row in part.ids.tolist()] == expected


def test_guard_tells_the_others_whatever_they_wait_for():
    def work(peers):
        with peers.guard():
            if peers.index == 1:
                raise ValueError("file: expected more")
            peers.sum(np.arange(3))
            raise AssertionError("nobody sent that")

    first, second, third = in_threads(3, work)
    assert str(second) == "file: expected more"
    for other in (first, third):
        assert isinstance(other, OtherProcessError)
        assert str(other) == "process 1: file: expected more"


def test_guard_sends_nothing_after_an_exchange_that_was_cut_off():
    """The others are in the middle of it: what came next would be taken for the rest."""
    sent = []

    def exchange(message):
        sent.append(message)
        raise KeyError("in mid-sentence")

    peers = Peers(0, 2, exchange)
    with pytest.raises(KeyError), peers.guard():
        peers.gather(b"all is well")
    assert sent == [b"\x00all is well"]


def test_different_answers_are_refused():
    found = in_threads(2, lambda peers: peers.check_same("columns", ["word", peers.index]))
    for error in found:
        assert str(error).startswith("columns: expected the same in all processes, got ['word', 0]")


@pytest.mark.parametrize("columns", [None, ("word", "label")])
def test_a_part_without_sentences_is_one(tmp_path, monkeypatch, columns):
    """Of three files, those of process 1 have none; where none has any, that is said."""
    files = [str(tmp_path / name) for name in ("a", "empty", "b")]
    for file, text in zip(files, ("x N\n\ny V\n", "\n\n", "z N\n")):
        Path(file).write_text(text)
    usual = {"unknown_label": None, "columns": columns, "delimiter": None, "scheme_to": None}
    options = Namespace(**usual, encoding="utf-8", label_column=None, scheme=None)

    def work(peers):
        corpus, numbers = read_training(files, options, peers)
        return corpus.sentences, corpus.layout.names, numbers.tolist()

    (first, names, numbers), (second, others, none) = in_threads(2, work)
    assert [sentence["word"] for sentence in first] == [("x",), ("y",), ("z",)]
    assert (list(second), numbers, none) == ([], [0, 1, 2], [])
    assert names == others == ("word", "label")
    for file in files:
        Path(file).write_text("\n")
    for error in in_threads(2, work):
        assert isinstance(error, ValueError)
        assert str(error).endswith("expected at least one sentence, found none")


def test_unlabelled_files_are_shared_out_by_sentences(tmp_path):
    """Every process reads all files, which therefore cannot be standard input."""
    usual = {"unknown_label": None, "columns": None, "delimiter": None, "scheme_to": None}
    more = {"encoding": "utf-8", "label_column": None, "scheme": None, "templates": None}
    (tmp_path / "train").write_text("x N\n\ny V\n")
    files = [str(tmp_path / name) for name in "ab"]
    for file, text in zip(files, ("p\n\nq\n\nr\n", "s\n")):
        Path(file).write_text(text)

    def work(peers, unlabelled):
        options = Namespace(**usual, **more, unlabelled=unlabelled)
        corpus, _ = read_training([str(tmp_path / "train")], options, peers)
        return read_own_unlabelled(options, peers, corpus, ["word"])

    parts = in_threads(2, lambda peers: work(peers, files))
    assert [[s["word"] for s in part] for part in parts] == [[("p",), ("r",)], [("q",), ("s",)]]
    for error in in_threads(2, lambda peers: work(peers, ["-"])):
        assert str(error).startswith("standard input: expected files")


@pytest.mark.parametrize("differ", [False, True])
def test_files_of_one_name_that_differ_are_refused(monkeypatch, differ):
    """On another disk each: every process would read a part of another corpus."""
    disk = threading.local()

    def read(path, mode):
        return io.BytesIO(disk.text)

    def work(peers):
        disk.text = b"x V\n" if differ and peers.index else b"x N\n"
        check_same_files(["train.txt"], peers)

    monkeypatch.setattr(_train, "open", read, raising=False)
    for error in in_threads(2, work):
        told = "SHA-256 of the files: expected the same in all processes, got {'train.txt': "
        assert str(error).startswith(told) if differ else error is None


JOIN = """
import sys
from jaxseq.parallel import join_processes
try:
    join_processes(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), wait_seconds=float(sys.argv[4]))
except ValueError as error:
    sys.exit(str(error))
"""


def join(port, *told, seconds=30):
    """Exit status and last line of processes that were told (count, index)."""
    place = f"127.0.0.1:{port}"
    pair = [start([place, *each, seconds], JOIN) for each in told]
    return [(status, errors.splitlines()[-1]) for status, _, errors in finish(pair)]


def test_wrong_process_count():
    wrong = "--num-processes: expected the same in all processes, got 2 in process 0 and 3 in "
    assert join(free_port(), (2, 0), (3, 1)) == [(1, f"{wrong}process 1")] * 2


def test_versions_that_differ_are_refused(monkeypatch):
    monkeypatch.setattr(platform, "python_version", lambda: f"3.{threading.get_ident()}")
    for error in in_threads(2, lambda peers: check_alike(peers, 2)):
        assert str(error).startswith("versions: expected the same in all processes, got {'python'")


def test_process_0_listens_where_it_was_told_alone():
    port = free_port()
    waiting = start([f"127.0.0.1:{port}", 2, 0, 30], JOIN)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except ConnectionRefusedError:
            assert waiting.poll() is None
            time.sleep(0.1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port))
    waiting.kill()
    finish([waiting])


def test_missing_process():
    for told in ((3, 0), (2, 1)):
        [(status, line)] = join(free_port(), told, seconds=5)
        assert status == 1
        assert line.startswith(f"jaxseq: error: process {told[1]}: not all {told[0]} processes")
        assert "have met within 5 s" in line


def test_an_unknown_host_is_named_at_once():
    began = time.monotonic()
    for host in ("nobody.invalid", "nobody..invalid"):
        with pytest.raises(ValueError, match=f"process 0's host, got '{host}': "):
            join_processes(f"{host}:1234", 2, 1)
    assert time.monotonic() - began < 30


def test_port_in_use():
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ValueError, match=f"are free on this machine, got 127.0.0.1:{port}: "):
            join_processes(f"127.0.0.1:{port}", 2, 0)


def test_an_address_of_another_machine_is_refused(monkeypatch):
    """192.0.2.1 is set aside for examples; nobody has it."""
    wrong = "got 192.0.2.1:1234: .*; JAX_COORDINATOR_BIND_ADDRESS can name another address"
    with pytest.raises(ValueError, match=wrong):
        join_processes("192.0.2.1:1234", 2, 0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", place)
        with pytest.raises(ValueError, match=f"got {place}: .*; is another process 0 running"):
            join_processes("192.0.2.1:1234", 2, 0)


ASKED = {
    "JAX_COORDINATOR_ADDRESS": "node1:1234",
    "JAX_NUM_PROCESSES": "4",
    "JAX_PROCESS_ID": "3",
}


def test_meeting_by_the_environment():
    found = find_meeting(None, None, None, ASKED)
    assert (found.coordinator, found.count, found.index) == ("node1:1234", 4, 3)
    assert find_meeting("other:1", 2, 0, ASKED).coordinator == "other:1"
    slurm = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}
    assert find_meeting(None, None, None, slurm).coordinator is None  # JAX finds out
    assert find_meeting(None, None, None, slurm | {"SLURM_STEP_NUM_TASKS": "1"}) is None


def test_slurm_tells_a_coordinator_how_many_there_are():
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}
    found = find_meeting("host:1", None, None, step)
    assert (found.coordinator, found.count, found.index) == ("host:1", 2, 1)
    by_jax = step | {"JAX_COORDINATOR_ADDRESS": "host:1", "JAX_PROCESS_ID": "0"}
    assert find_meeting(None, None, None, by_jax).index == 0
    in_a_batch = {name: value for name, value in step.items() if name != "SLURM_STEP_ID"}
    with pytest.raises(ValueError, match="expected all three"):
        find_meeting("host:1", None, None, in_a_batch)


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        (("host:1", 2, None), "expected all three"),
        (("host", 2, 0), "--coordinator: expected HOST:PORT, got 'host'"),
        (("host:0", 2, 0), "--coordinator: expected HOST:PORT"),
        (("host:1", 0, 0), "--num-processes: expected 1 or more, got 0"),
        (("host:1", 2, 2), r"--process-id: expected 0 … 1, got 2"),
    ],
)
def test_meeting_that_makes_no_sense(told, wrong):
    with pytest.raises(ValueError, match=wrong):
        find_meeting(*told, {})
