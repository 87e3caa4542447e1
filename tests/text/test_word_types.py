"""Word types, on the examples of the paper's table 3."""

import pytest

from jaxseq.text import WORD_TYPES, word_type, word_types

EXAMPLES = {
    "InitCap": ["Confidence", "September", "But"],
    "AllCaps": ["PLC", "GNP", "A"],
    "Mixed": ["anti-American", "Chancellor", "Lawson"],
    "SingleDigit": ["1", "2", "3"],
    "AllDigits": ["16", "1988", "190"],
    "TwoPeriods": ["U.K.", "A.P.", "F.S.B"],
    "EndsInPeriod": ["Ala.", "p.m.", "vs."],
    "Dash": ["year-ago", "1-800-453-9000", "10-fold"],
    "SingleCharacter": ["A", "a", "b"],
    "Punctuation": ["US$", "#", "','"],
    "Quotation": ["'s", "I'm", "n't"],
}

# Words that just miss the property.
COUNTEREXAMPLES = {
    "InitCap": ["confidence", "'But", "1A", ""],
    "AllCaps": ["Plc", "U.K.", "B2B", "12", ""],
    "Mixed": ["PLC", "plc", "1-2", ""],
    "SingleDigit": ["16", "a", "", "½"],
    "AllDigits": ["1.5", "1,000", "1a", "", "²"],
    "TwoPeriods": ["Ala.", "1.5", ""],
    "EndsInPeriod": [".5", "U.K", ""],
    "Dash": ["year_ago", "a/b", ""],
    "SingleCharacter": ["AB", ""],
    "Punctuation": ["abc", "12", "é", ""],
    "Quotation": ["its", ",", "#", ""],
}


def test_the_eleven_properties_of_the_table_are_there():
    assert tuple(EXAMPLES) == WORD_TYPES
    assert tuple(COUNTEREXAMPLES) == WORD_TYPES


@pytest.mark.parametrize("name", EXAMPLES)
def test_property_holds_for_the_examples_of_the_paper(name):
    for word in EXAMPLES[name]:
        assert name in word_types(word), word


@pytest.mark.parametrize("name", COUNTEREXAMPLES)
def test_property_does_not_hold_for_words_that_miss_it(name):
    for word in COUNTEREXAMPLES[name]:
        assert name not in word_types(word), word


def test_properties_beyond_ascii():
    assert word_types("Österreich") == ("InitCap", "Mixed")
    assert word_types("1990–1995") == ("Dash", "Punctuation")
    assert word_types("“") == ("SingleCharacter", "Punctuation", "Quotation")
    assert word_types("€") == ("SingleCharacter", "Punctuation")


@pytest.mark.parametrize(
    ("word", "joined"),
    [
        ("Chancellor", "InitCap+Mixed"),
        ("U.K.", "InitCap+TwoPeriods+EndsInPeriod+Punctuation"),
        ("7", "SingleDigit+AllDigits+SingleCharacter"),
        ("the", "Plain"),
        ("", "Plain"),
    ],
)
def test_the_feature_is_all_properties_in_one_string(word, joined):
    assert word_type(word) == joined
