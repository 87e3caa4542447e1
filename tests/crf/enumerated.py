"""A CRF on a small corpus by brute force: every labelling of every sentence, its features counted
one by one. Shares no code with the package beyond the containers of its input."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from jaxseq.crf import EncodedLabels, lay_out, make_shards
from jaxseq.text import TokenFeatures

LABELS, ATTRIBUTES, EDGE_ATTRIBUTES = 3, 5, 2
LENGTHS = [3, 0, 1, 4, 2, 1, 0, 3]
WIDTH = 5


@dataclass(frozen=True)
class Corpus:
    """Tokens, what is known of their labels (a set each), and the weights of the sentences."""

    features: TokenFeatures
    known: list[set[int]]
    weights: np.ndarray

    def labels(self) -> EncodedLabels:
        """The same, as the package wants it."""
        gold = np.array([min(k) if len(k) == 1 else -1 for k in self.known], np.int32)
        if (gold >= 0).all():
            return EncodedLabels(gold, None)
        return EncodedLabels(
            gold, np.array([[label in k for label in range(LABELS)] for k in self.known])
        )

    def shards(self, number: int):
        """Rows of the corpus, in so many shards."""
        layout = lay_out(self.features.lengths, number, width=WIDTH)
        return make_shards(layout, self.features, ATTRIBUTES, self.labels(), self.weights)

    def sentences(self):
        """Slices of the tokens."""
        ends = np.cumsum(self.features.lengths).tolist()
        return [slice(end - int(n), end) for end, n in zip(ends, self.features.lengths)]


def draw_corpus(seed: int, *, values=False, partial=False, pairs=False, weighted=True) -> Corpus:
    """A corpus of the same shapes for every seed, so that nothing is compiled twice."""
    rng = np.random.default_rng(seed)
    lengths = np.array(LENGTHS, np.int64)
    tokens = int(lengths.sum())
    ids = rng.integers(-1, ATTRIBUTES, (tokens, 4)).astype(np.int32)
    sizes = np.float32(rng.normal(size=ids.shape)) if values else None
    edge_ids = rng.integers(-1, EDGE_ATTRIBUTES, (tokens, 2)).astype(np.int32) if pairs else None
    known = [{int(label)} for label in rng.integers(LABELS, size=tokens)]
    if partial:
        everything = set(range(LABELS))
        for token in range(tokens):
            kind = rng.integers(3)  # one label, two, or any
            known[token] = [known[token], everything - known[token], everything][kind]
        known[0] = {0, 2}  # at least one set, whatever was drawn
    # Weights are kept in float32: eighths lose nothing.
    weights = rng.integers(1, 20, len(lengths)) / 8 if weighted else np.ones(len(lengths))
    return Corpus(TokenFeatures(ids, sizes, lengths, edge_ids), known, weights)


SHAPES = {
    "weights": (ATTRIBUTES, LABELS),
    "transitions": (LABELS, LABELS),
    "start": (LABELS,),
    "stop": (LABELS,),
    "edge_weights": (EDGE_ATTRIBUTES, LABELS, LABELS),
}


def flatten(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """One long vector θ of all parameters."""
    return np.concatenate([np.asarray(arrays[name], float).ravel() for name in SHAPES])


def unflatten(vector: np.ndarray) -> dict[str, np.ndarray]:
    """The parameters of a vector."""
    sizes = [int(np.prod(shape)) for shape in SHAPES.values()]
    parts = np.split(vector, np.cumsum(sizes)[:-1])
    return {name: part.reshape(SHAPES[name]) for name, part in zip(SHAPES, parts)}


@dataclass(frozen=True)
class Paths:
    """All labellings of a sentence: features [paths, |θ|], whether each is legal, and whether it
    agrees with what is known."""

    features: np.ndarray
    legal: np.ndarray
    agrees: np.ndarray


def all_paths(corpus: Corpus, legal: dict[str, np.ndarray] | None = None) -> list[Paths]:
    """Every labelling of every sentence, the features counted."""
    found = []
    for sentence in corpus.sentences():
        rows, allowed, agrees = [], [], []
        tokens = range(sentence.start, sentence.stop)
        for path in product(range(LABELS), repeat=len(tokens)):
            count = {name: np.zeros(shape) for name, shape in SHAPES.items()}
            fine = True
            for place, (token, label) in enumerate(zip(tokens, path)):
                ids, values = corpus.features.ids[token], corpus.features.values
                sizes = np.ones(len(ids)) if values is None else values[token]
                for attribute, size in zip(ids, sizes):
                    if attribute >= 0:
                        count["weights"][attribute, label] += size
                if place == 0:
                    count["start"][label] += 1
                    fine &= legal is None or bool(legal["start"][label])
                    continue
                pair = (path[place - 1], label)
                count["transitions"][pair] += 1
                fine &= legal is None or bool(legal["transitions"][pair])
                if corpus.features.edge_ids is not None:
                    for attribute in corpus.features.edge_ids[token]:
                        if attribute >= 0:
                            count["edge_weights"][(attribute, *pair)] += 1
            if path:
                count["stop"][path[-1]] += 1
                fine &= legal is None or bool(legal["stop"][path[-1]])
            rows.append(flatten(count))
            allowed.append(fine)
            agrees.append(all(label in corpus.known[t] for t, label in zip(tokens, path)))
        found.append(Paths(np.array(rows), np.array(allowed), np.array(agrees)))
    return found


def loss_and_gradient(
    corpus: Corpus, theta: np.ndarray, legal: dict[str, np.ndarray] | None = None
) -> tuple[float, np.ndarray]:
    """Σ w (log Σ_legal exp − log Σ_legal, agreeing exp), and its gradient by θ."""
    value, gradient = 0.0, np.zeros_like(theta)
    for paths, weight in zip(all_paths(corpus, legal), corpus.weights):
        scores = paths.features @ theta
        for sign, chosen in ((1, paths.legal), (-1, paths.legal & paths.agrees)):
            mass = np.where(chosen, np.exp(scores), 0)
            value += sign * weight * np.log(mass.sum())
            gradient += sign * weight * (mass / mass.sum()) @ paths.features
    return value, gradient
