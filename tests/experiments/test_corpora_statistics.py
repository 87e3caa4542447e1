"""The corpora resemble the real ones: figures within a margin of those measured there.

The real figures were measured on the 500 Cora references, the 102 training advertisements of
Grenager et al., GENETAG's and CoNLL-2000's training files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby

import pytest

from experiments.corpora import ads, chunks, citations, gene_mentions
from jaxseq.text import Sentence, tag_spans

Rule = Callable[[Sentence], Iterator[bool]]


def _rule(words: str, *labels: str) -> Rule:
    """The words, in any case, have one of the labels."""
    listed = words.split()

    def holds(sentence: Sentence) -> Iterator[bool]:
        for word, label in zip(sentence["word"], sentence["label"], strict=True):
            if word in listed or word.lower() in listed:
                yield label in labels

    return holds


def _once(sentence: Sentence) -> Iterator[bool]:
    fields = [label for label, _ in groupby(sentence["label"])]
    yield len(fields) == len(set(fields))


def _on_punctuation(sentence: Sentence) -> Iterator[bool]:
    words, labels = sentence["word"], sentence["label"]
    for word, label, following in zip(words, labels, labels[1:]):
        if label != following:
            yield not re.search(r"\w", word)


def _starts(sentence: Sentence) -> Iterator[bool]:
    yield sentence["label"][0] in ("author", "editor")


def _years(sentence: Sentence) -> Iterator[bool]:
    for word, label in zip(sentence["word"], sentence["label"], strict=True):
        if re.fullmatch(r"(19|20)\d\d", word):
            yield label == "date"


# Table 1 of Chang et al. 2007: the rule, how often of a hundred times it holds in the real
# references, and how often a hundred of them give it an occasion.
CITATION_RULES: dict[str, tuple[Rule, float, float]] = {
    "1 each field once": (_once, 95.8, 100),
    "2 transitions on punctuation": (_on_punctuation, 95.4, 455.6),
    "3 starts with author or editor": (_starts, 99.4, 100),
    "4 pp, pages": (_rule("pp pages", "pages"), 100, 28),
    "5 years": (_years, 96.4, 100.2),
    "6 quotations": (_rule('" `', "title"), 99.2, 25.6),
    "7 note, submitted, appear": (_rule("note submitted appear", "note"), 88.2, 3.4),
    "8 CA, Australia, NY": (_rule("CA Australia NY", "location"), 100, 4.2),
    "9 tech, technical": (_rule("tech technical", "tech"), 88.6, 7),
    "10 proc, journal, proceedings, acm": (
        _rule("proc journal proceedings acm", "journal", "booktitle"),
        98.4,
        49.8,
    ),
    "11 ed, editors": (_rule("ed editors", "editor"), 100, 3.6),
}


@pytest.fixture(scope="module")
def references() -> list[Sentence]:
    return citations(2000, 11)


@pytest.mark.parametrize("name", CITATION_RULES)
def test_rules_of_citations_hold_as_often_as_in_cora(references, name):
    rule, held, occasions = CITATION_RULES[name]
    found = [holds for reference in references for holds in rule(reference)]
    assert 100 * sum(found) / len(found) == pytest.approx(held, abs=3 if held > 90 else 10)
    assert 100 * len(found) / len(references) == pytest.approx(occasions, rel=0.5)


CITATION_PRESENT = {
    "title": 98.4, "author": 97.6, "date": 97.6, "pages": 57, "booktitle": 44.4, "volume": 36.4,
    "journal": 33.2, "location": 26.8, "publisher": 20, "tech": 12, "institution": 11.2,
    "editor": 8.6, "note": 5.6,
}  # fmt: skip
CITATION_LENGTHS = {
    "author": 10.9, "title": 9.3, "editor": 13.9, "booktitle": 10, "date": 3.2, "journal": 5,
    "volume": 3.7, "tech": 5.9, "institution": 7.2, "pages": 4.7, "location": 4.2,
    "publisher": 3.6, "note": 6.4,
}  # fmt: skip


@pytest.mark.parametrize("label", CITATION_PRESENT)
def test_fields_of_citations(references, label):
    runs = [
        len(list(run))
        for reference in references
        for field, run in groupby(reference["label"])
        if field == label
    ]
    present = sum(label in reference["label"] for reference in references)
    assert 100 * present / len(references) == pytest.approx(CITATION_PRESENT[label], abs=5)
    assert sum(runs) / len(runs) == pytest.approx(CITATION_LENGTHS[label], rel=0.25)


def test_size_of_citations(references):
    fields = sum(len(list(groupby(reference["label"]))) for reference in references)
    assert sum(map(len, references)) / len(references) == pytest.approx(38.4, rel=0.1)
    assert fields / len(references) == pytest.approx(5.56, rel=0.1)


def _unknown(text: list[Sentence], known: int) -> float:
    """Tokens after the known sentences that do not occur in them, of a hundred."""
    seen = {word for sentence in text[:known] for word in sentence["word"]}
    rest = [word for sentence in text[known:] for word in sentence["word"]]
    return 100 * sum(word not in seen for word in rest) / len(rest)


def test_unknown_words_are_common(references):
    assert _unknown(references[:400], 300) == pytest.approx(17.1, abs=4)
    assert _unknown(ads(202, 1), 102) == pytest.approx(8.3, abs=4)
    assert _unknown(gene_mentions(700, 1), 500) == pytest.approx(23.4, abs=8)
    assert _unknown(chunks(700, 1), 500) == pytest.approx(23.3, abs=6)


@pytest.mark.parametrize("word", ["and", "In", "Morgan"])
def test_words_stand_in_several_fields(references, word):
    labels = {
        label
        for reference in references
        for token, label in zip(reference["word"], reference["label"], strict=True)
        if token == word
    }
    assert len(labels) >= 3 - (word == "Morgan")


# Word → its field, and how often of a hundred times it has it in the real advertisements.
AD_WORDS = {
    "laundry": ("FEATURES", 92), "kitchen": ("FEATURES", 98), "parking": ("FEATURES", 96),
    "sq": ("SIZE", 100), "$": ("RENT", 88),
    "close": ("NEIGHBORHOOD", 97), "*PHONE*": ("CONTACT", 99),
    "near": ("NEIGHBORHOOD", 100), "smoking": ("RESTRICTIONS", 100), "pays": ("UTILITIES", 100),
}  # fmt: skip
AD_TOKENS = {
    "FEATURES": 46.4, "NEIGHBORHOOD": 15.7, "CONTACT": 12.8, "SIZE": 7.6, "RENT": 6.8,
    "RESTRICTIONS": 3.7, "ADDRESS": 2.8, "UTILITIES": 2, "AVAILABLE": 1.1, "PHOTOS": 1,
    "ROOMATES": 0.1,
}  # fmt: skip


def test_ads():
    text = ads(500, 2)
    labels = Counter(label for ad in text for label in ad["label"])
    tokens = sum(labels.values())
    assert tokens / len(text) == pytest.approx(106.7, rel=0.15)
    for label, share in AD_TOKENS.items():
        assert 100 * labels[label] / tokens == pytest.approx(share, abs=4), label
    runs = sum(len(list(groupby(ad["label"]))) for ad in text)
    assert runs / len(text) == pytest.approx(6.84, rel=0.15)
    changes = [holds for ad in text for holds in _on_punctuation(ad)]
    assert sum(changes) / len(changes) == pytest.approx(0.636, abs=0.06)
    for word, (label, held) in AD_WORDS.items():
        found = [holds for ad in text for holds in _rule(word, label)(ad)]
        assert 100 * sum(found) / len(found) == pytest.approx(
            held, abs=12 if len(found) > 60 else 20
        ), word


def test_gene_mentions():
    text = gene_mentions(1500, 2)
    names = [span for sentence in text for span in tag_spans(sentence["label"], "IOB2")]
    without = sum(set(sentence["label"]) == {"O"} for sentence in text)
    assert sum(map(len, text)) / len(text) == pytest.approx(26.2, rel=0.15)
    assert without / len(text) == pytest.approx(0.483, abs=0.08)
    assert len(names) / len(text) == pytest.approx(1.18, rel=0.2)
    lengths = Counter(stop - start for start, stop, _ in names)
    for length, share in ((1, 0.462), (2, 0.257), (3, 0.149), (4, 0.066)):
        assert lengths[length] / len(names) == pytest.approx(share, abs=0.08)


CHUNK_TAGS = {
    "I-NP": 29.9, "B-NP": 26, "O": 13.2, "B-VP": 10.1, "B-PP": 10.1, "I-VP": 5.7, "B-ADVP": 2,
    "B-SBAR": 1, "B-ADJP": 1, "B-PRT": 0.26,
}  # fmt: skip


def test_chunks():
    text = chunks(1500, 2)
    tags = Counter(tag for sentence in text for tag in sentence["label"])
    tokens = sum(tags.values())
    assert tokens / len(text) == pytest.approx(23.7, rel=0.15)
    for tag, share in CHUNK_TAGS.items():
        margin = 4 if share > 5 else 0.7 if share > 0.5 else 0.2
        assert 100 * tags[tag] / tokens == pytest.approx(share, abs=margin), tag
    by_tag = {
        pos: {
            chunk
            for sentence in text
            for tag, chunk in zip(sentence["pos"], sentence["label"], strict=True)
            if tag == pos
        }
        for pos in ("IN", "VBN", "RB", "JJ", "CC")
    }
    assert {pos for pos, found in by_tag.items() if len(found) < 2} == set()
