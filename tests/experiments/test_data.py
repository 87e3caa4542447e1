"""The registry of corpora, and which corpus a run uses."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import types
from pathlib import Path

import pytest

from experiments.__main__ import main
from experiments.data import CORPORA, Data, Source, _registry, choose_sources, locate
from jaxseq.text import Sentence
from tests.experiments.toy import write_toy

pytest.importorskip("pooch")

REAL = os.environ.get("JAXSEQ_DATA")
TRAIN = "Rain NN B-NP\nfalls VBZ B-VP\n\nSnow NN B-NP\n"
TEST = "Hail NN B-NP\n"


@pytest.fixture(autouse=True)
def no_data(monkeypatch):
    monkeypatch.delenv("JAXSEQ_DATA", raising=False)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A data folder with a small CoNLL-2000, whose checksums the registry holds."""
    (tmp_path / "data" / "conll2000").mkdir(parents=True)
    registry = {}
    for name, text in (("conll2000/test.txt", TEST), ("conll2000/train.txt", TRAIN)):
        (tmp_path / "data" / name).write_text(text)
        registry[name] = hashlib.sha256(text.encode()).hexdigest()
    registry["bc2gm/train.tsv"] = "0" * 64
    monkeypatch.setattr(_registry, "_registry", lambda: registry)
    return tmp_path / "data"


def test_registry_file():
    """Every corpus has files, every file a corpus and a checksum."""
    lines = [line.split() for line in _registry.REGISTRY.read_text().splitlines()[1:]]
    assert len(lines) == 24
    assert {name.split("/")[0] for name, _ in lines} == set(CORPORA)
    for name, known in lines:
        algorithm, digest = known.split(":")
        assert algorithm == "sha256"
        assert len(bytes.fromhex(digest)) == 32
        assert _registry.checksums(name.split("/")[0])[name] == digest


@pytest.mark.parametrize(
    ("name", "split", "count", "label"),
    [
        ("conll2000", "test", 2012, "B-NP"),
        ("conll2003", "test", 3453, "B-MISC"),
        ("citations", "labelled", 500, "author"),
        ("citations", "unlabelled", 5000, None),
        ("ads", "dev", 100, "CONTACT"),
        ("genetag", "test", 2500, "B-GENE"),
        ("bc2gm", "dev", 2500, "B-GENE"),
    ],
)
def test_real_corpora(name, split, count, label):
    """The corpora themselves, where they are: checksums, counts and labels."""
    if not REAL:
        pytest.skip("JAXSEQ_DATA, the folder of the corpora, is not set")
    data = Data(choose_sources([name], Path(REAL), may_stand_in=False))
    assert data.source(name) == "real"
    sentences = data.corpus(name, split)
    assert len(sentences) == count
    if label is None:
        assert "label" not in sentences[0]
    else:
        assert label in {one for sentence in sentences for one in sentence["label"]}


def test_real_alternatives():
    """Each overlaps a labelled name of its sentence, or so do all but a few."""
    if not REAL:
        pytest.skip("JAXSEQ_DATA, the folder of the corpora, is not set")
    data = Data(choose_sources(["genetag", "bc2gm"], Path(REAL), may_stand_in=False))
    sentences = {sentence.name: sentence for sentence in data.corpus("genetag")}
    found = data.alternatives("genetag")
    assert len(set(found) - set(sentences)) == 1, "the list has a sentence that the corpus lacks"
    spans = [(name, *limits) for name, some in found.items() for limits in some]
    assert len(spans) == 6593
    known = [one for one in spans if one[0] in sentences]
    outside = [one for one in known if set(sentences[one[0]]["label"][one[1] : one[2]]) == {"O"}]
    assert len(outside) < len(known) / 100
    assert data.alternatives("bc2gm") == {}


def test_alternatives(tmp_path):
    (tmp_path / "genetag" / "test").mkdir(parents=True)
    lines = "@@7|1 2|PKA gene\n@@9|0 0|p53\n@@7|2 2|gene\n"
    (tmp_path / "genetag" / "test" / "Correct.Data").write_text(lines)
    data = Data({"genetag": Source("genetag", tmp_path), "bc2gm": Source("bc2gm")})
    assert data.alternatives("genetag", "test") == {"7": [(1, 3), (2, 3)], "9": [(0, 1)]}
    assert data.take_used() == {"genetag": "real"}
    assert data.alternatives("bc2gm") == {}
    with pytest.raises(ValueError, match="expected one of train, test, got 'dev'"):
        data.alternatives("genetag", "dev")
    with pytest.raises(ValueError, match="CORPORA lists"):
        data.alternatives("ads")


def test_locate(folder):
    found = locate("conll2000", folder)
    assert found == {
        "conll2000/test.txt": folder / "conll2000" / "test.txt",
        "conll2000/train.txt": folder / "conll2000" / "train.txt",
    }


def test_a_missing_file_says_where_to_get_it(folder):
    (folder / "conll2000" / "test.txt").unlink()
    with pytest.raises(ValueError, match=r"expected conll2000/test\.txt, found none.*nltk_data"):
        locate("conll2000", folder)


def test_a_wrong_checksum_is_refused_whatever_was_seen_before(folder):
    path = folder / "conll2000" / "test.txt"
    locate("conll2000", folder)
    path.write_text(TEST.replace("Hail", "Mist"))  # of the same size
    os.utime(path, ns=(0, 1))
    wrong = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(ValueError, match=rf"test\.txt: expected sha256 \w+, got {wrong}"):
        locate("conll2000", folder)
    path.write_text(TEST)
    locate("conll2000", folder)


def test_a_file_is_read_once(folder, monkeypatch):
    import pooch

    locate("conll2000", folder)
    monkeypatch.setattr(pooch, "file_hash", None)
    locate("conll2000", folder)


def test_which_source(folder):
    def kind(corpus, at, may_stand_in):
        return choose_sources([corpus], at, may_stand_in=may_stand_in)[corpus].kind

    assert kind("conll2000", folder, True) == kind("conll2000", folder, False) == "real"
    assert kind("conll2000", None, False) == kind("bc2gm", folder, True) == "embedded"
    with pytest.raises(ValueError, match=r"expected bc2gm/train\.tsv, found none; get bc2gm from"):
        kind("bc2gm", folder, False)
    (folder / "conll2000" / "test.txt").unlink()
    with pytest.raises(ValueError, match="found none"):
        kind("conll2000", folder, True)  # half a corpus is a mistake, not an absence
    with pytest.raises(ValueError, match=r"expected one of conll2000, .*, got 'brown'"):
        kind("brown", None, True)


def test_sentences_of_a_real_corpus(folder):
    data = Data(choose_sources(["conll2000"], folder, may_stand_in=False))
    assert data.take_used() == {}
    train = data.corpus("conll2000")
    assert [s["word"] for s in train] == [("Rain", "falls"), ("Snow",)]
    assert train[0]["pos"] == ("NN", "VBZ")
    assert train[0]["label"] == ("B-NP", "B-VP")
    assert data.corpus("conll2000", "train", 1) == train[:1]
    train.clear()
    assert len(data.corpus("conll2000")) == 2, "a caller's list is its own"
    assert data.corpus("conll2000", "test")[0]["word"] == ("Hail",)
    assert data.take_used() == {"conll2000": "real"}
    assert data.take_used() == {}
    with pytest.raises(ValueError, match="expected at most 2, got 3"):
        data.corpus("conll2000", "train", 3)
    with pytest.raises(ValueError, match="expected one of train, test, got 'dev'"):
        data.corpus("conll2000", "dev")
    with pytest.raises(ValueError, match="expected at least 0, got -1"):
        data.corpus("conll2000", "train", -1)
    with pytest.raises(ValueError, match="CORPORA lists"):
        data.corpus("ads")


@pytest.fixture
def generators(monkeypatch):
    """Generators whose words tell their arguments."""
    module = types.ModuleType("experiments.corpora")

    def made(count, seed=0):
        columns = [{"word": [f"{seed}.{i}"], "pos": ["NN"], "label": ["O"]} for i in range(count)]
        return [Sentence(one) for one in columns]

    for corpus in CORPORA.values():
        setattr(module, corpus.stand_in, made)
    monkeypatch.setitem(sys.modules, "experiments.corpora", module)
    monkeypatch.setattr("experiments.corpora", module, raising=False)


def test_sentences_that_stand_in(generators):
    data = Data({name: Source(name) for name in CORPORA})
    firsts = set()
    for name, corpus in CORPORA.items():
        for split, count in corpus.splits.items():
            sentences = data.corpus(name, split)
            assert len(sentences) == count
            assert data.corpus(name, split, 7) == sentences[:7]
            assert ("label" in sentences[0]) == (split != "unlabelled")
            firsts.add((name, sentences[0]["word"]))
    assert len(firsts) == sum(len(corpus.splits) for corpus in CORPORA.values()), "parts differ"
    assert data.corpus("conll2003")[0].columns == ("word", "pos", "chunk", "label")
    assert data.take_used() == dict.fromkeys(sorted(CORPORA), "embedded")


@pytest.mark.parametrize("name", CORPORA)
def test_generators_stand_in(name):
    """With the columns that a paper needs, whatever the corpus."""
    data = Data({name: Source(name)})
    for split in CORPORA[name].splits:
        sentences = data.corpus(name, split, 3)
        assert len(sentences) == 3
        assert all(len(sentence) for sentence in sentences)
        columns = {"word"} if split == "unlabelled" else {"word", "label"}
        columns |= {"pos"} if name in ("conll2000", "conll2003", "genetag") else set()
        assert columns <= {*sentences[0].columns}


def _provenance(out: Path) -> dict:
    return json.loads((out / "toy" / "smoke" / "provenance.json").read_text())


def test_results_say_which_corpus(folder, generators, tmp_path):
    papers = tmp_path / "papers"
    body = "config.size and cell['part'] and data.corpus('conll2000')"
    write_toy(papers, body=body, corpora=("conll2000", "bc2gm"))
    arguments = ["run", "toy", "--preset", "smoke", "--seeds", "1", "--out"]
    assert main([*arguments, str(tmp_path / "a")], papers=papers) == 0
    assert main([*arguments, str(tmp_path / "b"), "--data", str(folder)], papers=papers) == 0
    used = []
    for out in ("a", "b"):
        lines = (tmp_path / out / "toy" / "smoke" / "results.jsonl").read_text("utf-8")
        used.append([json.loads(line)["corpora"] for line in lines.removesuffix("\n").split("\n")])
    assert used == [[{}, {"conll2000": "embedded"}], [{}, {"conll2000": "real"}]]
    plan = _provenance(tmp_path / "b")["plan"]["corpora"]
    assert plan["conll2000"]["sha256"]["conll2000/test.txt"] == (
        hashlib.sha256(TEST.encode()).hexdigest()
    )
    assert plan["bc2gm"] == {"source": "embedded", "generator": "gene_mentions"}
    assert str(folder) not in (tmp_path / "b" / "toy" / "smoke" / "provenance.json").read_text()


def test_results_of_one_corpus_are_not_gone_on_with_another(folder, tmp_path, capsys):
    papers = tmp_path / "papers"
    write_toy(papers, corpora=("conll2000",))
    arguments = ["run", "toy", "--out", str(tmp_path / "out")]
    assert main(arguments, papers=papers) == 0
    assert main([*arguments, "--resume", "--data", str(folder)], papers=papers) == 2
    assert "corpora.conll2000.source = 'embedded', this run has 'real'" in capsys.readouterr().err


def test_wrong_checksum_at_the_command_line(folder, tmp_path, capsys):
    papers = tmp_path / "papers"
    write_toy(papers, corpora=("conll2000",))
    (folder / "conll2000" / "train.txt").write_text("Fog NN O\n")
    arguments = ["run", "toy", "--preset", "smoke", "--data", str(folder)]
    assert main([*arguments, "--out", str(tmp_path / "out")], papers=papers) == 2
    error = capsys.readouterr().err
    assert "train.txt: expected sha256" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
