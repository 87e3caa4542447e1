"""Attributes of the tokens of a corpus, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class TokenFeatures:
    """Integer attributes of every token of a corpus, its sentences one after the other.

    ids: int32 ``[N, K]``, the attributes of each token; −1 where there is none (it was not seen
        when the vocabulary was learnt, it was cut off, or the token has fewer than K).
    values: float32 ``[N, K]``, how much of each attribute; None when everything is 1.
    lengths: int64 ``[B]``, the number of tokens of each sentence, which may be 0; the sum is N.
    edge_ids: int32 ``[N, Ke]``, attributes of the pair of tokens (t−1, t), at token t, numbered
        apart from ``ids``; −1 throughout at the first token of a sentence, which has no pair.
        None when no template asks for them.

    Example:
        >>> features = TokenFeatures(
        ...     ids=np.array([[0, 1], [2, -1]], np.int32),
        ...     values=None,
        ...     lengths=np.array([2]),
        ...     edge_ids=None,
        ... )
        >>> len(features.ids), int(features.lengths.sum())
        (2, 2)
    """

    ids: np.ndarray
    values: np.ndarray | None
    lengths: np.ndarray
    edge_ids: np.ndarray | None

    def __post_init__(self) -> None:
        _check("ids", self.ids, np.int32, 2)
        _check("lengths", self.lengths, np.int64, 1)
        tokens = int(self.lengths.sum())
        if len(self.ids) != tokens:
            raise ValueError(f"ids: expected one row a token, {tokens}, found {len(self.ids)}")
        if self.values is not None:
            _check("values", self.values, np.float32, 2)
            if self.values.shape != self.ids.shape:
                raise ValueError(
                    f"values: expected the shape of ids {self.ids.shape}, found {self.values.shape}"
                )
        if self.edge_ids is not None:
            _check("edge_ids", self.edge_ids, np.int32, 2)
            if len(self.edge_ids) != tokens:
                raise ValueError(
                    f"edge_ids: expected one row a token, {tokens}, found {len(self.edge_ids)}"
                )


def _check(name: str, array: np.ndarray, dtype: type[np.generic], dimensions: int) -> None:
    if array.dtype != dtype or array.ndim != dimensions:
        raise ValueError(
            f"{name}: expected {dimensions} dimensions of {np.dtype(dtype)}, "
            f"found {array.ndim} of {array.dtype}"
        )
