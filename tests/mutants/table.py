"""The table of mutants: one wrong sign, term, position or axis in each hand-derived formula.

A check that would not notice these would prove nothing. Constants that cancel by design (the
centring of the lattices) are not mutated: changing them is no mistake.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["sign", "dropped term", "off-by-one position", "swapped axes"]
SIGN: Kind = "sign"
DROPPED: Kind = "dropped term"
POSITION: Kind = "off-by-one position"
AXES: Kind = "swapped axes"


@dataclass(frozen=True)
class Mutant:
    """One wrong library.

    Attributes:
        module: below ``jaxseq``, such as ``lattice._entropy``, or a C++ file, ``native/entropy.h``.
        function: see `tests.mutants.library_copy.replace_in_function`.
        before: the snippet to replace.
        after: what replaces it.
        kind: of mistake.
        quantity: the name of the quantity that must notice.
        by: whether through its closed form, or through `jax.grad` of what it is derived from.
        method: the engine to run.
    """

    module: str
    function: str
    before: str
    after: str
    kind: Kind
    quantity: str
    by: Literal["hand", "grad"] = "hand"
    method: str = "log"

    @property
    def is_in_cpp(self) -> bool:
        """Whether a C++ source is changed."""
        return "/" in self.module

    def __str__(self) -> str:
        return f"{self.module} {self.function}: {self.before} → {self.after or 'nothing'}"


def _mutants(
    module: str,
    function: str,
    quantity: str,
    *changes: tuple[Kind, str, str],
    by: Literal["hand", "grad"] = "hand",
    method: str = "log",
) -> tuple[Mutant, ...]:
    """Several mutants of one function, each a kind, a snippet, and what replaces it."""
    return tuple(
        Mutant(module, function, before, after, kind, quantity, by, method)
        for kind, before, after in changes
    )


MUTANTS: tuple[Mutant, ...] = (
    # Conditionals, and both lattices of an additive functional.
    *_mutants(
        "lattice._propagate", "conditionals", "entropy_lattices",
        (AXES, "edge_marginals.sum(1, keepdims=True)", "edge_marginals.sum(2, keepdims=True)"),
    ),
    *_mutants(
        "lattice._propagate", "conditionals", "mann_entropy_gradient",
        (AXES, "edge_marginals.sum(2, keepdims=True)", "edge_marginals.sum(1, keepdims=True)"),
    ),
    *_mutants(
        "lattice._propagate", "left_lattice", "covariance_product",
        (SIGN, "(value + node)[:, None] + edge", "(value - node)[:, None] + edge"),
    ),
    *_mutants(
        "lattice._propagate", "left_lattice", "entropy_lattices",
        (DROPPED, "(value + node)[:, None] + edge", "(value + node)[:, None]"),
    ),
    *_mutants(
        "lattice._propagate", "left_lattice", "covariance_product",
        (DROPPED, "(value + node)[:, None] + edge", "node[:, None] + edge"),
        (AXES, "(value + node)[:, None] + edge", "(value + node)[None, :] + edge"),
        (POSITION, "node_values[:-1]", "node_values[1:]"),
    ),
    *_mutants(
        "lattice._propagate", "right_lattice", "entropy_lattices",
        (SIGN, "edge + value + node", "edge - value + node"),
    ),
    *_mutants(
        "lattice._propagate", "right_lattice", "covariance_product",
        (DROPPED, "edge + value + node", "edge + value"),
        (AXES, "edge + value + node", "edge + (value + node)[:, None]"),
        (POSITION, "node_values[1:]", "node_values[:-1]"),
    ),
    # The covariance times a vector.
    *_mutants(
        "lattice._propagate", "covariance_from_marginals", "covariance_product",
        (
            SIGN,
            "at_left, at_right = left + node_tangent",
            "at_left, at_right = left - node_tangent",
        ),
        (DROPPED, "left + at_right, axis=1", "at_right, axis=1"),
        (DROPPED, "+ edge_tangent +", "+"),
        (POSITION, "at_right[1:, None, :]", "at_right[:-1, None, :]"),
        (AXES, "at_left[:-1, :, None]", "at_left[:-1, None, :]"),
    ),
    *_mutants(
        "lattice._propagate", "weigh_centred", "mann_entropy_gradient",
        (SIGN, "values - (weights", "values + (weights"),
    ),
    # The derivative rules of log Z and of the marginals.
    *_mutants(
        "lattice._marginals", "row_marginals.defjvp", "covariance_product",
        (
            SIGN,
            "edge_marginals, node_tangent, edge_tangent, parallel",
            "edge_marginals, node_tangent, -edge_tangent, parallel",
        ),
        by="grad",
    ),
    *_mutants(
        "lattice._marginals", "row_log_partition.defjvp", "marginals",
        (DROPPED, "jnp.sum(by_node * node_tangent) +", ""),
        (SIGN, "+ jnp.sum(by_edge", "- jnp.sum(by_edge"),
        by="grad",
    ),
    # Entropy, its lattices, Mann's gradient, and the derivative rule made of it.
    *_mutants(
        "lattice._entropy", "lattices_from_marginals", "entropy_lattices",
        (SIGN, "-safe_log(backward)", "safe_log(backward)"),
    ),
    *_mutants(
        "lattice._entropy", "lattices_from_marginals", "mann_entropy_gradient",
        (
            AXES,
            "to_right(forward, nothing, -safe_log(forward))",
            "to_right(forward, nothing, -safe_log(forward).swapaxes(1, 2))",
        ),
    ),
    *_mutants(
        "lattice._entropy", "gradient_from_marginals", "mann_entropy_gradient",
        (SIGN, "-safe_log(node_marginals) + left", "safe_log(node_marginals) + left"),
        (DROPPED, "+ left + right", "+ left"),
        (DROPPED, "-safe_log(edge_marginals) + left", "left"),
        (POSITION, "right[1:, None, :]", "right[:-1, None, :]"),
        (AXES, "left[:-1, :, None]", "left[:-1, None, :]"),
    ),
    *_mutants(
        "lattice._entropy", "step_entropies", "entropy",
        (SIGN, "return -(", "return ("),
    ),
    *_mutants(
        "lattice._entropy", "row_entropy.defjvp", "mann_entropy_gradient",
        (DROPPED, "jnp.sum(by_node * node_tangent) +", ""),
        (SIGN, "+ jnp.sum(by_edge", "- jnp.sum(by_edge"),
        by="grad",
    ),
    *_mutants(
        "lattice._entropy", "_span_entropy", "∂ span_entropy",
        (POSITION, "position[:-1] >= start", "position[:-1] > start"),
        by="grad",
    ),
    *_mutants(
        "lattice._entropy", "_rest_entropy", "rest_entropy",
        (POSITION, "right[positions[last], safe[last]]", "right[positions[0], safe[0]]"),
    ),
    *_mutants(
        "lattice._entropy", "_rest_entropy", "∂ rest_entropy",
        (DROPPED, "total = left[positions[0], safe[0]] +", "total ="),
        by="grad",
    ),
    # Jiao's nested program.
    *_mutants(
        "lattice._entropy", "row_gradient", "jiao_entropy_gradient",
        (
            SIGN,
            "seen_from_left, seen_from_right = node_scores + outgoing",
            "seen_from_left, seen_from_right = node_scores - outgoing",
        ),
        (
            AXES,
            "right_of_a + matmul(segment, seen_from_left[b])",
            "right_of_a + matmul(segment.T, seen_from_left[b])",
        ),
        (POSITION, "lax.fori_loop(a + 1, length,", "lax.fori_loop(a + 2, length,"),
        (POSITION, "left_mass.at[b].add(arriving)", "left_mass.at[b - 1].add(arriving)"),
        (DROPPED, "(to_left + right + outgoing)", "(to_left + right)"),
        (SIGN, "+ scores + to_right[t + 1]", "- scores + to_right[t + 1]"),
        (AXES, "to_left[t][:, None]", "to_left[t][None, :]"),
    ),
    # The full covariance.
    *_mutants(
        "lattice._marginals", "feature_covariance", "feature_covariance",
        (DROPPED, "+ joint.transpose(2, 3, 0, 1)", ""),
        (SIGN, "(2, 3, 0, 1) - same", "(2, 3, 0, 1) + same"),
        (POSITION, "edge, segments[:, 1:])", "edge, segments[:, :-1])"),
        (POSITION, "edge, segments[:-1, 1:],", "edge, segments[:-1, :-1],"),
        (AXES, "tij,utjk,ukl->tijukl", "tij,utkj,ukl->tijukl"),
        (SIGN, "nodes_edges - jnp", "nodes_edges + jnp"),
    ),
    # Marginals, the hand-derived gradient of log Z, in both engines.
    *_mutants(
        "lattice._engines", "scaled_forward_backward", "marginals",
        (POSITION, "scores.nodes[1:] * betas[1:]", "scores.nodes[1:] * betas[:-1]"),
        (DROPPED, "[:, None] * betas", "[:, None]"),
        (AXES, "after[:, None, :]", "after[:, :, None]"),
        method="scaled",
    ),
    *_mutants(
        "lattice._engines", "_scaled_backward", "marginals",
        (AXES, "matmul(edge, factor * beta)", "matmul(edge.T, factor * beta)"),
        method="scaled",
    ),
    *_mutants(
        "lattice._engines", "log_forward_backward", "marginals",
        (SIGN, "nodes[1:] + log_betas[1:]", "nodes[1:] - log_betas[1:]"),
        (POSITION, "nodes[1:] + log_betas[1:]", "nodes[:-1] + log_betas[1:]"),
        (DROPPED, "[:-1, :, None] + edges +", "[:-1, :, None] +"),
    ),
    *_mutants(
        "lattice._engines", "log_backward", "marginals",
        (AXES, "logsumexp(edge + node + log_beta, 1)", "logsumexp(edge + node + log_beta, 0)"),
    ),
    # The batch kernels in scaled space.
    *_mutants(
        "lattice._scaled", "marginals", "batch_marginals",
        (DROPPED, "share * (weight * link)", "share * weight"),
        (AXES, "matmul(factors.edges, after)", "matmul(factors.edges.T, after)"),
        (DROPPED, "inverse(raw.max(0)) * factor", "inverse(raw.max(0))"),
        method="scaled",
    ),
    *_mutants(
        "lattice._scaled", "entropy", "batch_entropy_gradient",
        (SIGN, "(factors.edge_top - edges) * matrix", "(edges - factors.edge_top) * matrix"),
        (AXES, "[surprise.T, matrix.T]", "[surprise, matrix.T]"),
        (DROPPED, "+ value + _log_or_zero(total)", "+ _log_or_zero(total)"),
        (DROPPED, "scale * raw + node * coming", "scale * raw"),
        (SIGN, "(coming + _log_or_zero(top) + value)", "(coming + _log_or_zero(top) - value)"),
        (AXES, "products[:s, s:] + products[s:, :s]", "products[:s, s:] + products[s:, :s].T"),
        (DROPPED, " + surprise * products[:s, :s]", ""),
        method="scaled",
    ),
    *_mutants(
        "lattice._scaled", "entropy", "batch_entropy",
        (DROPPED, "mean + _log_or_zero(total)", "mean"),
        method="scaled",
    ),
    *_mutants(
        "lattice._scaled", "covariance", "batch_covariance_product",
        (POSITION, "factors.linked[1:]", "factors.linked[:-1]"),
        (AXES, "ij,tic->tjc", "ji,tic->tjc"),
        (SIGN, "ahead_of).sum(0) + value", "ahead_of).sum(0) - value"),
        (DROPPED, "products * matrix + counts * weighted", "products * matrix"),
        (DROPPED, "total = seen + ahead_of", "total = seen"),
        method="scaled",
    ),
    # The same in C++.
    *_mutants(
        "native/forward_backward.h", "run_back", "batch_marginals",
        (DROPPED, "share = choose(linked, scale * group->weights[t], fill(0))", "share = scale"),
        (AXES, "multiply(edges->back,", "multiply(edges->ahead,"),
        (DROPPED, "factor[i] *= raw[i] * over_top", "factor[i] = raw[i] * over_top"),
        (POSITION, "group->linked[t + 1]", "group->linked[t]"),
        method="native",
    ),
    *_mutants(
        "native/entropy.h", "entropy_ahead", "batch_entropy_gradient",
        (AXES, "edges->surprise_ahead", "edges->surprise_back"),
        (DROPPED, " + surprise[j];", ";"),
        method="native",
    ),
    *_mutants(
        "native/entropy.h", "entropy_ahead", "batch_entropy",
        (DROPPED, "(seen[j] + log_total)", "seen[j]"),
        method="native",
    ),
    *_mutants(
        "native/entropy.h", "entropy_back", "batch_entropy_gradient",
        (DROPPED, " + both * coming[i]", ""),
        (SIGN, "log_top + surprise[i]", "log_top - surprise[i]"),
        (SIGN, "share * (seen[i] - alpha[i] * mean)", "share * (seen[i] + alpha[i] * mean)"),
        (POSITION, "surprise + s, raw", "surprise, raw"),
        method="native",
    ),
    *_mutants(
        "native/entropy.h", "entropy_back", "batch_entropy",
        (DROPPED, "mean + log_of(total)", "mean"),
        method="native",
    ),
    # Divergences.
    *_mutants(
        "lattice._entropy", "_cross_entropy", "∂ cross_entropy / ∂p",
        (SIGN, "- node_terms - edge_terms", "- node_terms + edge_terms"),
        by="grad",
    ),
    *_mutants(
        "lattice._entropy", "_cross_entropy", "∂ cross_entropy / ∂q",
        (DROPPED, "jnp.where(possible, log_z, 0) - node_terms", "-node_terms"),
        by="grad",
    ),
    *_mutants(
        "lattice._entropy", "_kl_divergence", "∂ kl_divergence / ∂p",
        (SIGN, "crossed - jnp", "crossed + jnp"),
        by="grad",
    ),
    # The penalty on expected shares, and its gradient in two passes.
    *_mutants(
        "crf._expectation_gradient", "share_penalty", "∂ share_penalty",
        (SIGN, "-jnp.where(reached, ratio, 0)", "jnp.where(reached, ratio, 0)"),
        (DROPPED, "2 * gap", "gap"),
        (AXES, "penalty.squared[:, None]", "penalty.squared[:1, None]"),
    ),
    *_mutants(
        "crf._expectation_gradient", "token_values", "∂ share_penalty",
        (POSITION, "marks.ids, None", "jnp.roll(marks.ids, 1, 0), None"),
    ),
    *_mutants(
        "crf._expectation_gradient", "expectation_gradient", "∂ share_penalty",
        (DROPPED, "values, slopes.pairs.sum(0))", "values, 0 * slopes.pairs.sum(0))"),
        (AXES, "values, slopes.pairs.sum(0))", "values, slopes.pairs.sum(0).T)"),
        (SIGN, "weights, values, slopes", "weights, -values, slopes"),
    ),
    *_mutants(
        "crf._expectation_gradient", "expected_counts", "∂ share_penalty",
        (POSITION, "by_slot, marks.ids", "by_slot, jnp.roll(marks.ids, -1, 0)"),
        (AXES, "by_pair[None]", "by_pair.T[None]"),
    ),
)  # fmt: skip
