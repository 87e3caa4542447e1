"""The kernels of ``jaxseq/native/hmm.cc``, called with NumPy's arrays, on threads that stay."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxseq.learn._em_groups import WIDTH, Groups, aligned_zeros
from jaxseq.native._build import load_library

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
