r"""The E-step and products with its Jacobian by kernels in C++, for a corpus on the cores of a CPU.

As in `_em_products`, for frozen transitions and positive free parameters: expected counts move by
their covariance with :math:`S = \sum_t f(y_t, x_t)`, f the change of log Θ. Here the way back goes
by what the way there has left, as a smoother goes back over a filter. With α the forward messages,
``mass_t = Aᵀ α_{t-1}`` and ``P(y_{t-1} = i | y_t = j, x_1 … x_t) = α_{t-1}(i) A(i,j) / mass_t(j)``,

    γ_{t-1} = α_{t-1} ⊙ A (γ_t / mass_t)                  P(y_{t-1} | x)
    L_t = f_t + Aᵀ(α_{t-1} ⊙ L_{t-1}) / mass_t            E[S up to t | y_t]
    H_{t-1} = α_{t-1} ⊙ A ((γ_t ⊙ f_t + H_t) / mass_t)    γ ⊙ (E[S after t − 1 | y_{t-1}] − E[S])

from H_n = −E[S] γ_n on, and γ_t moves by ``γ_t ⊙ L_t + H_t``: three arrays a token are read, α,
1/mass and γ, where messages of both directions would be five. As each way back is a mean over
probabilities, errors do not grow, and no backward message can underflow: of a γ below the smallest
number nothing but itself is lost. So it is enough that forward messages are all there
(`_is_certified`).

References:
    Rabiner 1989; Rauch, Tung & Striebel 1965 for going back over a filter.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np

from jaxseq.chain._engines import smallest_trusted
from jaxseq.learn._em_corpus import WordCorpus
from jaxseq.learn._em_groups import aligned_zeros, make_groups
from jaxseq.learn._em_kernels import NAMES, WIDE, Kernels, Messages
from jaxseq.models._hmm import EVENT_AXES, Multinomials
from jaxseq.native._build import CannotBuild

Moves = dict[str, np.ndarray]
"""Tangents, or changes of counts, by family; of initial and emission."""


class _Families(NamedTuple):
    """As `Multinomials`, of NumPy's arrays in float64."""

    initial: np.ndarray
    transition: np.ndarray
    emission: np.ndarray


class WordKernels:
    """Expected counts of a corpus by the kernels, and their Jacobian, on as many threads as the
    corpus has cores; of any number of them the same, to the bit.

    Args:
        corpus: of `word_corpus`, with at least one sequence.
        num_labels: s.

    Raises:
        CannotBuild: where there are no kernels.

    Cost: O(N s) on the host.

    Example:
        >>> from jaxseq.learn import word_corpus
        >>> point = Multinomials(np.ones(2), np.ones((2, 2)), np.array([[3.0, 1.0], [1.0, 3.0]]))
        >>> kernels = find_kernels(word_corpus([[0, 1], [1]], 2), 2)  # None without a compiler
        >>> found = kernels and kernels.linearise(point, np.float64)
        >>> found is None or found[0].emission.round(6).tolist() == [[0.75, 0.25], [0.5, 1.5]]
        True
    """

    def __init__(self, corpus: WordCorpus, num_labels: int):
        groups = make_groups(corpus, num_labels)
        self.kernels = Kernels(groups, num_labels, corpus.num_words, corpus.cores)
        self._spare: dict[np.dtype, list[list[Messages]]] = {dtype: [] for dtype in NAMES}

    def linearise(
        self, parameters: Multinomials, dtype: Any, *, with_transitions: bool = True
    ) -> tuple[Multinomials, NativeProduct] | None:
        """Expected counts in float64, and the product with their Jacobian.

        Args:
            parameters: Θ̃; of families that will move, positive.
            dtype: of products, float32 or float64.
            with_transitions: whether the counts of transitions are wanted; else they are None.

        Returns:
            Counts, and the product: of tangents by family (not of transitions) the change of
            counts, in float64. It holds for this point as long as it is kept. None if something
            was, or would be, lost to underflow.

        Cost: an E-step and, of each product, about a quarter of one; O(N s) memory is held.
        """
        dtype = np.dtype(dtype)
        tilde = _Families(*(np.asarray(family, np.float64) for family in parameters))
        theta = _Families(*(_normalise(*pair) for pair in zip(tilde, EVENT_AXES)))
        labels, kernels = len(theta.initial), self.kernels
        factors = aligned_zeros((kernels.rows, kernels.columns), np.float64)
        tops = theta.emission.max(1, keepdims=True)
        factors[:-1, :labels] = theta.emission / np.where(tops > 0, tops, 1)
        tables = [theta.initial, *map(np.ascontiguousarray, (theta.transition, theta.transition.T))]
        spare = self._spare[dtype]
        kept = spare.pop() if spare else [Messages(p.groups, labels, dtype) for p in kernels.parts]
        with kernels.lock:
            lowest = kernels.linearise([*tables, factors], kept, with_transitions)
            sums = [part.sums[WIDE] for part in kernels.parts]
            emission = _add_up([counts[:-1, :labels] for counts, _ in sums])
            initial = _add_up([firsts for _, firsts in sums])
            pairs: Any = _add_up([p.pairs for p in kernels.parts]) if with_transitions else None
        if not _is_certified(theta, factors, lowest, dtype):
            spare.append(kept)
            return None
        product = NativeProduct(kernels, tilde, theta.transition.astype(dtype), kept, dtype)
        weakref.finalize(product.calls, spare.append, kept).atexit = False
        return Multinomials(*cast(Any, (initial, pairs, emission))), product


class NativeProduct:
    """The product with the Jacobian at a point: see `WordKernels.linearise`."""

    def __init__(
        self,
        kernels: Kernels,
        tilde: _Families,
        transition: np.ndarray,
        kept: list[Messages],
        dtype: np.dtype,
    ):
        self._parts, self._lock, self._dtype = kernels.parts, kernels.lock, dtype
        self._slopes = _LogSlopes(tilde)
        tables = [np.ascontiguousarray(table) for table in (transition, transition.T)]
        self._by_word = aligned_zeros((kernels.rows, kernels.columns), dtype)
        self._first = np.zeros(len(transition), dtype)
        self.calls = kernels.products(tables, kept, self._by_word)

    def __call__(self, moves: Moves) -> Moves:
        with self._lock:
            return self._product(moves)

    def _product(self, moves: Moves) -> Moves:
        labels = len(self._first)
        if "emission" in moves:
            self._by_word[:-1, :labels] = self._slopes("emission", moves["emission"])
        else:
            self._by_word[:] = 0
        first = None
        if "initial" in moves:
            self._first[:] = self._slopes("initial", moves["initial"])
            first = self._first
        self.calls(first)
        sums = [part.sums[self._dtype] for part in self._parts]
        found = {}
        if "emission" in moves:
            found["emission"] = _add_up([counts[:-1, :labels] for counts, _ in sums])
        if "initial" in moves:
            found["initial"] = _add_up([firsts for _, firsts in sums])
        return found

    def on_flat(self, scale: np.ndarray, number: int) -> Callable[[np.ndarray], np.ndarray]:
        """The product of emissions alone, on vectors Θ̃/σ [v·s], divided by `number`; of and in the
        products' dtype."""
        _, over, over_sum = self._slopes.over["emission"]
        shares = np.broadcast_to(over_sum, over.shape).ravel()
        weight = np.broadcast_to(1 / (scale * number), over.size)
        return self.calls.on_flat(scale * over.ravel(), scale * shares, weight)


class _LogSlopes:
    """As `_em_products.log_slopes`, with what it divides by inverted once a point."""

    def __init__(self, tilde: _Families):
        self.over = {
            name: (axis, 1 / family, 1 / family.sum(axis, keepdims=True))
            for name, axis, family in zip(Multinomials._fields, EVENT_AXES, tilde)
            if name != "transition" and (family > 0).all()
        }

    def __call__(self, name: str, move: np.ndarray) -> np.ndarray:
        axis, over, over_sum = self.over[name]
        return move * over - move.sum(axis, keepdims=True) * over_sum


def _add_up(parts: list[np.ndarray]) -> np.ndarray:
    total = parts[0].astype(np.float64)
    for part in parts[1:]:
        total += part
    return total


def _normalise(family: np.ndarray, axis: int) -> np.ndarray:
    total = family.sum(axis, keepdims=True)
    return family / np.where(total > 0, total, 1)


def _is_certified(theta: _Families, factors: np.ndarray, lowest: float, dtype: Any) -> bool:
    """Whether no entry of a forward message was lost, as in `_em_lattice.is_certified`, and none
    is by narrowing."""
    families = (theta.initial, theta.transition, factors)
    smallest = [np.where(family > 0, family, 1).min() for family in families]
    step = min(smallest[0], smallest[1]) * smallest[2]
    return bool(lowest * step >= smallest_trusted(dtype))


def find_kernels(corpus: WordCorpus, num_labels: int) -> WordKernels | None:
    """The kernels of a corpus, or None where there are none."""
    try:
        return WordKernels(corpus, num_labels)
    except CannotBuild:
        return None
