r"""The E-step and products with its Jacobian by kernels in C, for a corpus on the cores of a CPU.

As in `_em_products`, for frozen transitions and positive free parameters: expected counts move by
their covariance with :math:`S = \sum_t f(y_t, x_t)`, f the change of log Θ. Here the way back goes
by what the way there has left, as a smoother goes back over a filter. With α the forward messages,
``mass_t = Aᵀ α_{t-1}`` and ``P(y_{t-1} = i | y_t = j, x_1…x_{t-1}) = α_{t-1}(i) A(i,j) / mass_t(j)``,

    γ_{t-1} = α_{t-1} ⊙ A (γ_t / mass_t)                                      P(y_{t-1} | x)
    L_t = f_t + Aᵀ(α_{t-1} ⊙ L_{t-1}) / mass_t                                E[S up to t | y_t]
    H_n = −E[S] γ_n,   H_{t-1} = α_{t-1} ⊙ A ((γ_t ⊙ f_t + H_t) / mass_t)     γ·(E[S after | y] − E[S])

and γ_t moves by ``γ_t ⊙ L_t + H_t``: three arrays a token are read, α, 1/mass and γ, where messages
of both directions would be five. As each way back is a mean over probabilities, errors do not grow,
and no backward message can underflow: of a γ below the smallest number nothing but itself is lost.
So it is enough that forward messages are all there (`_is_certified`).
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from jaxseq.chain._engines import smallest_trusted
from jaxseq.learn._em_corpus import WordCorpus
from jaxseq.learn._em_groups import WIDTH, Groups, aligned_zeros, make_groups
from jaxseq.learn._em_products import log_slopes
from jaxseq.models._hmm import EVENT_AXES, Multinomials
from jaxseq.native._build import CannotBuild, load_library

Moves = dict[str, np.ndarray]
"""Tangents, or changes of counts, by family; of initial and emission."""

_NAMES = {np.dtype(np.float32): "single", np.dtype(np.float64): "wide"}
_VECTOR = 64


class _Places(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("groups", "labels", "columns", "words_end")),
        *((name, ctypes.c_void_p) for name in ("first", "words", "begins", "allowed")),
    )  # fmt: skip


class _Point(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in ("transition", "transposed", "alpha", "over_mass", "gamma")
    )


class _PointAndCounts(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in (
            "initial", "transition", "transposed", "factors", "alpha", "over_mass", "gamma",
            "counts", "firsts", "pairs", "scratch",
        )
    )  # fmt: skip


def _at(array: np.ndarray | None) -> int | None:
    return None if array is None else array.ctypes.data


class _Messages:
    """What linearising keeps on one core: α, 1/mass and γ of every slot, in one dtype."""

    def __init__(self, groups: Groups, labels: int, dtype: np.dtype):
        shape = (int(groups.first[-1]), labels, WIDTH)
        self.arrays = [aligned_zeros(shape, dtype) for _ in range(3)]


class _Core:
    """The sequences of one core, and room for what is computed of them."""

    def __init__(self, groups: Groups, labels: int, num_words: int):
        self.groups, self._labels = groups, labels
        self.columns = -(-labels // WIDTH) * WIDTH
        self.rows = num_words + 1  # the last for what is no word
        vectors = (2 + 2 * groups.longest + labels) * labels
        self.scratch = aligned_zeros((vectors * _VECTOR,), np.uint8)
        self.pairs = np.zeros((labels, labels))
        self.places = _Places(
            len(groups.first) - 1, labels, self.columns, self.rows,
            *map(_at, (groups.first, groups.words, groups.begins, groups.allowed)),
        )  # fmt: skip
        self.place = ctypes.addressof(self.places)
        self.sums = {
            dtype: (aligned_zeros((self.rows, self.columns), dtype), np.zeros(labels, dtype))
            for dtype in _NAMES
        }

    def linearise(
        self, library: Any, theta: list[np.ndarray], messages: _Messages, with_pairs: bool
    ) -> float:
        """Fill `messages` and the sums; the smallest positive entry of a forward message."""
        counts, firsts = self.sums[np.dtype(np.float64)]
        pairs = self.pairs if with_pairs else None
        arrays = (*theta, *messages.arrays, counts, firsts, pairs, self.scratch)
        given = _PointAndCounts(*map(_at, arrays))
        run = getattr(library, f"hmm_linearise_{_NAMES[messages.arrays[0].dtype]}")
        return run(self.place, ctypes.addressof(given))


class WordKernels:
    """Expected counts of a corpus by the kernels, and their Jacobian, a core's share a thread.

    Args:
        corpus: of `word_corpus`, with at least one sequence.
        num_labels: s.

    Raises:
        CannotBuild: where there are no kernels.

    Cost: O(N s) on the host.

    Example:
        >>> from jaxseq.learn import word_corpus
        >>> point = Multinomials(np.ones(2), np.ones((2, 2)), np.array([[3.0, 1.0], [1.0, 3.0]]))
        >>> kernels = WordKernels(word_corpus([[0, 1], [1]], 2), 2)  # doctest: +SKIP
        >>> counts, product = kernels.linearise(point, np.float64)  # doctest: +SKIP
        >>> counts.emission.tolist()  # doctest: +SKIP
        [[0.75, 0.25], [0.5, 1.5]]
    """

    def __init__(self, corpus: WordCorpus, num_labels: int):
        self._library = _load()
        self._num_words = corpus.num_words
        self._cores = [
            _Core(groups, num_labels, corpus.num_words) for groups in make_groups(corpus, num_labels)
        ]
        self._threads = ThreadPoolExecutor(max(len(self._cores) - 1, 1))
        self._spare: dict[np.dtype, list[list[_Messages]]] = {dtype: [] for dtype in _NAMES}

    def linearise(
        self, parameters: Multinomials, dtype: Any, *, with_transitions: bool = True
    ) -> tuple[Multinomials, Callable[[Moves], Moves]] | None:
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
        wide = [np.asarray(family, np.float64) for family in parameters]
        theta = [_normalise(family, axis) for family, axis in zip(wide, EVENT_AXES)]
        factors = aligned_zeros((self._cores[0].rows, self._cores[0].columns), np.float64)
        labels = len(theta[0])
        tops = theta[2].max(1, keepdims=True)
        factors[:-1, :labels] = theta[2] / np.where(tops > 0, tops, 1)
        transposed = np.ascontiguousarray(theta[1].T)
        tables = [theta[0], np.ascontiguousarray(theta[1]), transposed, factors]
        spare = self._spare[dtype]
        kept = spare.pop() if spare else [
            _Messages(core.groups, labels, dtype) for core in self._cores
        ]  # fmt: skip
        lowest = self._on_cores(
            lambda core, messages: core.linearise(
                self._library, tables, messages, with_transitions
            ),
            kept,
        )
        if not _is_certified(theta[0], theta[1], factors, min(lowest), dtype):
            spare.append(kept)
            return None
        sums = [core.sums[np.dtype(np.float64)] for core in self._cores]
        emission = sum(counts[:-1, :labels] for counts, _ in sums)
        initial = sum(firsts for _, firsts in sums)
        transition: Any = sum(core.pairs for core in self._cores) if with_transitions else None
        product = _Product(self, wide, theta[1].astype(dtype), kept, dtype)
        weakref.finalize(product, spare.append, kept).atexit = False
        return Multinomials(initial, transition, emission), product  # pyright: ignore

    def _on_cores(self, run: Callable, items: list) -> list:
        """`run` on each core's share with its item, on threads that stay; the first on this."""
        pairs = list(zip(self._cores, items))
        begun = [self._threads.submit(run, *pair) for pair in pairs[1:]]
        return [run(*pairs[0]), *(one.result() for one in begun)]


class _Product:
    """The product with the Jacobian at a point."""

    def __init__(
        self,
        kernels: WordKernels,
        wide: list[np.ndarray],
        transition: np.ndarray,
        kept: list[_Messages],
        dtype: np.dtype,
    ):
        self._kernels, self._dtype, self._wide = kernels, dtype, Multinomials(*wide)
        self._run = getattr(kernels._library, f"hmm_product_{_NAMES[dtype]}")
        self._transitions = [
            np.ascontiguousarray(table) for table in (transition, transition.T)
        ]  # fmt: skip
        self._kept = kept
        self._points = [
            _Point(*map(_at, (*self._transitions, *messages.arrays))) for messages in kept
        ]
        cores = kernels._cores
        self._slopes = aligned_zeros((cores[0].rows, cores[0].columns), dtype)
        self._labels = len(transition)

    def __call__(self, moves: Moves) -> Moves:
        slopes = log_slopes(self._wide, moves)
        labels = self._labels
        if "emission" in slopes:
            self._slopes[:-1, :labels] = slopes["emission"]
        else:
            self._slopes[:] = 0
        first = None
        if "initial" in slopes:
            first = np.ascontiguousarray(slopes["initial"], self._dtype)
        table, initial = _at(self._slopes), _at(first)

        def run(core: _Core, point: _Point) -> tuple[np.ndarray, np.ndarray]:
            counts, firsts = core.sums[self._dtype]
            self._run(
                core.place, ctypes.addressof(point), table, initial,
                _at(counts), _at(firsts), _at(core.scratch),
            )  # fmt: skip
            return counts, firsts

        sums = self._kernels._on_cores(run, self._points)
        found = {}
        if "emission" in moves:
            found["emission"] = sum(counts[:-1, :labels].astype(np.float64) for counts, _ in sums)
        if "initial" in moves:
            found["initial"] = sum(firsts.astype(np.float64) for _, firsts in sums)
        return found


def _normalise(family: np.ndarray, axis: int) -> np.ndarray:
    total = family.sum(axis, keepdims=True)
    return family / np.where(total > 0, total, 1)


def _is_certified(
    initial: np.ndarray, transition: np.ndarray, factors: np.ndarray, lowest: float, dtype: Any
) -> bool:
    """Whether no entry of a forward message was lost, as in `_em_lattice.is_certified`, and none
    is by narrowing."""
    smallest = [
        np.where(family > 0, family, 1).min() for family in (initial, transition, factors)
    ]  # fmt: skip
    step = min(smallest[0], smallest[1]) * smallest[2]
    return bool(lowest * step >= smallest_trusted(dtype))


def _load() -> ctypes.CDLL:
    library = load_library("hmm")
    for name in _NAMES.values():
        linearise = getattr(library, f"hmm_linearise_{name}")
        linearise.restype, linearise.argtypes = ctypes.c_double, (ctypes.c_void_p,) * 2
        product = getattr(library, f"hmm_product_{name}")
        product.restype, product.argtypes = None, (ctypes.c_void_p,) * 7
    return library


def find_kernels(corpus: WordCorpus, num_labels: int) -> WordKernels | None:
    """The kernels of a corpus, or None where there are none."""
    try:
        return WordKernels(corpus, num_labels)
    except CannotBuild:
        return None
