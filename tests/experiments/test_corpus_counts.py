"""The corpora themselves: their published or measured counts come out."""

import itertools
import os
from pathlib import Path

import jaxtyping
import pytest

from experiments.data._formats import (
    iter_ads,
    read_ads,
    read_citations,
    read_genetag,
    read_genetag_mentions,
)
from jaxseq.text import iter_conll, read_conll, read_plain, tag_spans, tokenize


@pytest.fixture(scope="module")
def corpora():
    folder = os.environ.get("JAXSEQ_DATA")
    if not folder:
        pytest.skip("JAXSEQ_DATA, the folder of the corpora, is not set")
    # Checks of every call's types are two thirds of the time; the small files have had them.
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield Path(folder)
    jaxtyping.config.update("jaxtyping_disable", before)


def _require(path):
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def _begins(sentences, column="label"):
    return sum(tag[0] == "B" for sentence in sentences for tag in sentence[column])


def _counts(sentences):
    return len(sentences), sum(map(len, sentences))


@pytest.mark.parametrize(
    ("name", "sentences", "tokens", "tags", "chunks", "noun_phrases"),
    [("train.txt", 8936, 211727, 22, 106978, 55081), ("test.txt", 2012, 47377, 19, 23852, 12422)],
)
def test_conll2000(corpora, name, sentences, tokens, tags, chunks, noun_phrases):
    path = _require(corpora / "conll2000" / name)
    read = read_conll(path, ["word", "pos", "chunk"])
    assert _counts(read) == (sentences, tokens)
    assert len({tag for s in read for tag in s["chunk"]}) == tags
    assert _begins(read, "chunk") == chunks
    assert sum(tag == "B-NP" for s in read for tag in s["chunk"]) == noun_phrases


def test_conll2003(corpora):
    columns = ["word", "pos", "chunk", "entity"]
    path = _require(corpora / "conll2003" / "eng.testb")
    assert _counts(read_conll(path, columns)) == (3684 - 231, 46666 - 231)
    # Which scheme it is (IOB1) is for the reader to find out.
    converted = read_conll(path, columns, docstart="keep", scheme_to="IOB2")
    assert _counts(converted) == (3684, 46666)
    assert _begins(converted, "entity") == 5648


def test_conll2003_train(corpora):
    """Two of its tags are B after O, where IOB1 does not need it; they are read all the same."""
    columns = ["word", None, None, "entity"]
    path = _require(corpora / "conll2003" / "eng.train")
    read = read_conll(path, columns, docstart="keep")
    assert _counts(read) == (14987, 204567)
    assert sum(s["word"] == ("-DOCSTART-",) for s in read) == 946
    pairs = [pair for s in read for pair in itertools.pairwise(("O", *s["entity"]))]
    odd = [(before, tag) for before, tag in pairs if tag[0] == "B" and before == "O"]
    assert odd == [("O", "B-MISC"), ("O", "B-MISC")]
    entities = [s["entity"] for s in read if set(s["entity"]) != {"O"}]
    assert sum(len(tag_spans(tags, "IOB1")) for tags in entities) == 23499


@pytest.mark.parametrize(
    ("name", "sentences", "tokens", "mentions"),
    [("devel.tsv", 2500, 71042, 3061), ("test.tsv", 5000, 143465, 6325)],
)
def test_bc2gm(corpora, name, sentences, tokens, mentions):
    path = _require(corpora / "bc2gm" / name)
    read = read_conll(path, ["word", "label"], delimiter="\t")
    assert _counts(read) == (sentences, tokens)
    assert _begins(read) == mentions


def test_bc2gm_train(corpora):
    path = _require(corpora / "bc2gm" / "train.tsv")
    read = list(iter_conll(path, ["word", "label"], delimiter="\t"))
    assert _counts(read) == (12500, 355405)
    assert _begins(read) == 15197


def test_citations(corpora):
    path = _require(corpora / "citations" / "tagged_references.txt")
    read = read_citations(path)
    assert _counts(read) == (500, 19182)
    assert len({label for s in read for label in s["label"]}) == 13
    spans = read_citations(path, scheme="BIO")
    assert _begins(spans) == 2778  # 5.56 a reference
    assert [s["word"] for s in spans] == [s["word"] for s in read]
    unlabelled = _require(corpora / "citations" / "unlabeled.txt")
    assert len(read_plain(unlabelled, tokenize=tokenize)) == 5000


@pytest.mark.parametrize(
    ("part", "sentences", "tokens", "by_tags", "by_list", "listed"),
    [("train", 7500, 196620, 8881, 8934, 8935), ("test", 2500, 65519, 2986, 2987, 2987)],
)
def test_genetag(corpora, part, sentences, tokens, by_tags, by_list, listed):
    folder = _require(corpora / "genetag" / part)
    read = read_genetag(folder / "TAGGED_GENE_CORPUS")
    assert _counts(read) == (sentences, tokens)
    assert _begins(read) == by_tags
    mentions = read_genetag_mentions(folder / "Gold.format")
    assert sum(map(len, mentions.values())) == listed
    labelled = read_genetag(folder / "TAGGED_GENE_CORPUS", gold=folder / "Gold.format")
    assert _begins(labelled) == by_list
    for sentence in labelled:
        starts = {start for start, _ in mentions.get(str(sentence.name), [])}
        assert {t for t, tag in enumerate(sentence["label"]) if tag == "B-GENE"} == starts


@pytest.mark.parametrize(
    ("name", "count", "tokens"),
    [("train", 102, 10884), ("dev", 100, 11730), ("test", 100, 10845)],
)
def test_ads(corpora, name, count, tokens):
    read = read_ads(_require(corpora / "ads" / f"{name}.txt"))
    assert _counts(read) == (count, tokens)
    assert len({label for s in read for label in s["label"]}) == 11


def test_unlabelled_ads(corpora):
    path = _require(corpora / "ads" / "unlabeled.txt")
    lengths, labels, missing = [], set(), 0
    for advertisement in iter_ads(path):
        lengths.append(len(advertisement))
        labels.update(advertisement["label"])
        words = advertisement["word"]
        missing += sum(a == "jos" and b == "_" for a, b in itertools.pairwise(words))
        missing += sum(a == "ask" and b == "_" for a, b in itertools.pairwise(words))
    assert (len(lengths), sum(lengths)) == (8464, 971749)
    assert labels == {"?"}
    assert missing == 2
