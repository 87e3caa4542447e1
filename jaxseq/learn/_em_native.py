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
import threading
import weakref
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, cast

import numpy as np

from jaxseq.chain._engines import smallest_trusted
from jaxseq.learn._em_corpus import WordCorpus
from jaxseq.learn._em_groups import WIDTH, Groups, aligned_zeros, make_groups
from jaxseq.models._hmm import EVENT_AXES, Multinomials
from jaxseq.native._build import CannotBuild, load_library

Moves = dict[str, np.ndarray]
"""Tangents, or changes of counts, by family; of initial and emission."""

_WIDE = np.dtype(np.float64)
_NAMES = {np.dtype(np.float32): "single", _WIDE: "wide"}
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
        self.sums = {
            dtype: (aligned_zeros((self.rows, self.columns), dtype), np.zeros(labels, dtype))
            for dtype in _NAMES
        }

    def linearise(
        self, library: Any, theta: list[np.ndarray], messages: _Messages, with_pairs: bool
    ) -> float:
        """Fill `messages` and the sums; the smallest positive entry of a forward message."""
        counts, firsts = self.sums[_WIDE]
        pairs = self.pairs if with_pairs else None
        arrays = (*theta, *messages.arrays, counts, firsts, pairs, self.scratch)
        given = _PointAndCounts(*map(_at, arrays))
        run = getattr(library, f"hmm_linearise_{_NAMES[messages.arrays[0].dtype]}")
        return run(ctypes.byref(self.places), ctypes.byref(given))

    def product_arguments(
        self, tables: list[np.ndarray], messages: _Messages, slopes: np.ndarray
    ) -> tuple[Any, ...]:
        """Of the kernel for products, all but the last, the slopes of first labels."""
        dtype = slopes.dtype
        point = _Point(*map(_at, (*tables, *messages.arrays)))
        room = map(_at, (slopes, *self.sums[dtype], self.scratch))
        return (ctypes.byref(self.places), ctypes.byref(point), *room)


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
        self.library = _load()
        self.cores = [
            _Core(groups, num_labels, corpus.num_words)
            for groups in make_groups(corpus, num_labels)
        ]
        self._others = [_Other() for _ in self.cores[1:]]
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
        tilde = Multinomials(*(np.asarray(family, np.float64) for family in parameters))
        theta = Multinomials(*(_normalise(*pair) for pair in zip(tilde, EVENT_AXES)))
        labels, core = len(theta.initial), self.cores[0]
        factors = aligned_zeros((core.rows, core.columns), np.float64)
        tops = theta.emission.max(1, keepdims=True)
        factors[:-1, :labels] = theta.emission / np.where(tops > 0, tops, 1)
        tables = [theta.initial, *map(np.ascontiguousarray, (theta.transition, theta.transition.T))]
        spare = self._spare[dtype]
        kept = spare.pop() if spare else [_Messages(c.groups, labels, dtype) for c in self.cores]
        lowest = self.on_cores(
            [
                partial(core.linearise, self.library, [*tables, factors], here, with_transitions)
                for core, here in zip(self.cores, kept)
            ]
        )
        if not _is_certified(theta, factors, min(lowest), dtype):
            spare.append(kept)
            return None
        sums = [core.sums[_WIDE] for core in self.cores]
        emission = _add_up([counts[:-1, :labels] for counts, _ in sums])
        initial = _add_up([firsts for _, firsts in sums])
        transition: Any = _add_up([core.pairs for core in self.cores]) if with_transitions else None
        product = NativeProduct(self, tilde, theta.transition.astype(dtype), kept, dtype)
        weakref.finalize(product, spare.append, kept).atexit = False
        return Multinomials(*cast(Any, (initial, transition, emission))), product

    def on_cores(self, calls: list[Callable[[], Any]]) -> list:
        """All calls at once, on threads that stay; the first on this one."""
        for other, call in zip(self._others, calls[1:]):
            other.begin(call)
        return [calls[0](), *(other.end() for other in self._others)]


class _Other:
    """A thread that runs what it is handed. As quick as threads of Python are: a pool's futures
    take a part of a product."""

    def __init__(self):
        self._calls, self._answers = SimpleQueue(), SimpleQueue()
        threading.Thread(target=_work, args=(self._calls, self._answers), daemon=True).start()
        weakref.finalize(self, self._calls.put, None)

    def begin(self, call: Callable[[], Any]) -> None:
        """Hand over."""
        self._calls.put(call)

    def end(self) -> Any:
        """What the call returned, or its exception."""
        found, error = self._answers.get()
        if error is not None:
            raise error
        return found


def _work(calls: SimpleQueue, answers: SimpleQueue) -> None:
    while (call := calls.get()) is not None:
        try:
            answers.put((call(), None))
        except BaseException as error:  # noqa: BLE001 - for the thread that waits
            answers.put((None, error))


class NativeProduct:
    """The product with the Jacobian at a point: see `WordKernels.linearise`."""

    def __init__(
        self,
        kernels: WordKernels,
        tilde: Multinomials,
        transition: np.ndarray,
        kept: list[_Messages],
        dtype: np.dtype,
    ):
        self._kernels, self._dtype, self._kept = kernels, dtype, kept
        self._slopes = _LogSlopes(tilde)
        self._tables = [np.ascontiguousarray(table) for table in (transition, transition.T)]
        core = kernels.cores[0]
        self._by_word = aligned_zeros((core.rows, core.columns), dtype)
        self._first = np.zeros(len(transition), dtype)
        run = getattr(kernels.library, f"hmm_product_{_NAMES[dtype]}")
        self._calls = [
            partial(run, *core.product_arguments(self._tables, messages, self._by_word))
            for core, messages in zip(kernels.cores, kept)
        ]

    def __call__(self, moves: Moves) -> Moves:
        labels = len(self._first)
        if "emission" in moves:
            self._by_word[:-1, :labels] = self._slopes("emission", moves["emission"])
        else:
            self._by_word[:] = 0
        first = None
        if "initial" in moves:
            self._first[:] = self._slopes("initial", moves["initial"])
            first = self._first.ctypes.data
        self._run(first)
        sums = [core.sums[self._dtype] for core in self._kernels.cores]
        found = {}
        if "emission" in moves:
            found["emission"] = _add_up([counts[:-1, :labels] for counts, _ in sums])
        if "initial" in moves:
            found["initial"] = _add_up([firsts for _, firsts in sums])
        return found


    def _run(self, first: int | None = None) -> None:
        self._kernels.on_cores([partial(call, first) for call in self._calls])

    def on_flat(self, scale: np.ndarray, number: int) -> Callable[[np.ndarray], np.ndarray]:
        """The product of emissions alone, on vectors Θ̃/σ [v·s], divided by `number`.

        Of and in the products' dtype, without any other operation of NumPy: those on so short
        vectors would take as long as a part of the product.
        """
        kernels, dtype = self._kernels, self._dtype
        _, over, over_sum = self._slopes.over["emission"]
        tables = [
            np.ascontiguousarray(np.broadcast_to(table, scale.shape), dtype)
            for table in (
                scale * over.ravel(),
                scale * np.broadcast_to(over_sum, over.shape).ravel(),
                1 / (scale * number),
            )
        ]
        name = _NAMES[dtype]
        place = ctypes.byref(kernels.cores[0].places)
        sums = [core.sums[dtype][0] for core in kernels.cores]
        addresses = (ctypes.c_void_p * len(sums))(*map(_at, sums))
        means = np.zeros(len(self._first))
        over_at, share_at, weight_at = map(_at, tables)
        slopes_at, means_at = _at(self._by_word), _at(means)
        make = getattr(kernels.library, f"hmm_slopes_{name}")
        collect = getattr(kernels.library, f"hmm_collect_{name}")

        def product(vector: np.ndarray) -> np.ndarray:
            vector = np.ascontiguousarray(vector, dtype)
            make(place, vector.ctypes.data, over_at, share_at, slopes_at, means_at)
            self._run()
            found = np.empty_like(vector)
            collect(place, len(sums), addresses, weight_at, found.ctypes.data)
            return found

        product.keeps = (self, tables, means)  # pyright: ignore - what the addresses are of
        return product


class _LogSlopes:
    """As `_em_products.log_slopes`, with what it divides by inverted once a point."""

    def __init__(self, tilde: Multinomials):
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


def _is_certified(theta: Multinomials, factors: np.ndarray, lowest: float, dtype: Any) -> bool:
    """Whether no entry of a forward message was lost, as in `_em_lattice.is_certified`, and none
    is by narrowing."""
    families = (theta.initial, theta.transition, factors)
    smallest = [np.where(family > 0, family, 1).min() for family in families]
    step = min(smallest[0], smallest[1]) * smallest[2]
    return bool(lowest * step >= smallest_trusted(dtype))


def _load() -> ctypes.CDLL:
    library = load_library("hmm")
    for name in _NAMES.values():
        linearise = getattr(library, f"hmm_linearise_{name}")
        linearise.restype, linearise.argtypes = ctypes.c_double, (ctypes.c_void_p,) * 2
        product = getattr(library, f"hmm_product_{name}")
        product.restype, product.argtypes = None, (ctypes.c_void_p,) * 7
        slopes = getattr(library, f"hmm_slopes_{name}")
        slopes.restype, slopes.argtypes = None, (ctypes.c_void_p,) * 6
        collect = getattr(library, f"hmm_collect_{name}")
        pointers = (ctypes.c_void_p,) * 3
        collect.restype, collect.argtypes = None, (ctypes.c_void_p, ctypes.c_int64, *pointers)
    return library


def find_kernels(corpus: WordCorpus, num_labels: int) -> WordKernels | None:
    """The kernels of a corpus, or None where there are none."""
    try:
        return WordKernels(corpus, num_labels)
    except CannotBuild:
        return None
