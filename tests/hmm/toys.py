"""A tiny corpus, and how the tests train on it."""

from jaxseq.hmm import HMMTagger

LABELS, WORDS = "ABC", "uvwx"
X = [list("uvw"), list("vx"), ["u"], list("xwuv"), list("wv")]
Y = [list("ABC"), list("BA"), ["A"], list("CCAB"), list("BC")]
MORE = [list("uvx"), ["w"], list("vwuz"), list("xu")]


def tagger(**params):
    given = {"unknown_below": 1, "cores": 1, "dtype": "float64", "tolerance": 0.0}
    given |= {"weight": None, "frozen": ()}
    return HMMTagger(**{**given, **params})


def saved_bytes(one, path):
    one.save(path)
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}
