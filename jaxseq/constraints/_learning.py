"""How constraint-driven learning learns: what it makes of several labellings of each sentence.

Both learners have the same three things: `classes`; `supervised()`, the tagger of θ0; and
`learn(first, labels, weights)`, the tagger of θ, mixed with that of θ0.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, ArrayLike, Float

from jaxseq._runtime import Outcome
from jaxseq.crf import (
    CRF,
    CRFTagger,
    EncodedLabels,
    Parameters,
    Plan,
    Problem,
    Spread,
    carry_over,
    make_spread,
    mask_forbidden,
    read_both,
    search,
)
from jaxseq.hmm import (
    HMM,
    HMMTagger,
    Multinomials,
    known_counts,
    make_hmm_plan,
    read_hmm_data,
    read_words,
    search_hmm,
    word_numbers,
)
from jaxseq.lattice import is_concrete
from jaxseq.parallel import Devices, mesh_peers
from jaxseq.taggers import (
    check_labels,
    check_paths_legal,
    encode_labels,
    find_classes,
    fresh,
    legal_by_scheme,
)
from jaxseq.text import Templates, TokenFeatures, token_rows

LabellingWeights = Literal["uniform", "score"]
"""How much each of several labellings of a sequence counts."""

Model = TypeVar("Model", HMM, CRF)


def labelling_weights(
    scores: ArrayLike, how: str = "uniform", temperature: float = 1.0
) -> Float[Array, "B k"]:
    r"""How much each of the best labellings of a sequence counts in learning; they add up to 1.

    .. math::
        w_{bi} = \frac{1}{K_b} \quad\text{(uniform)} \qquad
        w_{bi} = \frac{\exp(s_{bi} / \tau)}{\sum_j \exp(s_{bj} / \tau)} \quad\text{(score)}

    with :math:`K_b` the number of labellings that sequence b has. By score at τ = 1, with scores
    that are log-probabilities up to a constant per sequence, these are the posterior probabilities
    among the labellings: EM whose E-step looks at the best ones alone.

    Args:
        scores: [B, k], of each sequence's labellings; −inf where there are fewer than k.
        how: ``"uniform"`` or ``"score"``.
        temperature: τ > 0; the smaller, the more the best one counts.

    Returns:
        Weights, 0 where a score is −inf; all 0 for a sequence without a labelling.

    Raises:
        ValueError: for scores that are not numbers or −inf, and another name or temperature.

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
        # −inf less −inf would be NaN, in the value and in the gradient: masked before and after.
        top = jnp.where(legal, values, -jnp.inf).max(1, keepdims=True, initial=-jnp.inf)
        above = jnp.where(legal, values - jnp.where(jnp.isneginf(top), 0, top), 0)
        counted = jnp.where(legal, jnp.exp(above / temperature), 0)
    total = counted.sum(1, keepdims=True)  # at least 1 by score, since the best one counts e⁰
    return counted / jnp.where(total > 0, total, 1)


def check_weighing(how: Any, temperature: Any) -> None:
    """ValueError unless this is a way to weigh labellings."""
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

    No sequence is copied: its words, the same in all labellings, are looked up once.

    Args:
        words: [N], numbers of all tokens' words, one sequence after another.
        labels: [N, k], of all tokens in each labelling; −1 for none, which counts nowhere.
        lengths: [B], tokens of each sequence, N together.
        weights: [B, k], of each sequence's labellings, from `labelling_weights`.
        num_words: v.
        num_labels: s.
        dtype: of the counts; JAX's default float if None. They are summed in float64.
        mesh: where it spans several processes, the sequences are those of this one, and counts are
            summed over all of them.

    Raises:
        ValueError: for shapes that do not fit, and words or labels out of range.

    Cost: O(N k + v s) on the host.

    Example:
        >>> import numpy as np
        >>> words, lengths = np.array([0, 1]), np.array([2])
        >>> labels, weights = np.array([[0, 1], [1, 1]]), np.array([[0.75, 0.25]])
        >>> counts = labelling_counts(words, labels, lengths, weights, 2, 2)
        >>> counts.initial.tolist(), counts.transition.tolist()
        ([0.75, 0.25], [[0.0, 0.75], [0.0, 0.25]])

    References:
        Chang, Ratinov & Roth 2007, figure 2: learning from the K best labellings.
    """
    words, labels = np.asarray(words, np.int64), np.asarray(labels, np.int64)
    lengths, each = np.asarray(lengths, np.int64), np.asarray(weights, np.float64)
    peers = mesh_peers(mesh)
    # A bad part of one process must stop all of them before they wait for each other's counts.
    with peers.guard():
        _check_counts(words, labels, lengths, each, num_words, num_labels)
    by_token = np.repeat(each, lengths, axis=0)
    first = np.zeros(len(words), bool)
    first[(np.cumsum(lengths) - lengths)[lengths > 0]] = True  # empty ones begin nowhere
    known = (labels >= 0) & (by_token > 0)
    # A transition is an event only inside a sequence, and where both labels are known.
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
    for name, array, low, end in (
        ("words", words, 0, num_words),
        ("labels", labels, -1, num_labels),
    ):
        wrong = (array < low) | (array >= end)
        if wrong.any():
            raise ValueError(f"{name}: expected {low} … {end - 1}, got {array[wrong][0]}")
    if not ((weights >= 0) & (weights < np.inf)).all():  # which NaN is not
        raise ValueError("weights: expected finite numbers, 0 or more, got others")


def mix_models(first: Model, other: Model, share: float) -> Model:
    r"""A model between two, :math:`\gamma \theta_0 + (1 - \gamma) \theta`.

    Of hidden Markov models, the probabilities of each multinomial are mixed; of conditional random
    fields, all weights. What only one of two CRFs forbids is forbidden.

    Args:
        first: θ0.
        other: θ, with the same words or attributes, and labels.
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
    if share in (0, 1):  # 0 · −inf would be NaN
        return first if share else other

    def mix(a: Array, b: Array) -> Array:
        return share * a + (1 - share) * b

    if isinstance(first, HMM) and isinstance(other, HMM):
        # Probabilities and not logs: a word that only one model has seen stays possible.
        mixed = jax.tree.map(mix, first.probabilities, other.probabilities)
        return HMM(*mixed, unknown=first.unknown)
    return jax.tree.map(mix, first, other)


def check_share(name: str, share: Any) -> None:
    """ValueError unless this is a number from 0 to 1."""
    if not _is_number(share) or not 0 <= share <= 1:
        raise ValueError(f"{name}: expected a number from 0 to 1, got {share!r:.60}")


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


NO_TOKENS = "unlabelled: expected at least one sentence with a token, got none"


class CRFLearner:
    r"""θ0 from the labelled sentences, and θ from labellings of the others, as weighted copies.

    With `keep`, γ, labellings count as much as the labelled tokens do in θ0, so that penalties are
    as strong in both; with None, both are learnt from together, each sentence counting 1. An
    attribute that no labelled sentence has gets weight 0 in θ0, as its penalty alone would leave.
    """

    def __init__(
        self,
        estimator: CRFTagger,
        X: list[Any],
        y: list[Any],
        unlabelled: list[Any],
        keep: float | None,
    ):
        self._estimator, self._keep, self._sentences = estimator, keep, (X, y)
        tagger = fresh(estimator)
        self._plan, self._extractor = Plan.from_tagger(tagger), tagger._new_extractor(X)
        self._labelled, features = read_both(self._extractor, X, unlabelled, "all")
        if features is None:
            raise ValueError(NO_TOKENS)
        self._unlabelled = features
        flat = check_labels(y, self._labelled.lengths)
        self.classes = find_classes(flat, self._labelled.lengths, classes=tagger.classes)
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
        spread = _choose_weights(problem, once, self._plan.weights)
        plan = self._plan.scaled(problem.labelled_tokens())
        end = search(problem, plan, None, spread)
        model = spread.model(end.parameters, self._legal)
        if self._keep is not None:
            model = mix_models(self._carried(first), model, self._keep)
        tagger = fresh(self._estimator)
        tagger._take(model, self.classes, self._extractor)
        tagger._report(end, plan)
        return tagger

    def _carried(self, first: CRFTagger) -> CRF:
        """θ0 with the attributes of all sentences."""
        model = carry_over(first, self._extractor, self.classes)
        ends = (model.transitions, model.start, model.stop)
        # The mixture must not allow what the scheme forbids: −inf in θ0 is −inf in the mixture.
        ends = mask_forbidden(Parameters(model.weights, *ends, None), self._legal)
        return CRF(model.weights, *ends, model.edge_weights)

    def _problem(self, labels: np.ndarray, weights: np.ndarray) -> Problem:
        """Labellings of some weight, after the labelled sentences if these belong together."""
        features, gold, each = _copies(self._unlabelled, labels, weights)
        allowed = None
        if self._keep is None:
            known = self._known
            each = np.concatenate([np.ones(len(self._labelled.lengths)), each])
            if known.allowed is not None:
                # Labels known in part are sets; those of a labelling are sets of one.
                allowed = np.concatenate([known.allowed, np.eye(len(self.classes))[gold] > 0])
            gold = np.concatenate([known.gold, gold])
            features = TokenFeatures.concatenate([self._labelled, features])
        else:
            # As many tokens as are labelled, whatever there is of others: l2 is as strong as in θ0.
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


def _choose_weights(problem: Problem, once: Problem, weights: Any) -> Spread:
    """Which weights are learnt; how frequent an attribute is counts sentences, not their copies."""
    if weights != "mixed":  # only this one asks how frequent attributes are
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
    chosen = labels[token_rows(lengths, sentence), np.repeat(rank, lengths[sentence])]
    return features.take(sentence), chosen, weights[sentence, rank]


class HMMLearner:
    r"""θ0 from the labelled sentences, and θ from labellings of the others: relative frequencies.

    The vocabulary is that of all sentences, unless the estimator says ``"labelled"``. Without
    `keep`, γ, θ0 has the vocabulary of its own sentences, as in self-training.
    """

    def __init__(
        self,
        estimator: HMMTagger,
        X: list[Any],
        y: list[Any],
        unlabelled: list[Any],
        keep: float | None,
        mesh: Mesh | None = None,
        devices: Devices | None = None,
    ):
        devices = devices or Devices.alone()
        self._estimator, self._keep, self._sentences = estimator, keep, (X, y)
        self._shared = {"mesh": mesh, "sentence_numbers": devices.numbers}
        plan = make_hmm_plan(fresh(estimator), mesh)
        self._plan = plan if keep is not None else replace(plan, vocabulary="all")
        data = read_hmm_data(X, y, unlabelled, self._plan, devices)
        self._data = replace(data, unlabelled=None)  # supervised: EM must not see them
        self.classes = data.classes
        words, self._lengths = read_words(unlabelled, plan.column)
        # The part of one process may be empty, the corpus may not.
        if not devices.total(int(self._lengths.sum())):
            raise ValueError(NO_TOKENS)
        self._words = word_numbers(words, data.vocabulary)
        all_known = devices.all(data.labelled.is_labelled)
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
        if self._keep is None:  # pooled: θ = learn(L ∪ T)
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
