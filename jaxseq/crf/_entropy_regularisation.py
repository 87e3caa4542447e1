r"""The semi-supervised objective as pure functions, for searches of one's own.

.. math::
    L(\theta) = \sum_{(x, y)} -\log p_\theta(y|x) + \tfrac{\lambda}{2} \|\theta\|^2
                + \gamma \sum_{x \in U} H(p_\theta(\cdot|x))

to be minimised: the negative of what Jiao et al. 2006 maximise. `Objective` is the same with the
work spread over cores and its tables kept from call to call, which is what `CRFTagger.fit` runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Float

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
from jaxseq.crf._score_gradient import EntropyGradient, lattice_gradient, sequence_weights
from jaxseq.crf._shards import Shard, place_shards
from jaxseq.lattice import flat_entropy, flat_log_partition, vdot
from jaxseq.parallel import BY_DATA, DATA, EVERYWHERE, check_mesh, off_mesh, place

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
