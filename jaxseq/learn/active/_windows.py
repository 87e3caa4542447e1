"""Windows of tokens by span entropy."""

from __future__ import annotations

import math

import numpy as np

from jaxseq.learn.active._plain import Look, Query
from jaxseq.learn.active._strategies import Spans


def token_price(threshold: float) -> float:
    r"""The least entropy, in nats, of a token whose best label has probability δ at most.

    With :math:`m = \lfloor 1/\delta \rfloor` labels of probability δ and the rest r on one more,
    :math:`h(\delta) = -m \delta \log \delta - r \log r`; for δ ≥ ½ the entropy of a coin. A token
    that is less sure than δ has more.

    Example:
        >>> round(token_price(0.9), 4), round(token_price(0.5), 4), abs(token_price(1.0))
        (0.3251, 0.6931, 0.0)
    """
    whole = math.floor(1 / threshold + 1e-12)
    rest = max(0.0, 1 - whole * threshold)
    return -whole * threshold * math.log(threshold) - (rest * math.log(rest) if rest else 0.0)


def window_scores(look: Look, known: np.ndarray, strategy: Spans) -> np.ndarray:
    """[width, N]: the score of the window of k + 1 tokens that begins at each token.

    −inf where it does not fit into its sentence, or holds a known label. Cost O(N width).
    """
    if look.label_entropy is None or look.step_entropy is None:
        raise ValueError("look: expected one with entropies of tokens and steps, got none")
    n, price = len(known), token_price(strategy.threshold)
    scores = np.full((strategy.width, n), -np.inf)
    open_to_ask = ~known & (look.labels >= 0)
    gains = np.where(open_to_ask, look.step_entropy - price, -np.inf)
    gains[look.position == 0] = -np.inf
    scores[0] = np.where(open_to_ask, look.label_entropy - price, -np.inf)
    for k in range(1, min(strategy.width, n)):
        scores[k, : n - k] = scores[k - 1, : n - k] + gains[k:]
    return scores


def propose_windows(look: Look, known: np.ndarray, strategy: Spans) -> list[Query]:
    """The best windows that do not overlap, best first.

    The loop is over windows taken and those in their way, not over tokens.
    """
    scores = window_scores(look, known, strategy)
    extra, start = np.nonzero(scores > 0)
    order = np.lexsort((extra, start, -scores[extra, start]))
    left = len(known) if strategy.count is None else strategy.count
    sentence, position = look.sentence, look.position
    taken = np.zeros(len(known), bool)
    found: list[Query] = []
    for begin, width in zip(start[order].tolist(), (extra[order] + 1).tolist()):
        if not left:
            break
        if width > left or taken[begin : begin + width].any():
            continue
        taken[begin : begin + width] = True
        left -= width
        first = int(position[begin])
        score = float(scores[width - 1, begin])
        found.append(Query(int(sentence[begin]), first, first + width, score))
    return found


def tokens_in_windows(look: Look, known: np.ndarray, strategy: Spans) -> int:
    """Tokens of windows that are worth their price."""
    inside = np.zeros(len(known), bool)
    for k, row in enumerate(window_scores(look, known, strategy) > 0):
        for shift in range(k + 1):
            inside[shift:] |= row[: len(row) - shift]
    return int(inside.sum())
