"""A small corpus, and what a model says of it by going through all labellings in float64."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

LABELS = ["A", "B", "C"]
WORDS = ["u", "v", "w", "x"]


def toy_corpus(seed: int = 0, sentences: int = 8, longest: int = 4):
    """Sentences of tokens with dicts of attributes, real values among them; and their labels."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(sentences):
        length = int(rng.integers(1, longest + 1))
        words = rng.integers(len(WORDS), size=length)
        X.append([{"w": WORDS[k], "size": round(0.25 * (k + 1), 2), "bias": True} for k in words])
        noisy = np.where(rng.random(length) < 0.3, rng.integers(3, size=length), words % 3)
        y.append([LABELS[k] for k in noisy])
    # Whatever the seed, every label begins a sentence and ends one, and all words occur.
    for k, word in enumerate(WORDS):
        X.append([{"w": word, "size": 1.0, "bias": True}])
        y.append([LABELS[k % 3]])
    return X, y


def words_of(X) -> list[list[str]]:
    """The same sentences as lists of words."""
    return [[token["w"] for token in sentence] for sentence in X]


def attributes_of(token: Mapping) -> dict[str, float]:
    """Names and values of a token of `toy_corpus`, in python-crfsuite's convention."""
    return {f"w:{token['w']}": 1.0, "size": token["size"], "bias": 1.0}


def all_paths(length: int, labels: int) -> np.ndarray:
    """Every labelling [labels ** length, length]."""
    paths = list(itertools.product(range(labels), repeat=length))
    return np.array(paths, np.int64).reshape(labels**length, length)


def path_scores(
    tagger,
    tokens: Sequence[Mapping[str, float]],
    pairs: Sequence[Sequence[str]] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Every labelling of a sentence and its score.

    Args:
        tagger: a trained tagger, of which the weights and the names of attributes are taken.
        tokens: for each token, values by attribute name.
        pairs: for each token but the first, names of the attributes of it and the one before.
    """
    model, names = tagger.model_, tagger.extractor_.attribute_names()
    row = {name: index for index, name in enumerate(names)}
    edge_row = {name: i for i, name in enumerate(tagger.extractor_.edge_attribute_names())}
    weights, transitions, start, stop = (
        np.asarray(a, np.float64)
        for a in (model.weights, model.transitions, model.start, model.stop)
    )
    paths = all_paths(len(tokens), len(tagger.classes_))
    scores = start[paths[:, 0]] + stop[paths[:, -1]]
    for t, token in enumerate(tokens):
        for name, value in token.items():
            if name in row:
                scores = scores + value * weights[row[name], paths[:, t]]
        if t:
            scores = scores + transitions[paths[:, t - 1], paths[:, t]]
            for name in pairs[t - 1] if pairs else ():
                if name in edge_row:
                    table = np.asarray(model.edge_weights, np.float64)[edge_row[name]]
                    scores = scores + table[paths[:, t - 1], paths[:, t]]
    return paths, scores


def log_sum(scores: np.ndarray) -> float:
    """log Σ exp."""
    top = scores.max()
    return float(top + np.log(np.exp(scores - top).sum()))


def node_probabilities(paths: np.ndarray, scores: np.ndarray, labels: int) -> np.ndarray:
    """Probability [n, labels] of each label at each token."""
    probability = np.exp(scores - log_sum(scores))
    hits = paths[:, :, None] == np.arange(labels)
    return (probability[:, None, None] * hits).sum(0)


def negative_log_likelihood(tagger, sentences, y, weights=None, pairs=None) -> float:
    """Of labels that may be partly known: strings, sets or None."""
    total = 0.0
    classes = tagger.classes_.tolist()
    for index, (tokens, labels) in enumerate(zip(sentences, y)):
        paths, scores = path_scores(tagger, tokens, pairs[index] if pairs else None)
        agrees = np.ones(len(paths), bool)
        for t, label in enumerate(labels):
            choices = classes if label is None else {label} if isinstance(label, str) else label
            agrees &= np.isin(paths[:, t], [classes.index(choice) for choice in choices])
        weight = 1.0 if weights is None else weights[index]
        total += weight * (log_sum(scores) - log_sum(scores[agrees]))
    return total


def squares(tagger) -> float:
    """Sum of squares of all weights of a model in which none is shared."""
    model = tagger.model_
    arrays = (model.weights, model.transitions, model.start, model.stop, model.edge_weights)
    return sum(float((np.asarray(a, np.float64) ** 2).sum()) for a in arrays if a is not None)
