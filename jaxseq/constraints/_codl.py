"""Constraint-driven learning: a tagger that learns from its own labels under constraints."""

from __future__ import annotations

import base64
import hashlib
import numbers
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, ArrayLike, Float
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from jaxseq._runtime import Outcome, interrupts_deferred, progress_bar
from jaxseq.constraints._constraint import Constraints, Scheme, bind_constraints
from jaxseq.constraints._penalties import corpus_violations
from jaxseq.crf import (
    CRF,
    MODULUS,
    CRFTagger,
    EncodedLabels,
    EntropyTerm,
    Parameters,
    Problem,
    Spread,
    carry_over,
    check_unlabelled,
    make_spread,
    mask_forbidden,
    plan_of,
    read_both,
    search,
)
from jaxseq.hmm import (
    HMM,
    HMMTagger,
    Multinomials,
    check_own_mesh,
    known_counts,
    make_hmm_plan,
    read_hmm_data,
    read_words,
    search_hmm,
    word_numbers,
)
from jaxseq.lattice import is_concrete
from jaxseq.parallel import Peers, mesh_peers
from jaxseq.taggers import (
    Label,
    Notes,
    Together,
    bound_to,
    check_codl_alike,
    check_labels,
    check_number,
    check_paths_legal,
    encode_labels,
    find_classes,
    fresh,
    legal_by_scheme,
    search_scored,
    settings_of,
    text_of,
    token_score,
    warn_unmet,
)
from jaxseq.text import Templates, TokenFeatures

# -------------------------------------------------------------------------------------------------
# What constraint-driven learning makes of several labellings of each sequence.


LabellingWeights = Literal["uniform", "score"]
"""How much each of several labellings of a sequence counts."""

Model = TypeVar("Model", HMM, CRF)


def labelling_weights(
    scores: ArrayLike, how: str = "uniform", temperature: float = 1.0
) -> Float[Array, "B k"]:
    r"""How much each of the best labellings of a sequence counts in learning; together 1.

    .. math::
        w_{bi} = \frac{1}{K_b} \quad\text{(uniform)} \qquad
        w_{bi} = \frac{\exp(s_{bi} / \tau)}{\sum_j \exp(s_{bj} / \tau)} \quad\text{(score)}

    with :math:`K_b` the number of labellings that there are of sequence b. By score at τ = 1, with
    scores that are log-probabilities up to a constant of the sequence, these are the posterior
    probabilities among the labellings: EM whose E-step looks at the best ones alone.

    Args:
        scores: [B, k], of each sequence's labellings; −inf for one that there is not.
        how: ``"uniform"`` or ``"score"``.
        temperature: τ > 0; the smaller, the more the best one counts.

    Returns:
        Weights, 0 where a score is −inf; all 0 for a sequence without a labelling.

    Raises:
        ValueError: for scores that are none, and another name or temperature.

    Cost: O(B k).

    Example:
        >>> import jax.numpy as jnp
        >>> scores = jnp.array([[0.0, 0.0, -jnp.inf], [-jnp.inf] * 3])
        >>> labelling_weights(scores, "score").tolist()
        [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]

    References:
        Chang, Ratinov & Roth 2007, section 5, where all K weights are the same.
    """
    check_weighing(how, temperature)
    values = jnp.asarray(scores)
    if values.ndim != 2 or not jnp.issubdtype(values.dtype, jnp.floating):
        raise ValueError(
            f"scores: expected floats of shape [sequences, labellings], got dtype "
            f"{values.dtype.name} of shape {list(values.shape)}"
        )
    if is_concrete(values) and not bool((values < jnp.inf).all()):
        raise ValueError("scores: expected finite numbers or −inf, got NaN or +inf")
    legal = values > -jnp.inf
    if how == "uniform":
        counted = legal.astype(values.dtype)
    else:
        top = jnp.where(legal, values, -jnp.inf).max(1, keepdims=True, initial=-jnp.inf)
        above = jnp.where(legal, values - jnp.where(jnp.isneginf(top), 0, top), 0)
        counted = jnp.where(legal, jnp.exp(above / temperature), 0)
    total = counted.sum(1, keepdims=True)
    return counted / jnp.where(total > 0, total, 1)


def check_weighing(how: Any, temperature: Any) -> None:
    """ValueError for what is no way to weigh labellings."""
    if how not in get_args(LabellingWeights):
        raise ValueError(f"weights: expected 'uniform' or 'score', got {how!r:.60}")
    if not _is_number(temperature) or not 0 < temperature < np.inf:
        raise ValueError(f"temperature: expected a finite number above 0, got {temperature!r:.60}")


def labelling_counts(
    words: ArrayLike | Sequence,
    labels: ArrayLike | Sequence,
    lengths: ArrayLike | Sequence,
    weights: ArrayLike | Sequence,
    num_words: int,
    num_labels: int,
    dtype: Any = None,
    *,
    mesh: Mesh | None = None,
) -> Multinomials:
    r"""Weighted counts of an HMM's events on several labellings of each sequence.

    .. math::
        \sum_b \sum_i w_{bi} \, \mathrm{Count}(x_b, y_b^i, \omega)

    No sequence is copied: what is the same in all labellings, its words, is looked up once.

    Args:
        words: [N], numbers of all tokens' words, one sequence after another.
        labels: [N, k], of all tokens in each labelling; −1 for none, which counts nowhere.
        lengths: [B], tokens of each sequence, N together.
        weights: [B, k], of each sequence's labellings, as of `labelling_weights`.
        num_words, num_labels: v and s.
        dtype: of the counts; JAX's default float if None. They are summed in float64.
        mesh: where it spans several processes, the sequences are those of this one, and counts are
            summed over all of them.

    Raises:
        ValueError: for shapes that do not fit, and words or labels that there are not.

    Cost: O(N k + v s) on the host.

    Example:
        >>> import numpy as np
        >>> words, lengths = np.array([0, 1]), np.array([2])
        >>> labels, weights = np.array([[0, 1], [1, 1]]), np.array([[0.75, 0.25]])
        >>> found = labelling_counts(words, labels, lengths, weights, 2, 2)
        >>> found.initial.tolist(), found.transition.tolist()
        ([0.75, 0.25], [[0.0, 0.75], [0.0, 0.25]])

    References:
        Chang, Ratinov & Roth 2007, figure 2: learning from the K best labellings.
    """
    words, labels = np.asarray(words, np.int64), np.asarray(labels, np.int64)
    lengths, each = np.asarray(lengths, np.int64), np.asarray(weights, np.float64)
    peers = mesh_peers(mesh)
    with peers.guard():
        _check_counts(words, labels, lengths, each, num_words, num_labels)
    by_token = np.repeat(each, lengths, axis=0)
    first = np.zeros(len(words), bool)
    first[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
    known = (labels >= 0) & (by_token > 0)
    pair = known[1:] & known[:-1] & ~first[1:, None]
    begins, s = known & first[:, None], num_labels

    def count(events: np.ndarray, where: np.ndarray, amounts: np.ndarray, size: int) -> np.ndarray:
        # Of no events NumPy makes whole numbers, whatever the weights are.
        return np.bincount(events[where], amounts[where], size).astype(np.float64)

    initial = count(labels, begins, by_token, s)
    transition = count(labels[:-1] * s + labels[1:], pair, by_token[1:], s * s)
    emission = count(words[:, None] * s + labels, known, by_token, num_words * s)
    dtype = jnp.result_type(float) if dtype is None else dtype
    initial, transition, emission = (peers.sum(a) for a in (initial, transition, emission))
    arrays = (initial, transition.reshape(s, s), emission.reshape(num_words, s))
    return Multinomials(*(jnp.asarray(array, dtype) for array in arrays))


def _check_counts(words, labels, lengths, weights, num_words: int, num_labels: int) -> None:
    total, k = int(lengths.sum()), labels.shape[-1] if labels.ndim == 2 else 1
    wanted = {"words": (total,), "labels": (total, k), "weights": (len(lengths), k)}
    for (name, shape), array in zip(wanted.items(), (words, labels, weights)):
        if array.shape != shape:
            raise ValueError(f"{name}: expected shape {list(shape)}, got {list(array.shape)}")
    ranges = (("words", words, 0, num_words), ("labels", labels, -1, num_labels))
    for name, array, low, end in ranges:
        wrong = (array < low) | (array >= end)
        if wrong.any():
            raise ValueError(f"{name}: expected {low} … {end - 1}, got {array[wrong][0]}")
    if not ((weights >= 0) & (weights < np.inf)).all():
        raise ValueError("weights: expected finite numbers, 0 or more, got others")


def mix_models(first: Model, other: Model, share: float) -> Model:
    r"""A model between two, :math:`\gamma \theta_0 + (1 - \gamma) \theta`.

    Of hidden Markov models, the probabilities of each multinomial are mixed; of conditional random
    fields, all weights. What only one of two CRFs forbids is forbidden.

    Args:
        first: θ0. other: θ, with the same words or attributes, and labels.
        share: γ, 0 … 1; 1 is θ0 itself and 0 is θ, to the bit.

    Raises:
        ValueError: for models of different kinds or shapes, or another share.

    Cost: O(v s) for v words or attributes.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxseq.hmm import HMM
        >>> one = HMM(jnp.array([1.0, 0.0]), jnp.ones((2, 2)), jnp.ones((1, 2)))
        >>> two = HMM(jnp.array([0.0, 1.0]), jnp.ones((2, 2)), jnp.ones((1, 2)))
        >>> mix_models(one, two, 0.25).probabilities.initial.tolist()
        [0.25, 0.75]

    References:
        Chang, Ratinov & Roth 2007, figure 2.
    """
    check_share("share", share)
    if type(first) is not type(other):
        kinds = f"{type(first).__name__} and {type(other).__name__}"
        raise ValueError(f"other: expected a model of the same kind, got {kinds}")
    shapes = [[leaf.shape for leaf in jax.tree.leaves(model)] for model in (first, other)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"other: expected arrays of shapes {shapes[0]}, got {shapes[1]}")
    if share in (0, 1):
        return first if share else other

    def mix(a: Array, b: Array) -> Array:
        return share * a + (1 - share) * b

    if isinstance(first, HMM) and isinstance(other, HMM):
        mixed = jax.tree.map(mix, first.probabilities, other.probabilities)
        return HMM(*mixed, unknown=first.unknown)
    return jax.tree.map(mix, first, other)


def check_share(name: str, share: Any) -> None:
    """ValueError for what is no number from 0 to 1."""
    if not _is_number(share) or not 0 <= share <= 1:
        raise ValueError(f"{name}: expected a number from 0 to 1, got {share!r:.60}")


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


# -------------------------------------------------------------------------------------------------
# The labellings that constraint-driven learning learns from, and what to tell of them.


SAME_WEIGHT = 1e-6
"""Difference of a labelling's weights that does not count as one."""


NO_TOKENS = "unlabelled: expected at least one sentence with a token, got none"


class Learner(Protocol):
    """Trains taggers: θ0 from labelled sentences, and θ from labellings of unlabelled ones."""

    classes: list[str]

    def supervised(self) -> Any:
        """The tagger of θ0."""
        ...

    def learn(self, first: Any, labels: np.ndarray, weights: np.ndarray) -> Any:
        """The tagger of θ, from labels [N, k] with weights [B, k] and the tagger of θ0."""
        ...


class Labelling(NamedTuple):
    """The best labellings of the unlabelled sentences.

    labels [N, k] of all tokens, scores [B, k] less the penalties, and weights [B, k]; hard [B]:
    violations of hard constraints by the best one.
    """

    labels: np.ndarray
    scores: np.ndarray
    weights: np.ndarray
    hard: np.ndarray

    def same(self, other: Labelling) -> bool:
        """Whether there is nothing new to learn from the other one."""
        close = np.abs(self.weights - other.weights) <= SAME_WEIGHT
        return bool(np.array_equal(self.labels, other.labels) and close.all())


class Labeller:
    """Labels the same sentences with one tagger after another.

    Args:
        sentences: unlabelled ones. constraints: bound to the labels.
        learn_with: whether they are respected; if not, they are only told of.
        k: labellings a sentence. width: of the beam. how, temperature: of `labelling_weights`.
        mesh: devices to search on; where it spans several processes, those of this one, which
            labels its own sentences.
    """

    def __init__(
        self,
        sentences: list[Any],
        constraints: Constraints,
        learn_with: bool,
        k: int,
        width: int | None,
        how: Any,
        temperature: float,
        mesh: Mesh | None = None,
    ):
        self._mesh, self._peers = mesh, mesh_peers(mesh)
        self._sentences, self._constraints, self._k, self._width = sentences, constraints, k, width
        self._how, self._temperature = how, temperature
        self._x = constraints.observe_all(sentences)
        self.lengths = np.zeros(0, np.int64)
        free = [str(number) for number in range(constraints.num_labels)]
        self._used = constraints if learn_with else bind_constraints([], free)

    def __call__(self, tagger: Any) -> Labelling:
        """The best labellings by a tagger, under the constraints."""
        scored = tagger._scored(self._sentences)
        self.lengths = scored.features.lengths
        x = self._x[: len(self._used)]
        found = search_scored(scored, self._used, self._k, self._width, x, self._mesh)
        return self.weighted(found.labels, np.asarray(found.scores), found.hard[:, 0])

    def weighted(self, labels: np.ndarray, scores: np.ndarray, hard: np.ndarray) -> Labelling:
        """Labellings with what each of them counts."""
        found = labelling_weights(scores.astype(np.float64), self._how, self._temperature)
        return Labelling(labels, scores, np.asarray(found), hard)

    def told(self, now: Labelling, before: Labelling | None) -> dict[str, Any]:
        """The entry of a history: what changed, scores and violations of the best labellings.

        Of the sentences of all processes, which ask for it together.
        """
        lengths = self.lengths
        real = np.isfinite(now.scores[:, 0]) & (lengths > 0)
        changed = now.labels.size if before is None else int((now.labels != before.labels).sum())
        best = now.scores[real, 0].astype(np.float64)
        broken = corpus_violations(self._constraints, self._x, now.labels[:, 0], lengths)[real] > 0
        unmet = int((now.hard[real] > 0).sum())
        own = [int(changed), unmet, len(best), float(best.sum()), *broken.sum(0).tolist()]
        found = self._peers.exchange(own)
        changed, unmet, count, score, *violated = (sum(numbers) for numbers in zip(*found))
        shares = [number / max(count, 1) for number in violated]
        return {
            "changed": changed,
            "mean_score": score / max(count, 1),
            "unmet": unmet,
            "violated": dict(zip(_different(self._constraints.names), shares)),
        }


def _different(names: tuple[str, ...]) -> list[str]:
    """Names of which the second of the same name says so."""
    found: list[str] = []
    for number, name in enumerate(names):
        times = names[:number].count(name)
        found.append(f"{name} ({times + 1})" if times else name)
    return found


def fingerprint(constraints: Constraints) -> str:
    """Says which constraints these are, the same in every process."""
    leaves, structure = jax.tree.flatten(constraints)
    digest = hashlib.sha256(str(structure).encode("utf-8", "surrogatepass"))
    for leaf in leaves:
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


# -------------------------------------------------------------------------------------------------
# What is kept of constraint-driven learning: the labellings of all processes, in one order.
#
# Whoever has which of the sentences, the file is the same: what some processes left, others can go
# on from.


KINDS = {"lengths": "<i4", "labels": "<i4", "scores": "<f8", "hard": "<i4"}


class Kept(NamedTuple):
    """Of this process's sentences: labels [N, k], scores [B, k], hard violations [B]; the history
    of all."""

    labels: np.ndarray
    scores: np.ndarray
    hard: np.ndarray
    history: list[dict[str, Any]]


class CoDLNotes:
    """Notes of the labellings that the last cycle learnt from; nothing without a path.

    Args:
        path: the file, which all processes see, or None.
        about: the settings. X, y, others: the sentences of this process.
        together: all processes, which must do everything here together.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        about: Any,
        X: list[Any],
        y: list[Any],
        others: list[Any],
        together: Together,
    ):
        self._peers, self._kept = together.peers, path is not None
        if not self._kept:
            self._notes = Notes(None, ())
            return
        numbers = together.by_turns(len(others))
        parts = [found[0] for found in self._peers.exchange_arrays(numbers)]
        self._order = np.argsort(np.concatenate(parts), kind="stable")
        first = sum(map(len, parts[: self._peers.index]))
        self._own = np.argsort(self._order)[first : first + len(others)]
        self._notes = Notes(path, (about, self._hash_pairs(X, y), self._hash_others(others)))

    def _hash_pairs(self, X: list[Any], y: list[Any]) -> str:
        """Of the labelled sentences, whose order does not matter."""
        own = sum(int.from_bytes(_digest(pair), "big") for pair in zip(X, y, strict=True))
        found = self._peers.exchange(f"{own % MODULUS:x}")
        return f"{sum(int(each, 16) for each in found) % MODULUS:x}"

    def _hash_others(self, others: list[Any]) -> str:
        """Of the unlabelled sentences, in the order in which their labellings are kept."""
        own = np.frombuffer(b"".join(map(_digest, others)), np.uint8).reshape(-1, 32)
        found = np.concatenate([each[0] for each in self._peers.exchange_arrays(own)])
        return hashlib.sha256(found[self._order].tobytes()).hexdigest()

    def load(self) -> Kept | None:
        """What the last `save` wrote, of this process's sentences; None where there is nothing."""
        with self._peers.guard():
            kept = self._notes.load()
            self._peers.check_same("checkpoint: is there", kept is not None)
        if kept is None:
            return None
        lengths, labels, scores, hard = (
            np.frombuffer(base64.b64decode(kept["labelling"][name]), kind)
            for name, kind in KINDS.items()
        )
        scores = scores.reshape(len(lengths), -1)
        labels = labels.reshape(-1, scores.shape[1])[_tokens_of(lengths, self._own)]
        return Kept(labels, scores[self._own], hard[self._own], kept["history"])

    def save(self, found: Labelling, lengths: np.ndarray, history: list[dict[str, Any]]) -> None:
        """Replace the notes by the labellings of all, of sentences of these lengths."""
        if not self._kept:
            return
        own = (lengths, found.labels, found.scores, found.hard)
        named = zip(own, KINDS.values())
        arrays = self._peers.exchange_arrays(*(np.asarray(array, kind) for array, kind in named))
        lengths, labels, scores, hard = (np.concatenate(parts) for parts in zip(*arrays))
        labels = labels[_tokens_of(lengths, self._order)]
        whole = (lengths[self._order], labels, scores[self._order], hard[self._order])
        packed = {
            name: base64.b64encode(array.tobytes()).decode() for name, array in zip(KINDS, whole)
        }
        with self._peers.guard():
            if self._peers.is_first:
                self._notes.save({"labelling": packed, "history": history})

    def remove(self) -> None:
        """The job is done."""
        with self._peers.guard():
            if self._peers.is_first:
                self._notes.remove()


def _digest(part: Any) -> bytes:
    return hashlib.sha256(text_of(part).encode("utf-8", "surrogatepass")).digest()


def _tokens_of(lengths: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The places of the tokens of some sentences, of all sentences one after another.

    Example:
        >>> _tokens_of(np.array([2, 3, 1]), np.array([2, 0])).tolist()
        [5, 0, 1]
    """
    lengths = lengths.astype(np.int64)
    starts, counts = (np.cumsum(lengths) - lengths)[chosen], lengths[chosen]
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(counts.sum())


# -------------------------------------------------------------------------------------------------
# Conditional random fields from the best labellings of unlabelled sentences.


class CRFLearner:
    r"""θ0 from the labelled sentences, and θ from labellings of the others, as weighted copies.

    Attributes are those of all sentences; one that no labelled sentence has gets weight 0 in θ0,
    which is what its penalty leaves.

    Args:
        estimator: how to train. X, y: labelled sentences. others: unlabelled ones.
        keep: γ of :math:`\gamma \theta_0 + (1 - \gamma) \theta`, where labellings count as much as
            the labelled sentences' tokens do in θ0, so that penalties are as strong in both; None
            learns from labelled sentences and labellings together, each sentence counting 1.
    """

    def __init__(
        self,
        estimator: CRFTagger,
        X: list[Any],
        y: list[Any],
        others: list[Any],
        keep: float | None,
    ):
        self._estimator, self._keep, self._sentences = estimator, keep, (X, y)
        tagger = fresh(estimator)
        self._plan = plan_of(tagger)
        self._extractor, self._labelled, rest = read_both(tagger._new_extractor, X, others, "all")
        if rest is None:
            raise ValueError(NO_TOKENS)
        self._rest = rest
        flat = check_labels(y, self._labelled.lengths)
        self.classes = find_classes(flat, self._labelled.lengths)
        self._known = encode_labels(flat, self.classes, self._labelled.lengths)
        self._legal = legal_by_scheme(self.classes, estimator.scheme)
        check_paths_legal(self._known, self._labelled.lengths, self._legal, self.classes)

    def supervised(self) -> CRFTagger:
        """θ0."""
        return fresh(self._estimator).fit(*self._sentences)

    def learn(self, first: CRFTagger, labels: np.ndarray, weights: np.ndarray) -> CRFTagger:
        """θ from labels [N, k] with weights [B, k], mixed with those of θ0."""
        problem = self._problem(labels, weights)
        once = self._problem(labels[:, :1], (weights.sum(1, keepdims=True) > 0).astype(float))
        spread = _spread_of(problem, once, self._plan.weights)
        found = search(problem, self._plan, None, spread, EntropyTerm.of(0.0, "mann"))
        model = spread.model(found.parameters, self._legal)
        if self._keep is not None:
            model = mix_models(self._carried(first), model, self._keep)
        tagger = fresh(self._estimator)
        tagger._take(model, self.classes, self._extractor)
        tagger.loss_, tagger.outcome_ = found.loss, found.outcome
        tagger.n_iter_, tagger.n_evaluations_ = found.iterations, found.evaluations
        return tagger

    def _carried(self, first: CRFTagger) -> CRF:
        """θ0 with the attributes of all sentences."""
        model = carry_over(first, self._extractor, self.classes)
        ends = (model.transitions, model.start, model.stop)
        ends = mask_forbidden(Parameters(model.weights, *ends, None), self._legal)
        return CRF(model.weights, *ends, model.edge_weights)

    def _problem(self, labels: np.ndarray, weights: np.ndarray) -> Problem:
        """Labellings of some weight, after the labelled sentences if these belong together."""
        features, gold, each = _copies(self._rest, labels, weights)
        allowed = None
        if self._keep is None:
            known = self._known
            each = np.concatenate([np.ones(len(self._labelled.lengths)), each])
            if known.allowed is not None:
                allowed = np.concatenate([known.allowed, np.eye(len(self.classes))[gold] > 0])
            gold = np.concatenate([known.gold, gold])
            features = _joined(self._labelled, features)
        else:
            each = each * (self._labelled.lengths.sum() / (each * features.lengths).sum())
        templates = self._estimator.templates
        return Problem(
            features=features,
            labels=EncodedLabels(gold.astype(np.int32), allowed),
            classes=self.classes,
            attributes=self._extractor.attribute_count,
            edge_attributes=self._extractor.edge_attribute_count,
            transitions=not isinstance(templates, Templates) or templates.transitions,
            legal=self._legal,
            sentence_weights=each,
        )


def _spread_of(problem: Problem, once: Problem, weights: Any) -> Spread:
    """Which weights are learnt; what is frequent is so in sentences, not in copies of them."""
    if weights != "mixed":
        return make_spread(problem, weights)
    observed, spread = make_spread(problem, "observed"), make_spread(once, "mixed")
    assert observed.places is not None
    assert spread.places is not None
    places = np.union1d(np.asarray(observed.places), np.asarray(spread.places))
    return eqx.tree_at(lambda s: s.places, spread, jnp.asarray(places, jnp.int32))


def _copies(
    features: TokenFeatures, labels: np.ndarray, weights: np.ndarray
) -> tuple[TokenFeatures, np.ndarray, np.ndarray]:
    """The sentences once for each labelling that counts, its labels, and how much it counts."""
    lengths = features.lengths
    sentence, rank = np.nonzero((weights > 0) & (lengths > 0)[:, None])
    copied = lengths[sentence]
    within = np.arange(copied.sum()) - np.repeat(np.cumsum(copied) - copied, copied)
    tokens = np.repeat((np.cumsum(lengths) - lengths)[sentence], copied) + within
    arrays = {
        name: None if getattr(features, name) is None else getattr(features, name)[tokens]
        for name in ("ids", "values", "edge_ids")
    }
    chosen = labels[tokens, np.repeat(rank, copied)]
    return replace(features, lengths=copied, **arrays), chosen, weights[sentence, rank]


def _joined(first: TokenFeatures, second: TokenFeatures) -> TokenFeatures:
    """One corpus after another, of one extractor."""

    def both(name: str) -> Any:
        arrays = [getattr(features, name) for features in (first, second)]
        return None if arrays[0] is None else np.concatenate(arrays)

    return replace(first, **{name: both(name) for name in ("ids", "values", "lengths", "edge_ids")})


# -------------------------------------------------------------------------------------------------
# Hidden Markov models from the best labellings of unlabelled sentences.


class HMMLearner:
    r"""θ0 from the labelled sentences, and θ from labellings of the others: relative frequencies.

    Args:
        estimator: with its smoothing and its rule for unknown words, whose vocabulary is that of
            labelled and unlabelled sentences (unless it says ``"labelled"``).
        X, y: labelled sentences. others: unlabelled ones.
        keep: γ of :math:`\gamma \theta_0 + (1 - \gamma) \theta`; None learns from labelled
            sentences and labellings together. θ0 then has the vocabulary of its own sentences, as
            in self-training.
        mesh: devices to share the sentences out to; those of this process, where it spans several.
        together: the processes of the mesh, which do everything here together.
    """

    def __init__(
        self,
        estimator: HMMTagger,
        X: list[Any],
        y: list[Any],
        others: list[Any],
        keep: float | None,
        mesh: Mesh | None = None,
        together: Together | None = None,
    ):
        together = together or Together.alone()
        self._estimator, self._keep, self._sentences = estimator, keep, (X, y)
        self._shared = {"mesh": mesh, "sentence_numbers": together.numbers}
        plan = make_hmm_plan(fresh(estimator), mesh)
        self._plan = plan if keep is not None else replace(plan, vocabulary="all")
        data = read_hmm_data(X, y, others, self._plan, together)
        self._data = replace(data, unlabelled=None)
        self.classes = data.classes
        words, self._lengths = read_words(others, plan.column)
        if not together.total(int(self._lengths.sum())):
            raise ValueError(NO_TOKENS)
        self._words = word_numbers(words, data.vocabulary)
        all_known = all(together.peers.exchange(data.labelled.is_labelled))
        if keep is None and not all_known:
            raise ValueError(
                "y: expected the label of every token, since labelled sentences and labellings are "
                "counted together (pool), got labels that are not known"
            )

    def supervised(self) -> HMMTagger:
        """θ0."""
        tagger = fresh(self._estimator)
        if self._keep is None:
            return tagger.fit(*self._sentences, **self._shared)
        tagger._take_fitted(self._data, search_hmm(self._data, self._plan))
        return tagger

    def learn(self, first: HMMTagger, labels: np.ndarray, weights: np.ndarray) -> HMMTagger:
        """θ from labels [N, k] with weights [B, k], mixed with those of θ0."""
        data, s, dtype = self._data, len(self.classes), self._plan.dtype
        size = len(data.vocabulary)
        labelled = (self._words, labels, self._lengths, weights)
        counts = labelling_counts(*labelled, size, s, dtype=dtype, mesh=self._plan.mesh)
        if self._keep is None:
            known = known_counts(data.labelled, s, dtype, mesh=self._plan.mesh)
            counts = type(counts)(*(a + b for a, b in zip(known, counts)))
        smoothed = (family + amount for family, amount in zip(counts, self._plan.smoothing))
        model = HMM(*smoothed, unknown=data.vocabulary.unknown)
        if self._keep is not None:
            model = mix_models(first.model_, model, self._keep)
        tagger = fresh(self._estimator)
        tagger._take(model, self.classes, data.vocabulary)
        tagger.outcome_, tagger.n_iter_ = Outcome.COUNTED, 0
        tagger.loss_ = tagger.log_likelihood_ = None
        return tagger


class CoDL(BaseEstimator):
    r"""Constraint-driven learning: label the unlabelled sentences under constraints, learn, repeat.

    .. math::
        \theta_0 &= \mathrm{learn}(L) \\
        T &= \{(x, y^1), \dots, (x, y^K) : x \in U\}, \quad
        y^1, \dots, y^K = \operatorname{top-}K_y \;
        \mathrm{score}_\theta(x, y) - \sum_k \rho_k d_k(x, y) \\
        \theta &= \gamma \theta_0 + (1 - \gamma) \, \mathrm{learn}(T)

    the last two again and again. Without constraints and with K = 1 this is hard EM, with γ the
    "H&W" of Chang et al., and with `pool`, θ = learn(L ∪ T), their "H".

    Args:
        estimator: a `jaxseq.HMMTagger` or `jaxseq.CRFTagger`; it is cloned, not changed. Of an HMM,
            learning is counting, and it costs the same whatever K is; a CRF is trained on K copies
            of each unlabelled sentence.
        constraints: rules, with penalties of their own (`jaxseq.constraints.Penalised`) or
            without; a file of them; or `jaxseq.constraints.Constraints` for the labels, sorted.
            Those of ρ = 0 change nothing, to the bit.
        penalty: ρ of the rules that have none. scheme: how labels stand for fields.
        k: K, labellings of each unlabelled sentence to learn from.
        width: of the beam; None for 50, or k if that is more.
        weights: of the K labellings, 1 together: ``"uniform"``; or ``"score"``, by
            :math:`\exp(\mathrm{score} / \tau)`, which for τ = 1 is EM with the posterior
            probabilities within the K best.
        temperature: τ.
        keep: γ, 0 … 1, what is kept of the supervised model.
        cycles: at most so many.
        pool: learn from labelled sentences and labellings together; `keep` does not matter then.
        learn_with_constraints, predict_with_constraints: where constraints are respected.
        progress: show a progress bar; None shows it on a terminal.
        checkpoint: a file to keep the labellings of the last cycle in. If it is there when `fit`
            starts, learning goes on from it, with the same result as if it had never stopped.

    Attributes:
        tagger_: the tagger of the last cycle. constraints_: bound to its labels. outcome_: why it
        ended. history_: for each cycle, of the labellings that it learnt from: ``"changed"``, how
        many labels of all K are others than in the cycle before (all of them, in the first);
        ``"mean_score"``, of the best ones, less the penalties; ``"unmet"``, how many sentences
        violate hard constraints; ``"violated"``, from each constraint's name to the share of
        sentences whose best labelling violates it.

    Sentences that have no legal labelling are not learnt from.

    Cost: a cycle is `jaxseq.constraints.search_corpus` and a training.

    Example:
        >>> import jaxseq
        >>> from jaxseq.constraints import Tokens, WordsImply
        >>> X, y = [["a", "dog"], ["a", "cat"], ["runs"]], [["D", "N"], ["D", "N"], ["V"]]
        >>> rules = [WordsImply(Tokens(["purrs"]), ["V"])]
        >>> learner = jaxseq.CoDL(jaxseq.HMMTagger(unknown_below=1), rules, penalty=5.0, k=2)
        >>> learner = learner.fit(X, y, unlabelled=[["a", "cat", "purrs"]])
        >>> learner.predict([["dog", "purrs"]], constrained=False)
        [['N', 'V']]

    References:
        Chang, Ratinov & Roth 2007, figure 2.
    """

    def __init__(
        self,
        estimator: Any,
        constraints: Any = (),
        *,
        penalty: float | None = None,
        scheme: Scheme = "plain",
        k: int = 50,
        width: int | None = None,
        weights: LabellingWeights = "uniform",
        temperature: float = 1.0,
        keep: float = 0.1,
        cycles: int = 5,
        pool: bool = False,
        learn_with_constraints: bool = True,
        predict_with_constraints: bool = True,
        progress: bool | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ):
        self.estimator = estimator
        self.constraints = constraints
        self.penalty = penalty
        self.scheme: Scheme = scheme
        self.k = k
        self.width = width
        self.weights = weights
        self.temperature = temperature
        self.keep = keep
        self.cycles = cycles
        self.pool = pool
        self.learn_with_constraints = learn_with_constraints
        self.predict_with_constraints = predict_with_constraints
        self.progress = progress
        self.checkpoint = checkpoint

    # ------------------------------------------------------------------------------ training

    @property
    def interrupted_(self) -> bool:
        """Whether Ctrl-C ended `fit`."""
        return self.outcome_ is Outcome.INTERRUPTED

    def fit(
        self,
        X: Iterable[Any],
        y: Sequence[Sequence[Label]],
        *,
        unlabelled: Iterable[Any],
        mesh: Mesh | None = None,
        sentence_numbers: Sequence[int] | None = None,
    ) -> CoDL:
        """Train.

        Args:
            X, y: sentences and labels, as for the estimator.
            unlabelled: more sentences, at least one with a token.
            mesh: devices to share them out to while they are labelled under the constraints, of
                `jaxseq.parallel.make_mesh`. With an HMM it may span several processes: the sentences
                are then the part of this one, which may be empty, and all call `fit` together, to
                get what one process gets up to rounding.
            sentence_numbers: as in `HMMTagger.fit`.

        Returns:
            Itself. After Ctrl-C it holds the tagger of the last complete cycle.

        Raises:
            ValueError: for parameters that make no sense, a rule with a label that is not in y,
                and no unlabelled sentence.

        Warns:
            ConstraintWarning: where hard constraints cannot all be met in unlabelled sentences (of
                this process).
        """
        peers = mesh_peers(mesh)
        with peers.guard():
            self._check()
            check_codl_alike(self, mesh, {"sentence_numbers": sentence_numbers}, peers)
            together = Together.of(mesh, sentence_numbers)
            X, y, others = list(X), list(y), check_unlabelled(unlabelled)
            learner = self._learner(X, y, others, mesh, together)
            self.constraints_ = bound_to(
                learner.classes, self.constraints, self.penalty, self.scheme
            )
            peers.check_same("constraints", fingerprint(self.constraints_))
            labeller = self._labeller(others, mesh)
            notes = CoDLNotes(self.checkpoint, self._about(), X, y, others, together)
            kept = notes.load()
        self.tagger_, self.history_ = learner.supervised(), []
        self.outcome_ = Outcome.INTERRUPTED
        if _interrupted(self.tagger_):
            return self
        past, first = None, self.tagger_
        # One process stops where it is; of several, none can without the others.
        deferred = nullcontext(lambda: False) if together.is_alone else interrupts_deferred()
        with deferred as pressed, progress_bar("CoDL", self.cycles, self.progress) as tick:
            job = _Job(learner, labeller, notes, peers, pressed)
            if kept is not None:
                past = self._resume(job, kept)
            outcome, past = self._go_on(job, first, past, tick)
        self.outcome_ = outcome
        if outcome is not Outcome.INTERRUPTED:
            notes.remove()
        if past is not None:
            warn_unmet(past.hard, "unlabelled")
        return self

    def _learner(
        self, X: list[Any], y: list[Any], others: list[Any], mesh: Mesh | None, together: Together
    ) -> HMMLearner | CRFLearner:
        keep = None if self.pool else float(self.keep)
        if isinstance(self.estimator, HMMTagger):
            return HMMLearner(self.estimator, X, y, others, keep, mesh, together)
        check_own_mesh(mesh, "; with an HMMTagger it may have them")
        return CRFLearner(self.estimator, X, y, others, keep)

    def _go_on(
        self, job: _Job, first: Any, past: Labelling | None, tick: Any
    ) -> tuple[Outcome, Labelling | None]:
        """Cycles until one of the ends; the labelling that the last one learnt from."""
        try:
            while len(self.history_) < self.cycles:
                with job.peers.guard():
                    found = job.labeller(self.tagger_)
                if job.stopped():
                    return Outcome.INTERRUPTED, past
                if past is not None and all(job.peers.exchange(found.same(past))):
                    return Outcome.FIXED_POINT, past
                if not any(job.peers.exchange(bool(found.weights.any()))):
                    raise ValueError(
                        "unlabelled: expected a sentence that the model gives a labelling, got none"
                    )
                tagger = job.learner.learn(first, found.labels, found.weights)
                if _interrupted(tagger) or job.stopped():
                    return Outcome.INTERRUPTED, past
                history = [*self.history_, job.labeller.told(found, past)]
                self.tagger_, self.history_, past = tagger, history, found
                job.notes.save(found, job.labeller.lengths, history)
                tick(len(history), history[-1]["changed"])
        except KeyboardInterrupt:
            if job.peers.count > 1:
                raise  # a second one: the others are still at work
            return Outcome.INTERRUPTED, past
        return Outcome.MAX_ROUNDS, past

    def _resume(self, job: _Job, kept: Kept) -> Labelling:
        """The labelling of the last cycle that was complete, whose tagger is learnt again."""
        scores = kept.scores.astype(self.tagger_.dtype)
        past = job.labeller.weighted(kept.labels, scores, kept.hard)
        tagger = job.learner.learn(self.tagger_, past.labels, past.weights)
        if _interrupted(tagger):
            raise KeyboardInterrupt
        self.tagger_, self.history_ = tagger, kept.history
        return past

    def _labeller(self, others: list[Any], mesh: Mesh | None = None) -> Labeller:
        return Labeller(
            others,
            self.constraints_,
            bool(self.learn_with_constraints),
            int(self.k),
            self.width,
            self.weights,
            float(self.temperature),
            mesh,
        )

    def _about(self) -> Any:
        """What the results depend on, apart from the data and the number of cycles."""
        names = ("k", "width", "weights", "temperature", "keep", "pool", "learn_with_constraints")
        own = {name: getattr(self, name) for name in names}
        settings = settings_of(self.estimator)
        if isinstance(self.estimator, HMMTagger):
            settings.pop("cores")  # nothing but rounding depends on it, or on processes
        return settings, own, fingerprint(self.constraints_)

    def _check(self) -> None:
        if not isinstance(self.estimator, HMMTagger | CRFTagger):
            raise ValueError(
                f"estimator: expected an HMMTagger or a CRFTagger, got {self.estimator!r:.60}"
            )
        for name in ("k", "cycles"):
            check_number(name, getattr(self, name), 1, numbers.Integral)
        if self.width is not None:
            check_number("width", self.width, int(self.k), numbers.Integral)
        check_weighing(self.weights, self.temperature)
        check_share("keep", self.keep)

    # ---------------------------------------------------------- as the tagger of the last cycle

    def _used(self, constrained: bool | None) -> Any:
        check_is_fitted(self, "tagger_")
        wanted = self.predict_with_constraints if constrained is None else constrained
        return self.constraints_ if wanted else None

    def predict(self, X: Iterable[Any], *, constrained: bool | None = None) -> list[list[str]]:
        """The best labelling of each sentence, by the last tagger.

        Args:
            X: sentences.
            constrained: whether constraints are respected; None for `predict_with_constraints`.
        """
        used = self._used(constrained)
        return self.tagger_.predict(X, constraints=used, width=self.width)

    def predict_k_best(
        self, X: Iterable[Any], k: int, *, constrained: bool | None = None
    ) -> list[list[tuple[list[str], float]]]:
        """The k best labellings of each sentence, with log P(y | x) less the soft penalties."""
        used = self._used(constrained)
        width = self.width if self.width is None else max(int(k), self.width)
        return self.tagger_.predict_k_best(X, k, constraints=used, width=width)

    def score(
        self,
        X: Iterable[Any],
        y: Sequence[Sequence[Label]],
        sample_weight: Any = None,
        *,
        constrained: bool | None = None,
    ) -> float:
        """Share of tokens that get their label; those without a known label do not count."""
        return token_score(self.predict(X, constrained=constrained), y, sample_weight)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the last tagger; `jaxseq.load` reads it. Constraints are no part of the file."""
        check_is_fitted(self, "tagger_")
        self.tagger_.save(path)


class _Job(NamedTuple):
    """Who learns, who labels, where it is written down, and with which processes; whether Ctrl-C
    was pressed in this one."""

    learner: Learner
    labeller: Labeller
    notes: CoDLNotes
    peers: Peers
    pressed: Callable[[], bool]

    def stopped(self) -> bool:
        """Whether Ctrl-C was pressed in any process."""
        return any(self.peers.exchange(bool(self.pressed())))


def _interrupted(tagger: Any) -> bool:
    return tagger.outcome_ is Outcome.INTERRUPTED
