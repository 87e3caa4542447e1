"""The kernels of ``jaxseq/native/hmm.cc``, called with NumPy's arrays, on threads that stay."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from jaxseq.hmm._corpus import WordCorpus
from jaxseq.hmm._model import EVENT_AXES, Multinomials
from jaxseq.lattice import smallest_trusted
from jaxseq.native import CannotBuild, load_library

# -------------------------------------------------------------------------------------------------
# Sequences of words in groups, one a lane, as kernels of ``jaxseq/native/hmm.cc`` take them.


WIDTH = 16
"""Sequences of a group: the kernels' own."""
FEWEST, PARTS = 4, 64
"""Groups of a part, at least, and parts at most."""
ALIGNED = 64
"""Bytes of a vector: where arrays begin."""


def aligned_zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """As `numpy.zeros`, beginning where vectors may.

    Example:
        >>> aligned_zeros((3, 5), np.float32).ctypes.data % ALIGNED
        0
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.zeros(size + ALIGNED, np.uint8)
    start = -room.ctypes.data % ALIGNED
    return room[start : start + size].view(dtype).reshape(shape)


class Groups(NamedTuple):
    """The sequences of a part of a corpus.

    first [g + 1]: the slot with which each group begins, and the end. words [slots, WIDTH]: with v,
    which no word is, before a sequence's beginning. begins [slots]: a bit for each lane whose
    sequence begins there. allowed [slots, s, WIDTH]: whether a label may be, or None when any may.
    """

    first: np.ndarray
    words: np.ndarray
    begins: np.ndarray
    allowed: np.ndarray | None

    @property
    def longest(self) -> int:
        """Slots of the longest group."""
        return int(np.diff(self.first).max())


def make_groups(corpus: WordCorpus, num_labels: int) -> list[Groups]:
    """All sequences, in groups of about one length, shared out to parts that take about as long.

    Sequences of a group end in one slot. Where the longest is much longer than the rest of its
    group, lanes stand empty; by falling length, that is where there are few. How many parts there
    are depends on the number of groups alone: sums over parts have the same rounding on any number
    of cores, and so a path, which may turn on it, is the same.

    Args:
        corpus: of `word_corpus`, with at least one sequence.
        num_labels: s.

    Cost: O(N s) on the host, once a corpus.

    Example:
        >>> from jaxseq.hmm import word_corpus
        >>> (groups,) = make_groups(word_corpus([[0, 1], [1]], 2), 3)
        >>> groups.words[:, :3].tolist()  # 2 is no word
        [[0, 2, 2], [1, 1, 2]]
        >>> [f"{bits:b}" for bits in groups.begins]
        ['1', '10']
    """
    order = np.argsort(-corpus.lengths, kind="stable")
    members = [order[i : i + WIDTH] for i in range(0, len(order), WIDTH)]
    slots = [int(corpus.lengths[group[0]]) for group in members]
    parts = number_of_parts(len(members))
    shares, loads = [[] for _ in range(parts)], [0] * parts
    for group, number in zip(members, slots):  # the longest first: so loads end nearly equal
        part = loads.index(min(loads))
        shares[part].append(group)
        loads[part] += number
    return [_place(corpus, share, num_labels) for share in shares]


def number_of_parts(groups: int) -> int:
    """A power of two, which most numbers of cores can share out evenly.

    Example:
        >>> [number_of_parts(groups) for groups in (1, 9, 63, 10_000)]
        [1, 2, 8, 64]
    """
    return min(PARTS, 1 << max(groups // FEWEST, 1).bit_length() - 1)


def _place(corpus: WordCorpus, members: list[np.ndarray], num_labels: int) -> Groups:
    lengths = [corpus.lengths[group] for group in members]
    first = np.cumsum([0, *(int(one[0]) for one in lengths)]).astype(np.int64)
    total = int(first[-1])
    words = aligned_zeros((total, WIDTH), np.int32)
    words[:] = corpus.num_words
    begins = np.zeros(total, np.uint16)
    possible = _possible(corpus)
    allowed = None
    if possible is not None:
        allowed = aligned_zeros((total, num_labels, WIDTH), np.uint8)
    starts = np.cumsum(corpus.lengths) - corpus.lengths
    for end, group in zip(first[1:], members):
        for lane, sequence in enumerate(group):
            start, length = int(starts[sequence]), int(corpus.lengths[sequence])
            here = slice(end - length, end)
            words[here, lane] = corpus.words[start : start + length]
            begins[end - length] |= 1 << lane
            if allowed is not None and possible is not None:
                allowed[here, :, lane] = possible[start : start + length]
    return Groups(first, words, begins, allowed)


def _possible(corpus: WordCorpus) -> np.ndarray | None:
    """Which labels a token may have [N, s], or None when any."""
    if corpus.allowed is not None or corpus.num_labels is None or not (corpus.labels >= 0).any():
        return corpus.allowed
    return corpus.labels[:, None] == np.arange(corpus.num_labels)


WIDE = np.dtype(np.float64)
NAMES = {np.dtype(np.float32): "single", WIDE: "wide"}
"""How kernels of each precision are called in C++."""
_VECTOR = 64


def _structure(name: str, numbers: tuple[str, ...], pointers: tuple[str, ...]) -> Any:
    fields = [(field, ctypes.c_int64) for field in numbers]
    fields += [(field, ctypes.c_void_p) for field in pointers]
    return type(name, (ctypes.Structure,), {"_fields_": tuple(fields)})


# As in the sources; a pool is an address, and numbers and addresses are of one size.
_Places = _structure(
    "_Places",
    ("groups", "labels", "columns", "words_end"),
    ("first", "words", "begins", "allowed"),
)
_Point = _structure("_Point", (), ("transition", "transposed", "alpha", "over_mass", "gamma"))
_PointAndCounts = _structure(
    "_PointAndCounts",
    (),
    (
        "initial", "transition", "transposed", "factors", "alpha", "over_mass", "gamma", "counts",
        "firsts", "pairs",
    ),
)  # fmt: skip
_Linearisation = _structure(
    "_Linearisation", (), ("threads", "parts", "at", "here", "scratch", "lowest")
)
_Products = _structure(
    "_Products",
    (),
    ("threads", "parts", "at", "here", "slopes", "counts", "firsts", "scratch", "initial"),
)
_Scales = _structure("_Scales", (), ("over", "share", "weight", "means"))


def address(array: np.ndarray | None) -> int | None:
    """Where an array begins, for the kernels; NULL for None."""
    return None if array is None else array.ctypes.data


def _addresses(arrays: Sequence[np.ndarray]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*map(address, arrays))


class Messages:
    """What linearising keeps of a part: α, 1/mass and γ of every slot, in one dtype."""

    def __init__(self, groups: Groups, labels: int, dtype: np.dtype):
        shape = (int(groups.first[-1]), labels, WIDTH)
        self.dtype, self._arrays = dtype, [aligned_zeros(shape, dtype) for _ in range(3)]
        self.addresses = [address(array) for array in self._arrays]


class Part:
    """Some of the sequences, and room for what is summed over them."""

    def __init__(self, groups: Groups, labels: int, rows: int, columns: int):
        self.groups = groups
        self.pairs = np.zeros((labels, labels))
        self.sums = {
            dtype: (aligned_zeros((rows, columns), dtype), np.zeros(labels, dtype))
            for dtype in NAMES
        }
        self.addresses = [address(array) for array in (*self.sums[WIDE], self.pairs)]


class Kernels:
    """The kernels on parts of a corpus, which a number of threads take as they come.

    What comes of it does not depend on their number: every part has sums of its own. These are
    filled anew by every call: who reads them holds `lock` from before the call on.

    Args:
        groups: of each part. labels: s. num_words: v. cores: as many threads.

    Raises:
        CannotBuild: where there are none.
    """

    def __init__(self, groups: list[Groups], labels: int, num_words: int, cores: int):
        self._library, self.lock = load_kernels(), threading.Lock()
        self.labels, self.columns = labels, -(-labels // WIDTH) * WIDTH
        self.rows = num_words + 1  # the last for what is no word
        self.parts = [Part(each, labels, self.rows, self.columns) for each in groups]
        vectors = (2 + 2 * max(each.longest for each in groups) + labels) * labels
        threads = max(1, min(cores, len(groups)))
        room = [aligned_zeros((vectors * _VECTOR,), np.uint8) for _ in range(threads)]
        self._room, self._scratch = room, _addresses(room)
        self._sums = {
            dtype: [_addresses(each) for each in zip(*(part.sums[dtype] for part in self.parts))]
            for dtype in NAMES
        }
        self._lowest = np.ones(len(groups))
        sizes = labels, self.columns, self.rows
        places = ((each.first, each.words, each.begins, each.allowed) for each in groups)
        self._places = (_Places * len(groups))(
            *(
                _Places(len(first) - 1, *sizes, *map(address, (first, *rest)))
                for first, *rest in places
            )
        )
        self._threads = self._library.hmm_pool_begin(threads)
        weakref.finalize(self, self._library.hmm_pool_end, self._threads)

    def _shared(self) -> tuple[int, int, int]:
        return self._threads, len(self.parts), ctypes.addressof(self._places)

    def linearise(
        self, theta: list[np.ndarray], messages: list[Messages], with_pairs: bool
    ) -> float:
        """Fill `messages` and the sums; the smallest positive entry of a forward message.

        Args:
            theta: of float64, initial, transition, its transpose, and emissions [rows, columns].
            messages: of each part. with_pairs: whether transitions are counted.
        """
        tables = [address(table) for table in theta]
        here = (_PointAndCounts * len(self.parts))(
            *(
                _PointAndCounts(*tables, *kept.addresses, *part.addresses[: 3 if with_pairs else 2])
                for part, kept in zip(self.parts, messages)
            )
        )
        run = getattr(self._library, f"hmm_linearise_{NAMES[messages[0].dtype]}")
        scratch, lowest = ctypes.addressof(self._scratch), address(self._lowest)
        given = _Linearisation(*self._shared(), ctypes.addressof(here), scratch, lowest)
        run(ctypes.byref(given))
        return float(self._lowest.min())

    def products(
        self, tables: list[np.ndarray], messages: list[Messages], slopes: np.ndarray
    ) -> Products:
        """With the Jacobian at a point.

        Args:
            tables: transition, and its transpose, of the messages' dtype. messages: of the point.
            slopes: [rows, columns], filled before each.
        """
        dtype, at = slopes.dtype, [address(table) for table in tables]
        here = (_Point * len(self.parts))(*(_Point(*at, *kept.addresses) for kept in messages))
        given = _Products(
            *self._shared(), ctypes.addressof(here), address(slopes),
            *map(ctypes.addressof, self._sums[dtype]), ctypes.addressof(self._scratch), None,
        )  # fmt: skip
        return Products(self._library, given, dtype, (self, tables, messages, slopes, here))


class Products:
    """Calls of the kernel for products at a point.

    Args:
        library: the kernels. given: what they are told. dtype: of all. kept: whose addresses that
            has.
    """

    def __init__(self, library: ctypes.CDLL, given: Any, dtype: np.dtype, kept: Any):
        self._given, self._dtype, self._kept = given, dtype, kept
        self._place = ctypes.byref(given)
        self._run = getattr(library, f"hmm_product_{NAMES[dtype]}")
        self._run_flat = getattr(library, f"hmm_flat_product_{NAMES[dtype]}")

    def __call__(self, initial: np.ndarray | None) -> None:
        """Fill the sums, by the slopes of emissions, and of first labels if they move."""
        self._given.initial = address(initial)
        self._run(self._place)
        self._given.initial = None

    def on_flat(self, over: np.ndarray, share: np.ndarray, weight: np.ndarray) -> Any:
        """The product on vectors of the dtype, as ``hmm_flat.h`` has it, without any other
        operation of NumPy: those on so short vectors would take as long as a part of it."""
        dtype, run, place = self._dtype, self._run_flat, self._place
        tables = [np.ascontiguousarray(table, dtype) for table in (over, share, weight)]
        lock, means = self._kept[0].lock, np.zeros(self._kept[0].labels)
        scales = _Scales(*map(address, (*tables, means)))
        by = ctypes.byref(scales)

        def product(vector: np.ndarray) -> np.ndarray:
            vector = np.ascontiguousarray(vector, dtype)
            found = np.empty_like(vector)
            with lock:
                run(place, by, vector.ctypes.data, found.ctypes.data)
            return found

        product.keeps = (self, tables, means)  # pyright: ignore - what the addresses are of
        return product


def load_kernels() -> ctypes.CDLL:
    """The library, its functions declared; `CannotBuild` where there is none."""
    library = load_library("hmm")
    pointer = ctypes.c_void_p
    arguments = {"hmm_linearise": 1, "hmm_product": 1, "hmm_flat_product": 4}
    for name in NAMES.values():
        for function, number in arguments.items():
            declared = getattr(library, f"{function}_{name}")
            declared.restype, declared.argtypes = None, (pointer,) * number
    library.hmm_pool_begin.restype, library.hmm_pool_begin.argtypes = pointer, (ctypes.c_int64,)
    library.hmm_pool_end.restype, library.hmm_pool_end.argtypes = None, (pointer,)
    return library


# -------------------------------------------------------------------------------------------------
# The E-step and products with its Jacobian by kernels in C++, for a corpus on the cores of a CPU.
#
# As in `_em_products`, for frozen transitions and positive free parameters: expected counts move by
# their covariance with :math:`S = \sum_t f(y_t, x_t)`, f the change of log Θ. Here the way back goes
# by what the way there has left, as a smoother goes back over a filter. With α the forward messages,
# ``mass_t = Aᵀ α_{t-1}`` and ``P(y_{t-1} = i | y_t = j, x_1 … x_t) = α_{t-1}(i) A(i,j) / mass_t(j)``,
#
#     γ_{t-1} = α_{t-1} ⊙ A (γ_t / mass_t)                  P(y_{t-1} | x)
#     L_t = f_t + Aᵀ(α_{t-1} ⊙ L_{t-1}) / mass_t            E[S up to t | y_t]
#     H_{t-1} = α_{t-1} ⊙ A ((γ_t ⊙ f_t + H_t) / mass_t)    γ ⊙ (E[S after t − 1 | y_{t-1}] − E[S])
#
# from H_n = −E[S] γ_n on, and γ_t moves by ``γ_t ⊙ L_t + H_t``: three arrays a token are read, α,
# 1/mass and γ, where messages of both directions would be five. As each way back is a mean over
# probabilities, errors do not grow, and no backward message can underflow: of a γ below the smallest
# number nothing but itself is lost. So it is enough that forward messages are all there
# (`_is_certified`).
#
# References:
#     Rabiner 1989; Rauch, Tung & Striebel 1965 for going back over a filter.


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
        >>> from jaxseq.hmm import word_corpus
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
