r"""The semi-supervised objective as pure functions, for searches of one's own.

.. math::
    L(\theta) = \sum_{(x, y)} -\log p_\theta(y|x) + \tfrac{\lambda}{2} \|\theta\|^2
                + \gamma \sum_{x \in U} H(p_\theta(\cdot|x))

to be minimised: the negative of what Jiao et al. 2006 maximise. `Objective` is the same with the
work spread over cores and its tables kept from call to call, which is what `CRFTagger.fit` runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxseq.batch import _core as lattices
from jaxseq.learn._corpus import Shard
from jaxseq.learn._entropy_derivations import EntropyGradient
from jaxseq.learn._lattices import entropy_gradient as entropy_by_scores
from jaxseq.learn._lattices import score_gradient, sequence_weights
from jaxseq.learn._objective import finish, node_scores, sum_parts, weight_gradient
from jaxseq.learn._parameters import Legal, Parameters, Spread, mask_forbidden

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
) -> Float[Array, ""]:
    r"""Negative log-likelihood of labelled shards + l2/2 ‖θ‖² + γ · entropy of unlabelled ones.

    Differentiable by `jax.grad` (whose rule for the entropy is Mann & McCallum's) and free of
    effects. Shards with attributes of pairs of tokens are not for this function, but for
    `entropy_regularised_gradient`.

    Args:
        parameters: the point θ.
        labelled, unlabelled: of `make_shards`.
        spread: how the learnt weights make the table.
        l2: λ.
        entropy_weight: γ.
        legal: transitions that may be used, or None for all.

    Cost: O(n s²) time a sentence.

    Example:
        >>> import numpy as np, jax
        >>> from jaxseq.learn import EncodedLabels, Spread, lay_out, make_shards
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
    table = _table(parameters, spread)
    edges, start, stop = mask_forbidden(parameters, legal)
    squares = [jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(parameters)]
    total = l2 / 2 * jnp.stack(squares).sum()
    for shard in (*labelled, *unlabelled):
        if shard.edge_ids is not None:
            raise ValueError(
                "shards: expected none with attributes of pairs of tokens, got one; "
                "entropy_regularised_gradient takes them"
            )
    for shard in labelled:
        nodes = node_scores(table, start, stop, shard, spread.labels)
        where = (shard.segments, shard.num_sequences, "auto")
        log_z: Array = lattices.log_partition(nodes, edges, *where)
        known = _known_labels(shard, spread.labels)
        score: Array = lattices.log_partition(jnp.where(known, nodes, -jnp.inf), edges, *where)
        total += (sequence_weights(shard) * (log_z - score)).sum()
    for shard in unlabelled:
        nodes = node_scores(table, start, stop, shard, spread.labels)
        entropies: Array = lattices.entropy(
            nodes, edges, shard.segments, shard.num_sequences, "auto"
        )
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
) -> tuple[Float[Array, ""], Parameters]:
    r"""Value and gradient of `entropy_regularised_loss`, by hand-derived formulas throughout.

    Args:
        parameters, labelled, unlabelled, spread, l2, entropy_weight, legal: see there.
        entropy_gradient: ``"mann"`` in O(n s²), ``"jiao"`` in O(n² s³), or ``"autodiff"``.

    Returns:
        The value, and the gradient by all parameters.

    Example:
        >>> import numpy as np
        >>> from jaxseq.learn import Spread, lay_out, make_shards
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
    table = _table(parameters, spread)
    edges, start, stop = mask_forbidden(parameters, legal)
    by_table = jnp.zeros(spread.shape, table.dtype)
    parts = []
    for number, shard in enumerate((*labelled, *unlabelled)):
        nodes = node_scores(table, start, stop, shard, spread.labels)
        pair_weights = None if shard.edge_ids is None else parameters.edge_weights
        if number < len(labelled):
            found = score_gradient(nodes, edges, pair_weights, shard)
        else:
            found = entropy_by_scores(
                nodes, edges, pair_weights, shard, entropy_weight, entropy_gradient
            )
        by_table = weight_gradient(by_table, found.nodes, shard, spread.attributes, True)
        parts.append(found._replace(nodes=None))
    loss, *others = sum_parts(parts, parameters.edge_weights)
    gradient = Parameters(spread.from_table(by_table), *others)
    return finish([(loss, gradient)], parameters, spread, l2)


def _table(parameters: Parameters, spread: Spread) -> Array:
    """The table of scores, whose last row stands for absent attributes and is never learnt."""
    return spread.to_table(parameters.weights).at[-1].set(0)


def _known_labels(shard: Shard, labels: int) -> Array:
    """Whether a slot may have a label [r, w, s]; all of them on padding."""
    if shard.allowed is not None:
        return shard.allowed
    return (shard.gold[..., None] == jnp.arange(labels)) | (shard.gold < 0)[..., None]
