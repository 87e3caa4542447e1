"""Mann & McCallum 2007: is the gradient right, what does it cost, and what is it good for?"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxseq
from jaxseq.crf import EncodedLabels, Objective, Parameters, Spread, lay_out, make_shards
from jaxseq.text import CONLL2000, Sentence, TemplateExtractor

CORPORA = ("conll2000",)


@dataclass(frozen=True)
class Config:
    """See ``config.toml``."""

    sentences: int
    rounds: int
    iterations: int
    l2: float
    agreement_sentences: int
    growth_positions: tuple[int, ...]
    growth_labels: tuple[int, ...]
    growth_fixed_labels: int
    growth_fixed_positions: int
    span_sentences: int
    span_width: int
    span_shown: int

    def __post_init__(self) -> None:
        for name in ("sentences", "rounds", "iterations", "agreement_sentences", "span_width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected 1 or more, got {getattr(self, name)}")


ALGORITHMS = ("mann", "jiao", "autodiff")  # whose growth is measured


def cells(config: Config, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Agreement a seed, the wall-clock ratio, growth an algorithm and axis, and spans."""
    listed: list[dict[str, Any]] = [{"part": "agreement", "seed": seed} for seed in seeds]
    listed.append({"part": "real agreement"})
    listed.append({"part": "ratio"})
    for algorithm in ALGORITHMS:
        listed += [{"part": "growth", "algorithm": algorithm, "axis": axis} for axis in ("n", "s")]
    listed.append({"part": "spans"})
    return listed


def run_cell(config: Config, cell: dict[str, Any], data: Any) -> dict[str, Any]:
    """The results of one cell."""
    part = cell["part"]
    if part == "agreement":
        return _agreement_on_random_chains(cell["seed"])
    if part == "growth":
        return _growth(config, cell["algorithm"], cell["axis"])
    if part == "real agreement":
        return _agreement_on_sentences(config, data)
    return _ratio(config, data) if part == "ratio" else _spans(config, data)


# ------------------------------------------------------------------------ the three gradients


def _entropy_in_logs(nodes: jax.Array, edges: jax.Array) -> jax.Array:
    """log Z − E[score] by plain log-space recursions, for autodiff: nothing of jaxseq's in it."""

    def step(carry, scores):
        log_alpha, mean = carry
        joint = log_alpha[:, None] + edges + scores
        log_next = jax.nn.logsumexp(joint, 0)
        share = jnp.exp(joint - log_next)
        return (log_next, (share * (mean[:, None] + edges + scores)).sum(0)), None

    (log_alpha, mean), _ = jax.lax.scan(step, (nodes[0], nodes[0]), nodes[1:])
    log_z = jax.nn.logsumexp(log_alpha)
    return log_z - (jnp.exp(log_alpha - log_z) * mean).sum()


@jax.jit
def _mann(nodes: jax.Array, edges: jax.Array):
    gradient = jaxseq.mann_entropy_gradient(jaxseq.Chain(nodes, edges))
    return gradient.nodes, gradient.edges


@jax.jit
def _jiao(nodes: jax.Array, edges: jax.Array):
    gradient = jaxseq.jiao_entropy_gradient(jaxseq.Chain(nodes, edges))
    return gradient.nodes, gradient.edges


_autodiff = jax.jit(jax.grad(_entropy_in_logs, (0, 1)))
_forward_mode = jax.jit(jax.jacfwd(_entropy_in_logs, (0, 1)))

GRADIENTS: dict[str, Callable[..., Any]] = {"mann": _mann, "jiao": _jiao, "autodiff": _autodiff}


def _disagreement(nodes: jax.Array, edges: jax.Array) -> dict[str, float]:
    """Largest difference of each derivation from Mann's, relative to the largest entry."""
    reference = [np.asarray(part) for part in _mann(nodes, edges)]
    # A chain of one label has gradient 0, which nothing can be divided by.
    size = max(1e-12, *(np.abs(part).max() for part in reference))
    derivations = {"jiao": _jiao, "autodiff": _autodiff, "forward-mode autodiff": _forward_mode}
    errors = {}
    for name, gradient in derivations.items():
        parts = gradient(nodes, edges)
        worst = max(np.abs(np.asarray(a) - b).max() for a, b in zip(parts, reference))
        errors[name] = float(worst / size)
    value = float(jaxseq.entropy(jaxseq.Chain(nodes, edges)))
    plain = float(_entropy_in_logs(nodes, edges))
    errors["value, autodiff's recursion"] = abs(value - plain) / max(1e-12, abs(plain))
    return errors


def _worst(errors: list[dict[str, float]]) -> dict[str, Any]:
    """Of many chains. Rounded up to a power of ten: the last digits are the machine's own."""
    worst = {name: max(one[name] for one in errors) for name in errors[0]}
    bound = {name: float(10.0 ** np.ceil(np.log10(max(x, 1e-17)))) for name, x in worst.items()}
    return {"chains": len(errors), "relative_error_below": bound}


def _agreement_on_random_chains(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([2007, seed])
    with jax.enable_x64(True):  # errors of the formulas, not of float32
        errors = []
        for n, s, scale in ((1, 3, 1.0), (8, 3, 3.0), (30, 5, 1.0)):
            nodes, edges = rng.normal(size=(n, s)) * scale, rng.normal(size=(s, s)) * scale
            errors.append(_disagreement(jnp.asarray(nodes), jnp.asarray(edges)))
        return _worst(errors)


# --------------------------------------------------------------------------------- real data


@lru_cache(maxsize=1)
def _trained(config: Config, data: Any) -> jaxseq.CRFTagger:
    """A tagger on the first sentences: where a search is after some iterations."""
    sentences = data.corpus("conll2000", "train", config.sentences)
    tagger = jaxseq.CRFTagger(
        templates=CONLL2000,
        l2=config.l2,
        max_iterations=config.iterations,
        weights="observed",
        progress=False,
    )
    return tagger.fit(sentences, [sentence["label"] for sentence in sentences])


def _chain(tagger: jaxseq.CRFTagger, sentence: Sentence) -> jaxseq.Chain:
    return tagger.model_.chain(tagger.extractor_.transform([sentence]).ids)


def _agreement_on_sentences(config: Config, data: Any) -> dict[str, Any]:
    tagger = _trained(config, data)
    errors = []
    for sentence in _of_one_length(data.corpus("conll2000", "test"), config.agreement_sentences):
        chain = _chain(tagger, sentence)
        nodes, edges = np.asarray(chain.nodes), np.asarray(chain.edges)
        # The scores of a float32 model, whose entropies are then computed in float64.
        with jax.enable_x64(True):
            arrays = (jnp.asarray(array, jnp.float64) for array in (nodes, edges))
            errors.append(_disagreement(*arrays))
    return _worst(errors)


def _of_one_length(sentences: list[Sentence], count: int) -> list[Sentence]:
    """The first sentences of the length that most have: one shape, compiled once."""
    length, _ = Counter(map(len, sentences)).most_common(1)[0]
    return [sentence for sentence in sentences if len(sentence) == length][:count]


def _ratio(config: Config, data: Any) -> dict[str, Any]:
    """Time of a gradient of the likelihood, and of the entropy, on the same sentences; all-in:
    scores from weights, lattices, and gradients by weights."""
    tagger = _trained(config, data)
    sentences = data.corpus("conll2000", "train", config.sentences)
    extractor = TemplateExtractor(CONLL2000)
    features = extractor.fit_transform(sentences)
    number = {label: index for index, label in enumerate(tagger.classes_)}
    gold = [number[label] for sentence in sentences for label in sentence["label"]]
    labels = EncodedLabels(np.array(gold, np.int32), None)
    layout = lay_out(features.lengths, os.cpu_count() or 1)
    shards = make_shards(layout, features, extractor.attribute_count, labels)
    spread = Spread(attributes=extractor.attribute_count, labels=len(number))
    point: Parameters = spread.parameters(tagger.model_)
    objectives = {
        "supervised": Objective(shards, spread, config.l2),
        "entropy": Objective([], spread, config.l2, unlabelled=shards, entropy_weight=1.0),
    }
    for objective in objectives.values():  # compiles, which must not count below
        objective(point)
        objective.seconds = dict.fromkeys(objective.seconds, 0.0)
    seconds = _best_seconds({n: partial(o, point) for n, o in objectives.items()}, config.rounds)
    stages = {name: _stages(objective) for name, objective in objectives.items()}
    tokens = int(features.lengths.sum())
    return {
        "sentences": len(sentences),
        "tokens": tokens,
        "seconds": {**seconds, "stages": stages},
    }


def _stages(objective: Objective) -> dict[str, float]:
    names = ("gather", "lattice", "scatter")
    total = sum(objective.seconds[name] for name in names)
    return {name: objective.seconds[name] / total for name in names}


def _best_seconds(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Best of some rounds, each of which runs all twice."""
    best = dict.fromkeys(runs, np.inf)
    for run in runs.values():  # compiles
        jax.block_until_ready(run())
    for _ in range(rounds):
        for name, run in runs.items():
            for _ in range(2):
                # Twice in a row: the first one finds the caches full of another's data.
                began = time.perf_counter()
                jax.block_until_ready(run())
                best[name] = min(best[name], time.perf_counter() - began)
    return best


# ------------------------------------------------------------------------------------ growth


def _growth(config: Config, algorithm: str, axis: str) -> dict[str, Any]:
    """Seconds of one gradient of one chain, by the number of positions or of labels."""
    sizes = config.growth_positions if axis == "n" else config.growth_labels
    gradient, seconds = GRADIENTS[algorithm], {}
    rng = np.random.default_rng(0)
    for size in sizes:
        n = size if axis == "n" else config.growth_fixed_positions
        s = size if axis == "s" else config.growth_fixed_labels
        nodes = jnp.asarray(rng.normal(size=(n, s)), jnp.float32)
        edges = jnp.asarray(rng.normal(size=(s, s)), jnp.float32)
        run = partial(gradient, nodes, edges)
        seconds[str(size)] = _best_seconds({"": run}, 2 * config.rounds)[""]
    return {"sizes": list(sizes), "seconds": seconds}


# ------------------------------------------------------------------------------------- spans


def _spans(config: Config, data: Any) -> dict[str, Any]:
    """The stretch of each sentence that is most uncertain, and how often the model's labels are
    wrong there and elsewhere."""
    tagger = _trained(config, data)
    sentences = data.corpus("conll2000", "test", config.span_sentences)
    predicted = tagger.predict(sentences)
    shown, wrong_inside, wrong_outside, inside, outside = [], 0, 0, 0, 0
    for sentence, labels in zip(sentences, predicted):
        if not len(sentence):  # has no span
            continue
        ids = tagger.extractor_.transform([sentence]).ids
        start, stop, nats, sentence_nats = _most_uncertain(tagger.model_, ids, config.span_width)
        wrong = [a != b for a, b in zip(labels, sentence["label"])]
        inside, outside = inside + stop - start, outside + len(wrong) - (stop - start)
        wrong_inside += sum(wrong[start:stop])
        wrong_outside += sum(wrong) - sum(wrong[start:stop])
        shown.append(
            {
                "words": list(sentence["word"]),
                "span": [start, stop],
                "nats": round(nats, 3),
                "sentence_nats": round(sentence_nats, 3),
                "predicted": labels[start:stop],
                "gold": list(sentence["label"][start:stop]),
            }
        )
    shown.sort(key=lambda one: -one["nats"])
    return {
        "sentences": len(sentences),
        "wrong_inside": [wrong_inside, inside],
        "wrong_outside": [wrong_outside, outside],
        "shown": shown[: config.span_shown],
    }


def _most_uncertain(
    model: jaxseq.CRF, ids: np.ndarray, width: int
) -> tuple[int, int, float, float]:
    """Start, stop and entropy of the stretch of `width` words (or of all, where there are fewer)
    whose labels have most entropy; and the entropy of the whole sentence."""
    n = len(ids)
    width = min(width, n)
    padded = 1 << max(3, (n - 1).bit_length())  # few shapes
    ids = np.pad(ids, ((0, padded - n), (0, 0)), constant_values=-1)
    entropies, sentence_entropy = _span_entropies(model, ids, n, width)
    entropies = np.asarray(entropies)[: n - width + 1]
    start = int(np.argmax(entropies))
    return start, start + width, float(entropies[start]), float(sentence_entropy)


@jax.jit
def _span_entropies(model: jaxseq.CRF, ids: jax.Array, n: jax.Array, width: jax.Array):
    """Entropy of the span from each position on, and of the sentence."""
    chain = model.chain(ids, length=n)
    # Starts on padding repeat the last real one; the caller cuts them off.
    starts = jnp.minimum(jnp.arange(ids.shape[0]), n - width)
    each = jax.vmap(lambda start: jaxseq.span_entropy(chain, start, start + width))
    return each(starts), jaxseq.entropy(chain)
