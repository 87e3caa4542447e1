"""The kernels of ``jaxseq/native/hmm.cc``, called with NumPy's arrays, on threads that stay."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np

from jaxseq.learn._em_groups import WIDTH, Groups, aligned_zeros
from jaxseq.native._build import load_library

WIDE = np.dtype(np.float64)
NAMES = {np.dtype(np.float32): "single", WIDE: "wide"}
"""How kernels of each precision are called in C++."""
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


def address(array: np.ndarray | None) -> int | None:
    """Where an array begins, for the kernels; NULL for None."""
    return None if array is None else array.ctypes.data


class Messages:
    """What linearising keeps on one core: α, 1/mass and γ of every slot, in one dtype."""

    def __init__(self, groups: Groups, labels: int, dtype: np.dtype):
        shape = (int(groups.first[-1]), labels, WIDTH)
        self.arrays = [aligned_zeros(shape, dtype) for _ in range(3)]


class Core:
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
            *map(address, (groups.first, groups.words, groups.begins, groups.allowed)),
        )  # fmt: skip
        self.sums = {
            dtype: (aligned_zeros((self.rows, self.columns), dtype), np.zeros(labels, dtype))
            for dtype in NAMES
        }

    def linearise(
        self, library: Any, theta: list[np.ndarray], messages: Messages, with_pairs: bool
    ) -> float:
        """Fill `messages` and the sums; the smallest positive entry of a forward message."""
        counts, firsts = self.sums[WIDE]
        pairs = self.pairs if with_pairs else None
        arrays = (*theta, *messages.arrays, counts, firsts, pairs, self.scratch)
        given = _PointAndCounts(*map(address, arrays))
        run = getattr(library, f"hmm_linearise_{NAMES[messages.arrays[0].dtype]}")
        return run(ctypes.byref(self.places), ctypes.byref(given))

    def product_arguments(
        self, tables: list[np.ndarray], messages: Messages, slopes: np.ndarray
    ) -> tuple[Any, ...]:
        """Of the kernel for products, all but the last, the slopes of first labels."""
        dtype = slopes.dtype
        point = _Point(*map(address, (*tables, *messages.arrays)))
        room = map(address, (slopes, *self.sums[dtype], self.scratch))
        return (ctypes.byref(self.places), ctypes.byref(point), *room)


class Other:
    """A thread that runs what it is handed. As quick as threads of Python are: a pool's futures
    take a part of a product."""

    def __init__(self):
        self._calls, self._answers, self._number = SimpleQueue(), SimpleQueue(), 0
        threading.Thread(target=_work, args=(self._calls, self._answers), daemon=True).start()
        weakref.finalize(self, self._calls.put, None)

    def begin(self, call: Callable[[], Any]) -> None:
        """Hand over."""
        self._number += 1
        self._calls.put((self._number, call))

    def end(self) -> Any:
        """What the call returned, or its exception."""
        number, found, error = 0, None, None
        while number != self._number:  # one that an interrupt left behind is not the last one's
            number, found, error = self._answers.get()
        if error is not None:
            raise error
        return found


def _work(calls: SimpleQueue, answers: SimpleQueue) -> None:
    while (given := calls.get()) is not None:
        number, call = given
        try:
            answers.put((number, call(), None))
        except BaseException as error:  # for the thread that waits
            answers.put((number, None, error))
        del given, call  # which keep what they were called with


def load_kernels() -> ctypes.CDLL:
    """The library, its functions declared; `CannotBuild` where there is none."""
    library = load_library("hmm")
    for name in NAMES.values():
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
