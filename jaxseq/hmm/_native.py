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
from jaxseq.native import CannotBuild, load_library, warn_of_loss

# -------------------------------------------------------------------------------------------------
# Sequences of words in groups, one per lane, as the kernels take them.

WIDTH = 16
"""Sequences of a group, one per lane: the kernels' own number."""
GROUPS_PER_PART, MOST_PARTS = 4, 64
"""At least so many groups make a part, and there are at most so many parts."""
VECTOR_BYTES = 64
"""Arrays begin at multiples of this, or vectors could not be loaded from them at once."""


def aligned_zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """As `numpy.zeros`, beginning where vectors may.

    Example:
        >>> aligned_zeros((3, 5), np.float32).ctypes.data % VECTOR_BYTES
        0
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    # NumPy aligns to 16 bytes only; the view keeps the whole room alive.
    room = np.zeros(size + VECTOR_BYTES, np.uint8)
    start = -room.ctypes.data % VECTOR_BYTES
    return room[start : start + size].view(dtype).reshape(shape)


class Groups(NamedTuple):
    """The sequences of a part of a corpus.

    Attributes:
        first: [g + 1], the slot with which each group begins, and the end.
        words: [slots, WIDTH], with v, which is no word, before a sequence's beginning.
        begins: [slots], a bit for each lane whose sequence begins there.
        allowed: [slots, s, WIDTH], whether a label may be; None when any may.
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
    # Stable: the grouping, and with it every bit of a path, follows from the corpus alone.
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
    return min(MOST_PARTS, 1 << max(groups // GROUPS_PER_PART, 1).bit_length() - 1)


def _place(corpus: WordCorpus, members: list[np.ndarray], num_labels: int) -> Groups:
    lengths = [corpus.lengths[group] for group in members]
    first = np.cumsum([0, *(int(one[0]) for one in lengths)]).astype(np.int64)
    total = int(first[-1])
    words = aligned_zeros((total, WIDTH), np.int32)
    words[:] = corpus.num_words  # no word: its factors are 0, and so is all that comes of them
    begins = np.zeros(total, np.uint16)
    possible = _possible(corpus)
    allowed = None
    if possible is not None:
        allowed = aligned_zeros((total, num_labels, WIDTH), np.uint8)
    starts = np.cumsum(corpus.lengths) - corpus.lengths
    for end, group in zip(first[1:], members):
        for lane, sequence in enumerate(group):
            start, length = int(starts[sequence]), int(corpus.lengths[sequence])
            slots = slice(end - length, end)  # a group's sequences end in one slot
            words[slots, lane] = corpus.words[start : start + length]
            begins[end - length] |= 1 << lane
            if allowed is not None and possible is not None:
                allowed[slots, :, lane] = possible[start : start + length]
    return Groups(first, words, begins, allowed)


def _possible(corpus: WordCorpus) -> np.ndarray | None:
    """Which labels a token may have [N, s], or None when any."""
    if corpus.allowed is not None or corpus.num_labels is None or not (corpus.labels >= 0).any():
        return corpus.allowed
    return corpus.labels[:, None] == np.arange(corpus.num_labels)


# -------------------------------------------------------------------------------------------------
# What the kernels are told: structures of ``jaxseq/native/hmm.cc``, of numbers and addresses.

WIDE = np.dtype(np.float64)
KERNEL_NAMES = {np.dtype(np.float32): "single", WIDE: "wide"}
"""How kernels of each precision are called in C++."""


def _structure(name: str, pointers: str, numbers: str = "") -> Any:
    fields = [(field, ctypes.c_int64) for field in numbers.split()]
    fields += [(field, ctypes.c_void_p) for field in pointers.split()]
    return type(name, (ctypes.Structure,), {"_fields_": tuple(fields)})


# The order of fields is that of the sources; a pool is an address, and numbers and addresses are of
# one size.
_Places = _structure("_Places", "first words begins allowed", "groups labels columns words_end")
_Point = _structure("_Point", "transition transposed alpha over_mass gamma")
_PointAndCounts = _structure(
    "_PointAndCounts",
    "initial transition transposed factors alpha over_mass gamma counts firsts pairs",
)
_Linearisation = _structure("_Linearisation", "threads parts at point scratch lowest")
_Products = _structure("_Products", "threads parts at point slopes counts firsts scratch initial")
_Scales = _structure("_Scales", "over share weight means")


def address(array: np.ndarray | None) -> int | None:
    """Where an array begins, for the kernels; NULL for None."""
    return None if array is None else array.ctypes.data


def _addresses(arrays: Sequence[np.ndarray]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*map(address, arrays))


def load_kernels() -> ctypes.CDLL:
    """The library, its functions declared; `CannotBuild` where there is none."""
    library = load_library("hmm").functions
    pointer = ctypes.c_void_p
    arguments = {"hmm_linearise": 1, "hmm_product": 1, "hmm_flat_product": 4}
    for name in KERNEL_NAMES.values():
        for function, number in arguments.items():
            declared = getattr(library, f"{function}_{name}")
            declared.restype, declared.argtypes = None, (pointer,) * number
    # Without these, ctypes would take the pool's address for an int of 32 bits.
    library.hmm_pool_begin.restype, library.hmm_pool_begin.argtypes = pointer, (ctypes.c_int64,)
    library.hmm_pool_end.restype, library.hmm_pool_end.argtypes = None, (pointer,)
    return library


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
            for dtype in KERNEL_NAMES
        }
        self.addresses = [address(array) for array in (*self.sums[WIDE], self.pairs)]


# -------------------------------------------------------------------------------------------------
# The E-step and products with its Jacobian, for a corpus on the cores of a CPU.
#
# As in `jaxseq.hmm._jacobian`, for frozen transitions and positive free parameters: expected counts
# move by their covariance with ``S = Σ_t f(y_t, x_t)``, f the change of log Θ. Here the way back
# goes by what the way there has left, as a smoother goes back over a filter. With α the forward
# messages, ``mass_t = Aᵀ α_{t-1}`` and
# ``P(y_{t-1} = i | y_t = j, x_1 … x_t) = α_{t-1}(i) A(i,j) / mass_t(j)``,
#
#     γ_{t-1} = α_{t-1} ⊙ A (γ_t / mass_t)                  P(y_{t-1} | x)
#     L_t = f_t + Aᵀ(α_{t-1} ⊙ L_{t-1}) / mass_t            E[S up to t | y_t]
#     H_{t-1} = α_{t-1} ⊙ A ((γ_t ⊙ f_t + H_t) / mass_t)    γ ⊙ (E[S after t − 1 | y_{t-1}] − E[S])
#
# from H_n = −E[S] γ_n on, and γ_t moves by ``γ_t ⊙ L_t + H_t``: three arrays per token are read, α,
# 1/mass and γ, where messages of both directions would be five. As each way back is a mean over
# probabilities, errors do not grow, and no backward message can underflow: of a γ below the
# smallest number nothing but itself is lost. So it is enough that forward messages are all there
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
    corpus has cores; the same to the bit on any number of them.

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
        >>> linear = kernels and kernels.linearise(point, np.float64)
        >>> linear is None or linear[0].emission.round(6).tolist() == [[0.75, 0.25], [0.5, 1.5]]
        True
    """

    def __init__(self, corpus: WordCorpus, num_labels: int):
        self.library = load_kernels()
        # Sums are filled anew by every call: who reads them holds this from before the call on.
        self.lock = threading.Lock()
        groups = make_groups(corpus, num_labels)
        self.labels, self.columns = num_labels, -(-num_labels // WIDTH) * WIDTH
        self.rows = corpus.num_words + 1  # the last is for what is no word
        # Each part has sums of its own, so that it does not matter which thread takes it.
        self.parts = [Part(each, num_labels, self.rows, self.columns) for each in groups]
        vectors = (2 + 2 * max(each.longest for each in groups) + num_labels) * num_labels
        threads = max(1, min(corpus.cores, len(groups)))
        self._room = [aligned_zeros((vectors * VECTOR_BYTES,), np.uint8) for _ in range(threads)]
        self.scratch = _addresses(self._room)
        self.sums = {
            dtype: [_addresses(each) for each in zip(*(part.sums[dtype] for part in self.parts))]
            for dtype in KERNEL_NAMES
        }
        self._lowest = np.ones(len(groups))
        sizes = num_labels, self.columns, self.rows
        self._places = (_Places * len(groups))(
            *(_Places(len(each.first) - 1, *sizes, *map(address, each)) for each in groups)
        )
        pool = self.library.hmm_pool_begin(threads)
        self.shared = pool, len(groups), ctypes.addressof(self._places)
        # Threads wait for work as long as the pool is there; a product keeps these kernels alive.
        weakref.finalize(self, self.library.hmm_pool_end, pool)
        self._spare: dict[np.dtype, list[list[Messages]]] = {dtype: [] for dtype in KERNEL_NAMES}

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
        # A word's factors are divided by their largest: only their ratios count, and a word that
        # is rare under all labels would else bring the messages near to underflow.
        factors = aligned_zeros((self.rows, self.columns), np.float64)
        tops = theta.emission.max(1, keepdims=True)
        factors[:-1, : self.labels] = theta.emission / np.where(tops > 0, tops, 1)
        transitions = map(np.ascontiguousarray, (theta.transition, theta.transition.T))
        tables = [theta.initial, *transitions, factors]
        # Messages of a product that is gone: making room costs as much as filling it.
        spare = self._spare[dtype]
        kept = (
            spare.pop() if spare else [Messages(p.groups, self.labels, dtype) for p in self.parts]
        )
        with self.lock:
            lowest = self._run_linearise(tables, kept, with_transitions)
            initial, emission = self.add_sums(WIDE)
            pairs: Any = _add_up([p.pairs for p in self.parts]) if with_transitions else None
        if not _is_certified(theta, factors, lowest, dtype):
            spare.append(kept)
            return None
        product = NativeProduct(self, tilde, theta.transition.astype(dtype), kept, dtype)
        # Back among the spare ones when nothing uses them any more, a flat product included.
        weakref.finalize(product, spare.append, kept).atexit = False
        return Multinomials(*cast(Any, (initial, pairs, emission))), product

    def _run_linearise(
        self, tables: list[np.ndarray], messages: list[Messages], with_pairs: bool
    ) -> float:
        """Fill `messages` and the sums; the smallest positive entry of a forward message."""
        at = [address(table) for table in tables]
        points = (_PointAndCounts * len(self.parts))(
            *(
                _PointAndCounts(*at, *kept.addresses, *part.addresses[: 3 if with_pairs else 2])
                for part, kept in zip(self.parts, messages)
            )
        )
        run = getattr(self.library, f"hmm_linearise_{KERNEL_NAMES[messages[0].dtype]}")
        scratch, lowest = ctypes.addressof(self.scratch), address(self._lowest)
        run(
            ctypes.byref(_Linearisation(*self.shared, ctypes.addressof(points), scratch, lowest))
        )  # fmt: skip
        return float(self._lowest.min())

    def add_sums(self, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """Initial and emission, over all parts in their order, whoever filled them."""
        sums = [part.sums[dtype] for part in self.parts]
        emission = _add_up([counts[:-1, : self.labels] for counts, _ in sums])
        return _add_up([firsts for _, firsts in sums]), emission


class NativeProduct:
    """The product with the Jacobian at a point: see `WordKernels.linearise`.

    Args:
        kernels: of the corpus.
        tilde: Θ̃ at the point.
        transition: probabilities, of the products' dtype.
        messages: of each part, at the point.
        dtype: of products.
    """

    def __init__(
        self,
        kernels: WordKernels,
        tilde: _Families,
        transition: np.ndarray,
        messages: list[Messages],
        dtype: np.dtype,
    ):
        self._kernels, self._dtype = kernels, dtype
        # As `log_slopes` of `jaxseq.hmm._jacobian`, its divisors inverted once per point.
        self._over = {
            name: (axis, 1 / family, 1 / family.sum(axis, keepdims=True))
            for name, axis, family in zip(Multinomials._fields, EVENT_AXES, tilde)
            if name != "transition" and (family > 0).all()
        }
        tables = [np.ascontiguousarray(table) for table in (transition, transition.T)]
        self._by_word = aligned_zeros((kernels.rows, kernels.columns), dtype)
        self._first = np.zeros(len(transition), dtype)
        at = [address(table) for table in tables]
        points = (_Point * len(messages))(*(_Point(*at, *kept.addresses) for kept in messages))
        self._told = _Products(
            *kernels.shared, ctypes.addressof(points), address(self._by_word),
            *map(ctypes.addressof, kernels.sums[dtype]), ctypes.addressof(kernels.scratch), None,
        )  # fmt: skip
        # The kernels know addresses alone: what these are of must live as long as the product.
        self._alive = (tables, messages, points)
        self._place = ctypes.byref(self._told)
        self._run = getattr(kernels.library, f"hmm_product_{KERNEL_NAMES[dtype]}")
        self._run_flat = getattr(kernels.library, f"hmm_flat_product_{KERNEL_NAMES[dtype]}")

    def _slopes(self, name: str, move: np.ndarray) -> np.ndarray:
        axis, over, over_sum = self._over[name]
        return move * over - move.sum(axis, keepdims=True) * over_sum

    def __call__(self, moves: Moves) -> Moves:
        with self._kernels.lock:
            if "emission" in moves:
                slopes = self._slopes("emission", moves["emission"])
                self._by_word[:-1, : self._kernels.labels] = slopes
            else:
                self._by_word[:] = 0
            if "initial" in moves:
                self._first[:] = self._slopes("initial", moves["initial"])
            self._told.initial = address(self._first) if "initial" in moves else None
            self._run(self._place)
            self._told.initial = None  # a flat product moves emissions alone
            initial, emission = self._kernels.add_sums(self._dtype)
        changes = {"initial": initial, "emission": emission}
        return {name: change for name, change in changes.items() if name in moves}

    def on_flat(self, scale: np.ndarray, number: int) -> Callable[[np.ndarray], np.ndarray]:
        """The product of emissions alone, on vectors Θ̃/σ [v·s], divided by `number`; of and in the
        products' dtype.

        One call of ``hmm_flat.h``, without any other operation of NumPy: those on so short vectors
        would take as long as a part of it.
        """
        _, over, over_sum = self._over["emission"]
        shares = np.broadcast_to(over_sum, over.shape).ravel()
        weight = np.broadcast_to(1 / (scale * number), over.size)
        scaled = (scale * over.ravel(), scale * shares, weight)
        tables = [np.ascontiguousarray(table, self._dtype) for table in scaled]
        lock, means = self._kernels.lock, np.zeros(self._kernels.labels)
        scales = _Scales(*map(address, (*tables, means)))
        dtype, run, place, by = self._dtype, self._run_flat, self._place, ctypes.byref(scales)

        def product(vector: np.ndarray) -> np.ndarray:
            vector = np.ascontiguousarray(vector, dtype)
            change = np.empty_like(vector)
            with lock:
                run(place, by, vector.ctypes.data, change.ctypes.data)
            return change

        product.keeps = (self, tables, means)  # pyright: ignore - what the addresses are of
        return product


def _add_up(parts: list[np.ndarray]) -> np.ndarray:
    total = parts[0].astype(np.float64)
    for part in parts[1:]:
        total += part
    return total


def _normalise(family: np.ndarray, axis: int) -> np.ndarray:
    total = family.sum(axis, keepdims=True)
    return family / np.where(total > 0, total, 1)


def _is_certified(theta: _Families, factors: np.ndarray, lowest: float, dtype: Any) -> bool:
    """Whether no entry of a forward message was lost, as `is_certified` of `jaxseq.hmm._counts`
    has it, and none is by narrowing."""
    families = (theta.initial, theta.transition, factors)
    smallest = [np.where(family > 0, family, 1).min() for family in families]
    step = min(smallest[0], smallest[1]) * smallest[2]
    return bool(lowest * step >= smallest_trusted(dtype))


def find_kernels(corpus: WordCorpus, num_labels: int) -> WordKernels | None:
    """The kernels of a corpus, or None where there are none."""
    try:
        return WordKernels(corpus, num_labels)
    except CannotBuild as error:
        warn_of_loss(error)
        return None
