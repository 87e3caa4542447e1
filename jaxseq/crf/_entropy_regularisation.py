r"""The semi-supervised objective as pure functions, for searches of one's own.

.. math::
    L(\theta) = \sum_{(x, y)} -\log p_\theta(y|x) + \tfrac{\lambda}{2} \|\theta\|^2
                + \gamma \sum_{x \in U} H(p_\theta(\cdot|x))

to be minimised: the negative of what Jiao et al. 2006 maximise. `Objective` is the same with the
work spread over cores and its tables kept from call to call, which is what `CRFTagger.fit` runs.
"""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Float

from jaxseq._io import Fingerprint, SearchStore
from jaxseq._runtime import Outcome, progress_bar
from jaxseq.crf._objective import (
    Objective,
    finish,
    node_scores,
    on_devices,
    own,
    sum_parts,
    weight_gradient,
)
from jaxseq.crf._parameters import Legal, Parameters, Spread, mask_forbidden
from jaxseq.crf._problem import Vocabulary, check_vocabulary
from jaxseq.crf._score_gradient import EntropyGradient, lattice_gradient, sequence_weights
from jaxseq.crf._settings import EntropyTerm
from jaxseq.crf._shards import Shard, place_shards
from jaxseq.crf._tagger import CRFTagger
from jaxseq.lattice import flat_entropy, flat_log_partition, vdot
from jaxseq.metrics import span_scores, token_accuracy
from jaxseq.parallel import BY_DATA, DATA, EVERYWHERE, check_mesh, off_mesh, place
from jaxseq.taggers import check_number, check_unlabelled, fresh, settings_of
from jaxseq.text import SCHEMES, parse_tag

Scalar = float | Float[Array, ""]
"""A number, or what `jax.jit`, `jax.grad` and `jax.vmap` put in its place."""


def entropy_regularised_loss(
    parameters: Parameters,
    labelled: Sequence[Shard],
    unlabelled: Sequence[Shard],
    spread: Spread,
    *,
    l2: Scalar = 0.0,
    entropy_weight: Scalar = 0.0,
    legal: Legal | None = None,
    mesh: Mesh | None = None,
) -> Float[Array, ""]:
    r"""Negative log-likelihood of labelled shards + l2/2 ‖θ‖² + γ · entropy of unlabelled ones.

    Differentiable by `jax.grad` (whose rule for the entropy is Mann & McCallum's) and free of
    effects. Shards with attributes of pairs of tokens are not for this function, but for
    `entropy_regularised_gradient`.

    Args:
        parameters: the point θ.
        labelled: shards of `make_shards`.
        unlabelled: shards whose labels are not looked at.
        spread: how the learnt weights make the table.
        l2: λ.
        entropy_weight: γ.
        legal: transitions that may be used, or None for all.
        mesh: devices to share the sentences out to, of `jaxseq.parallel.make_mesh`; sums are
            all-reduced along its axis ``"data"``. Where it spans several processes, the shards are
            those of this one, and all call this together.

    Cost: O(n s²) time per sentence.

    Example:
        >>> import numpy as np, jax
        >>> from jaxseq.crf import EncodedLabels, Spread, lay_out, make_shards
        >>> from jaxseq.text import TemplateExtractor, Templates
        >>> extractor = TemplateExtractor(Templates(["word[0]"]))
        >>> features = extractor.fit_transform([["the", "dog"]])
        >>> corpus = (lay_out(features.lengths, 1), features, extractor.attribute_count)
        >>> shards = make_shards(*corpus, EncodedLabels(np.array([0, 1], np.int32), None))
        >>> spread = Spread(attributes=extractor.attribute_count, labels=2)
        >>> at = spread.zeros()
        >>> loss = entropy_regularised_loss(at, shards, shards, spread, entropy_weight=1)
        >>> bool(np.isclose(loss, 4 * np.log(2)))  # two tokens: likelihood and entropy
        True

    References:
        Jiao et al. 2006, equation 3; Grandvalet & Bengio 2004.
    """
    squares = [vdot(leaf, leaf) for leaf in jax.tree.leaves(parameters)]
    penalty = l2 / 2 * jnp.stack(squares).sum()
    for shard in (*labelled, *unlabelled):
        if shard.edge_ids is not None:
            raise ValueError(
                "shards: expected none with attributes of pairs of tokens, got one; "
                "entropy_regularised_gradient takes them"
            )
    if mesh is None:
        terms = _sum_terms(parameters, labelled, unlabelled, spread, entropy_weight, legal)
        return penalty + terms
    mesh, sizes = check_mesh(mesh), (spread.attributes, spread.labels)
    # Sums are taken on the devices, so that a gradient is of the sum and is all-reduced as well.
    placed = [place_shards(shards, mesh, *sizes) for shards in (labelled, unlabelled)]
    weight = jnp.asarray(entropy_weight, parameters.weights.dtype)
    point, spread, legal = place((parameters, spread, legal), mesh)
    return penalty + _sum_on_mesh(point, *placed, spread, weight, legal, mesh)


@partial(jax.jit, static_argnames="mesh")
def _sum_on_mesh(parameters, labelled, unlabelled, spread, weight, legal, mesh: Mesh) -> Array:
    """`_sum_terms` of the shards of all devices."""

    def on_device(parameters, labelled, unlabelled, spread, weight, legal):
        shards = [own(labelled)], [own(unlabelled)]
        return lax.psum(_sum_terms(parameters, *shards, spread, weight, legal), DATA)

    specs = (EVERYWHERE, BY_DATA, BY_DATA, EVERYWHERE, EVERYWHERE, EVERYWHERE)
    run = on_devices(on_device, mesh, specs, EVERYWHERE)
    return run(parameters, labelled, unlabelled, spread, weight, legal)


def _sum_terms(
    parameters: Parameters,
    labelled: Sequence[Shard],
    unlabelled: Sequence[Shard],
    spread: Spread,
    entropy_weight: Scalar,
    legal: Legal | None,
) -> Array:
    """The objective without its penalty."""
    table = _table(parameters, spread)
    edges, start, stop = mask_forbidden(parameters, legal)
    total = jnp.zeros((), table.dtype)
    for shard in labelled:
        nodes = node_scores(table, start, stop, shard, spread.labels)
        where = (shard.segments, shard.num_sequences, "auto")
        log_z: Array = flat_log_partition(nodes, edges, *where)
        known = _known_labels(shard, spread.labels)
        # log Z(x; y): over the labellings that agree with the known labels, all others at −inf.
        score: Array = flat_log_partition(jnp.where(known, nodes, -jnp.inf), edges, *where)
        total += (sequence_weights(shard) * (log_z - score)).sum()
    for shard in unlabelled:
        nodes = node_scores(table, start, stop, shard, spread.labels)
        entropies: Array = flat_entropy(nodes, edges, shard.segments, shard.num_sequences, "auto")
        total += entropy_weight * (sequence_weights(shard) * entropies).sum()
    return total


def entropy_regularised_gradient(
    parameters: Parameters,
    labelled: Sequence[Shard],
    unlabelled: Sequence[Shard],
    spread: Spread,
    *,
    l2: Scalar = 0.0,
    entropy_weight: Scalar = 0.0,
    legal: Legal | None = None,
    entropy_gradient: EntropyGradient = "mann",
    mesh: Mesh | None = None,
) -> tuple[Float[Array, ""], Parameters]:
    r"""Value and gradient of `entropy_regularised_loss`, by hand-derived formulas throughout.

    Args:
        parameters: the point θ.
        labelled: shards of `make_shards`, here also with attributes of pairs of tokens.
        unlabelled: shards whose labels are not looked at.
        spread: how the learnt weights make the table.
        l2: λ.
        entropy_weight: γ.
        legal: transitions that may be used, or None for all.
        entropy_gradient: ``"mann"`` in O(n s²), ``"jiao"`` in O(n² s³), or ``"autodiff"``.
        mesh: as of `entropy_regularised_loss`.

    Returns:
        The value, and the gradient by all parameters.

    Example:
        >>> import numpy as np
        >>> from jaxseq.crf import Spread, lay_out, make_shards
        >>> from jaxseq.text import TemplateExtractor, Templates
        >>> extractor = TemplateExtractor(Templates(["word[0]"]))
        >>> features = extractor.fit_transform([["the", "dog"]])
        >>> shards = make_shards(lay_out(features.lengths, 1), features, extractor.attribute_count)
        >>> spread = Spread(attributes=extractor.attribute_count, labels=2)
        >>> point = spread.zeros()
        >>> value, gradient = entropy_regularised_gradient(
        ...     point, [], shards, spread, entropy_weight=1
        ... )
        >>> bool((gradient.weights == 0).all())  # the entropy is at its maximum
        True

    References:
        Mann & McCallum 2007; Jiao et al. 2006, equation 5. Certified against enumeration,
        ``jax.grad`` of `entropy_regularised_loss` and central differences in the tests.
    """
    if mesh is not None:
        parts = (labelled, spread, l2, legal, unlabelled, entropy_weight, entropy_gradient)
        return off_mesh(Objective(*parts, mesh=mesh)(parameters))
    table = _table(parameters, spread)
    edges, start, stop = mask_forbidden(parameters, legal)
    by_table = jnp.zeros(spread.shape, table.dtype)
    parts = []
    for number, shard in enumerate((*labelled, *unlabelled)):
        nodes = node_scores(table, start, stop, shard, spread.labels)
        kind = None if number < len(labelled) else entropy_gradient
        pairs = parameters.edge_weights
        part = lattice_gradient(nodes, edges, pairs, shard, entropy_weight, kind)
        by_table = weight_gradient(by_table, part.nodes, shard, spread.attributes, True)
        parts.append(part._replace(nodes=None))
    loss, *by_others = sum_parts(parts, parameters.edge_weights)
    gradient = Parameters(spread.from_table(by_table), *by_others)
    return finish([(loss, gradient)], parameters, spread, l2)


def _table(parameters: Parameters, spread: Spread) -> Array:
    """The table of scores, whose last row stands for absent attributes and is never learnt."""
    return spread.to_table(parameters.weights).at[-1].set(0)


def _known_labels(shard: Shard, labels: int) -> Array:
    """Whether a slot may have a label [r, w, s]; all of them on padding."""
    if shard.allowed is not None:
        return shard.allowed
    return (shard.gold[..., None] == jnp.arange(labels)) | (shard.gold < 0)[..., None]


Scoring = Callable[[list[Any], list[list[str]]], float]

SCORINGS: dict[str, Scoring] = {
    "span_f1": lambda gold, predicted: span_scores(gold, predicted).overall.f1,
    "accuracy": token_accuracy,
}


# ---------------------------------------------------------- choosing the weight by cross-validation


@dataclass(frozen=True)
class EntropyWeights:
    """The result of cross-validation: `scores` [weights, folds], a row for each of `weights`.

    Example:
        >>> chosen = EntropyWeights((0.0, 1.0), np.array([[0.5, 0.7], [0.8, 0.6]]))
        >>> chosen.best, chosen.means.round(3).tolist()
        (1.0, [0.6, 0.7])
    """

    weights: tuple[float, ...]
    scores: np.ndarray

    @property
    def means(self) -> np.ndarray:
        """Of each weight, over the folds."""
        return self.scores.mean(1)

    @property
    def best(self) -> float:
        """The weight with the best mean; the smallest, where several have it."""
        # In ascending order, as `argmax` takes the first of several.
        order = np.argsort(self.weights, kind="stable")
        means = np.where(np.isnan(self.means), -np.inf, self.means)
        return self.weights[int(order[np.argmax(means[order])])]


def choose_entropy_weight(
    tagger: CRFTagger,
    X: Iterable[Any],
    y: Sequence[Sequence[Any]],
    *,
    unlabelled: Iterable[Any],
    weights: Sequence[float] = (0.0, 0.1, 0.5, 1.0, 5.0, 10.0),
    folds: int = 5,
    scoring: str | Scoring | None = None,
    seed: int = 0,
    entropy_gradient: EntropyGradient = "mann",
    vocabulary: Vocabulary = "all",
    progress: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> EntropyWeights:
    """Cross-validate γ on the labelled sentences: no label is spent on the choice.

    For each fold the supervised model is trained once on the other folds, and each γ from there,
    with all the unlabelled sentences.

    Args:
        tagger: settings; it is cloned, not changed.
        X: labelled sentences.
        y: their labels, which must all be known.
        unlabelled: further sentences.
        weights: the γ to try.
        folds: parts of the labelled sentences, each held out once.
        scoring: ``"span_f1"``, ``"accuracy"``, or a function of gold and predicted labels; higher
            is better. None takes the first for labels of a chunk scheme, else the second.
        seed: of the folds.
        entropy_gradient: as in `CRFTagger.fit`.
        vocabulary: as in `CRFTagger.fit`.
        progress: show a progress bar; None shows it on a terminal.
        checkpoint: a file to keep scores in, to go on from after an interrupt. It stays, and gives
            the same choice again at once.

    Returns:
        `EntropyWeights`, whose `best` is for ``CRFTagger.fit(..., entropy_weight=…)``.

    Example:
        >>> import jaxseq
        >>> X = [["the", "dog"], ["a", "cat"], ["the", "cat"], ["a", "dog"]]
        >>> y = [["O", "B-X"]] * 4
        >>> tagger = jaxseq.CRFTagger(templates=["word[0]", "word[-1]"])
        >>> chosen = jaxseq.choose_entropy_weight(
        ...     tagger, X, y, unlabelled=[["the", "cow"]], weights=(0, 1), folds=2
        ... )
        >>> chosen.scores.shape
        (2, 2)
    """
    X, y, pool = list(X), list(y), check_unlabelled(unlabelled)
    gammas = _check_weights(weights)
    EntropyTerm.from_arguments(0.0, entropy_gradient)
    check_vocabulary(vocabulary)
    check_number("folds", folds, 2, numbers.Integral)
    check_number("seed", seed, 0, numbers.Integral)
    if len(X) != len(y):
        raise ValueError(f"y: expected labels for {len(X)} sentences, got {len(y)}")
    labels = set() if callable(scoring) else _check_known(y)
    scoring = usual_scoring(labels) if scoring is None else scoring
    score = _scoring(scoring)
    if folds > len(X):
        raise ValueError(f"folds: expected at most one per sentence, {len(X)}, got {folds}")
    about = (settings_of(tagger), gammas, int(folds), _scoring_name(scoring), int(seed), vocabulary)
    store = SearchStore(checkpoint, lambda: Fingerprint("entropy weight", about, X, y, pool))
    how = {"entropy_gradient": entropy_gradient, "vocabulary": vocabulary}
    # Folds of sentences; the unlabelled ones are the same in all.
    from sklearn.model_selection import KFold  # which takes a while to import

    splits = KFold(folds, shuffle=True, random_state=seed).split(X)
    scores = np.zeros((len(gammas), folds))
    total = folds * len(gammas)
    with store.alone(), progress_bar("cross-validation", total, progress) as tick:
        saved = store.load()
        known: dict[str, float] = {} if saved is None else saved.notes
        for fold, (train, held_out) in enumerate(splits):
            fit = _trainer(tagger, _pick(X, train), _pick(y, train), pool, how)
            tests, gold = _pick(X, held_out), _pick(y, held_out)
            for row, gamma in enumerate(gammas):
                name = f"{fold} {gamma!r}"
                if name not in known:  # of an earlier run that was interrupted
                    known[name] = float(score(gold, fit(gamma).predict(tests)))
                    store.save(known)
                scores[row, fold] = known[name]
                tick(fold * len(gammas) + row + 1, scores[row, fold])
    return EntropyWeights(gammas, scores)


def _trainer(
    tagger: CRFTagger, X: list[Any], y: list[Any], unlabelled: list[Any], how: dict[str, Any]
) -> Callable[[float], CRFTagger]:
    """Trainings on one fold, by γ, all from one supervised model."""

    @cache  # not before a score of this fold is missing, and then once
    def supervised() -> CRFTagger:
        return _uninterrupted(fresh(tagger).fit(X, y))

    def train(gamma: float) -> CRFTagger:
        if gamma == 0 or not unlabelled:
            return supervised()
        options = {"entropy_weight": gamma, "warm_start_from": supervised(), **how}
        return _uninterrupted(fresh(tagger).fit(X, y, unlabelled=unlabelled, **options))

    return train


def _uninterrupted(tagger: CRFTagger) -> CRFTagger:
    """The tagger; Ctrl-C ends a training early, whose score would not count."""
    if tagger.outcome_ is Outcome.INTERRUPTED:
        raise KeyboardInterrupt
    return tagger


def _check_weights(weights: Any) -> tuple[float, ...]:
    if not isinstance(weights, Iterable) or isinstance(weights, str | bytes):
        raise ValueError(f"weights: expected numbers to choose from, got {weights!r:.60}")
    listed = list(weights)
    for weight in listed:
        check_number("weights", weight, 0, numbers.Real)
    if not listed:
        raise ValueError("weights: expected at least one, got none")
    return tuple(float(weight) for weight in listed)


def _scoring(scoring: Any) -> Scoring:
    if callable(scoring):
        return cast(Scoring, scoring)
    if not isinstance(scoring, str) or scoring not in SCORINGS:
        raise ValueError(
            f"scoring: expected one of {list(SCORINGS)} or a function, got {scoring!r}"
        )
    return SCORINGS[scoring]


def _check_known(y: list[Any]) -> set[str]:
    """The labels; ValueError on a token that has none to be scored by."""
    for sentence, labels in enumerate(y):
        for token, label in enumerate(labels):
            if not isinstance(label, str):
                raise ValueError(
                    f"y[{sentence}][{token}]: expected a known label to score by, got {label!r:.60}"
                )
    return {label for labels in y for label in labels}


def usual_scoring(labels: Iterable[str]) -> str:
    """How to score: by spans if the labels are of a chunk scheme, by tokens if not.

    Example:
        >>> usual_scoring(["O", "B-NP", "I-NP"]), usual_scoring(["DT", "NN"])
        ('span_f1', 'accuracy')
    """
    labels = set(labels)
    # Any scheme will do: "O" alone is a label of all of them, and says nothing.
    chunks = any(all(parse_tag(scheme, tag) for tag in labels) for scheme in SCHEMES)
    return "span_f1" if chunks and labels != {"O"} else "accuracy"


def _scoring_name(scoring: Any) -> str:
    """The same in every process."""
    # The text of a function has its address in it, which is another in every process.
    name = getattr(scoring, "__qualname__", None)
    return repr(scoring) if name is None else f"{scoring.__module__}.{name}"


def _pick(items: list[Any], chosen: np.ndarray) -> list[Any]:
    return [items[index] for index in chosen.tolist()]
