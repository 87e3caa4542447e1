"""Plain text, and its tokens."""

import pytest

from jaxseq.text import iter_plain, read_plain, tokenize
from tests.text.files import message as _message
from tests.text.files import write as _write


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("1(1), 1983.", "1 ( 1 ) , 1983 ."),
        ("Dijkstra's W.-P. a_b", "Dijkstra ' s W . - P . a_b"),
        ("Müller–Lyer, “x”", "Müller – Lyer , “ x ”"),
        ("  ", ""),
    ],
)
def test_tokens(text, tokens):
    assert tokenize(text) == tokens.split()


def test_plain(tmp_path):
    path = _write(tmp_path, "\ufeffit rains\r\n\r\n  and,  pours")
    assert [s["word"] for s in read_plain(path)] == [("it", "rains"), ("and,", "pours")]
    assert [len(s) for s in iter_plain(path, blank="keep")] == [2, 0, 2]
    split = read_plain(path, tokenize=tokenize)
    assert split[1]["word"] == ("and", ",", "pours")


def test_wrong_plain(tmp_path):
    path = _write(tmp_path, b"a\n\nb\xff\n")
    message = _message(read_plain, path)
    assert message == f"{path}:3: expected text encoded as utf-8, found byte ff"
    assert _message(iter_plain, path, blank="drop").startswith("blank: expected 'skip' or 'keep'")
    message = _message(read_plain, path, tokenize=str.strip, encoding="latin-1")
    assert message.startswith(f"{path}:1: tokenize: column 'word': expected a sequence of strings")
