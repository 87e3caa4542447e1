"""From what a model says of the pool to what to ask."""

from __future__ import annotations

import numpy as np

from jaxseq.learn.active._groups import propose_groups
from jaxseq.learn.active._plain import Look, Proposal, Query
from jaxseq.learn.active._ranks import rank_among_equals
from jaxseq.learn.active._strategies import Groups, Sequences, Strategy, Tokens
from jaxseq.learn.active._windows import propose_windows, tokens_in_windows

NONE = np.zeros(0, np.int64)


def propose(
    look: Look, known: np.ndarray, strategy: Strategy, *, sampled: np.ndarray | None = None
) -> Proposal:
    """What to ask next.

    Args:
        look: what the model says of the pool.
        known: bool [N], tokens that have a label, from the annotator or the model; they are never
            asked.
        strategy: `Tokens`, `Groups`, `Spans` or `Sequences`.
        sampled: bool [B], sentences that `Sequences` has chosen before; None for none.

    Returns:
        A `Proposal`: queries, the least sure first (by `Groups` the most valuable), equal ones in
        the order of the pool; and tokens that take the model's label.

    Example:
        >>> import numpy as np
        >>> look = Look(np.array([0, 1, 0]), np.array([0.7, 0.6, 0.95]), np.array([2, 1]))
        >>> propose(look, np.array([False, False, False]), Tokens(1, 0.9)).queries
        [Query(sentence=0, start=1, stop=2, score=0.4)]

    Cost: O(N log N); no loop over tokens in Python but for those that are asked.

    Reference:
        Wanvarie et al. 2011, sections 4.1 and 5.4.
    """
    known = _check_known(look, known)
    if isinstance(strategy, Tokens):
        return Proposal(_unsure_tokens(look, known, strategy), NONE, NONE, NONE)
    if isinstance(strategy, Groups):
        return Proposal(propose_groups(look, known, strategy), NONE, NONE, NONE)
    if isinstance(strategy, Sequences):
        return _whole_sentences(look, known, strategy, sampled)
    return Proposal(propose_windows(look, known, strategy), NONE, NONE, NONE)


def informative(
    look: Look, known: np.ndarray, strategy: Strategy, *, sampled: np.ndarray | None = None
) -> int:
    """How many units there are that the strategy could still ask: tokens, or sentences.

    Args: as of `propose`.

    Example:
        >>> import numpy as np
        >>> look = Look(np.array([0, 1, 0]), np.array([0.7, 0.6, 0.95]), np.array([2, 1]))
        >>> informative(look, np.array([True, False, False]), Tokens(1, 0.9))
        1
    """
    known = _check_known(look, known)
    if isinstance(strategy, Tokens | Groups):
        return int(_is_unsure(look, known, strategy.threshold).sum())
    if isinstance(strategy, Sequences):
        return int(_candidates(look, known, strategy, sampled).sum())
    return tokens_in_windows(look, known, strategy)


def _check_known(look: Look, known: np.ndarray) -> np.ndarray:
    known = np.asarray(known)
    if known.shape != look.labels.shape or known.dtype != bool:
        raise ValueError(
            f"known: expected bool of shape {list(look.labels.shape)}, got {known.dtype} of shape "
            f"{list(known.shape)}"
        )
    return known


# ------------------------------------------------------------------------------------ tokens


def _is_unsure(look: Look, known: np.ndarray, threshold: float) -> np.ndarray:
    return ~known & (look.confidence < threshold)


def _unsure_tokens(look: Look, known: np.ndarray, strategy: Tokens) -> list[Query]:
    places = np.flatnonzero(_is_unsure(look, known, strategy.threshold))
    chosen = places[np.argsort(look.confidence[places], kind="stable")]
    if strategy.per_sentence is not None:
        chosen = chosen[rank_among_equals(look.sentence[chosen]) < strategy.per_sentence]
    if strategy.per_form is not None:
        if look.forms is None:
            raise ValueError("look.forms: expected the word forms of the tokens, got None")
        chosen = chosen[rank_among_equals(look.forms[chosen]) < strategy.per_form]
    chosen = chosen[: strategy.count]
    columns = (look.sentence[chosen], look.position[chosen], 1 - look.confidence[chosen])
    return [Query(s, t, t + 1, score) for s, t, score in zip(*(c.tolist() for c in columns))]


# --------------------------------------------------------------------------------- sentences


def _candidates(
    look: Look, known: np.ndarray, strategy: Sequences, sampled: np.ndarray | None
) -> np.ndarray:
    """bool [B]: sentences with something to ask, that were not chosen before."""
    count = len(look.lengths)
    wanted = np.bincount(look.sentence[_wanted(look, known, strategy)], minlength=count) > 0
    if sampled is None or strategy.again:
        return wanted
    sampled = np.asarray(sampled)
    if sampled.shape != (count,) or sampled.dtype != bool:
        raise ValueError(
            f"sampled: expected bool of shape [{count}], got {sampled.dtype} of shape "
            f"{list(sampled.shape)}"
        )
    return wanted & ~sampled


def _wanted(look: Look, known: np.ndarray, strategy: Sequences) -> np.ndarray:
    """Tokens for whose sake a sentence may be chosen.

    Where each is chosen once, any without a label; where it may come again, only those that it
    would get one for, or it would come for ever. A sentence that no labelling is legal for has
    nothing to learn from.
    """
    open_to_ask = ~known & (look.labels >= 0)
    if not strategy.again or strategy.ask == "all":
        return open_to_ask
    asked = (look.confidence < strategy.threshold) & (strategy.ask == "unsure")
    return open_to_ask & (asked | _takes_guess(look, strategy))


def _takes_guess(look: Look, strategy: Sequences) -> np.ndarray:
    if strategy.keep_sure == "open" or strategy.ask == "all":
        return np.zeros(len(look.labels), bool)
    return look.confidence >= strategy.threshold


def _doubt(look: Look, strategy: Sequences) -> np.ndarray:
    """[B]: how unsure the model is of each sentence."""
    if strategy.by not in look.sequence:
        raise ValueError(
            f"look.sequence: expected {strategy.by!r}, got only {sorted(look.sequence)}"
        )
    score = look.sequence[strategy.by]
    return -score if strategy.by == "viterbi" else score


def _whole_sentences(
    look: Look, known: np.ndarray, strategy: Sequences, sampled: np.ndarray | None
) -> Proposal:
    doubt = _doubt(look, strategy)
    candidates = np.flatnonzero(_candidates(look, known, strategy, sampled))
    chosen = candidates[np.argsort(-doubt[candidates], kind="stable")][: strategy.count]
    rank = np.full(len(look.lengths), len(chosen))
    rank[chosen] = np.arange(len(chosen))
    inside = ~known & (rank[look.sentence] < len(chosen))
    asked = inside
    if strategy.ask != "all":
        asked = inside & (look.confidence < strategy.threshold) & (strategy.ask == "unsure")
    guesses = np.flatnonzero(inside & _takes_guess(look, strategy))
    queries = _runs(look, asked, rank, doubt)
    return Proposal(queries, guesses, look.labels[guesses].astype(np.int64), chosen)


def _runs(look: Look, asked: np.ndarray, rank: np.ndarray, doubt: np.ndarray) -> list[Query]:
    """Neighbours that are asked, as one query; by rank of sentence, then by place."""
    sentence, position = look.sentence, look.position
    goes_on = np.zeros(len(asked), bool)  # the token before it is asked, too
    goes_on[1:] = asked[1:] & asked[:-1] & (position[1:] > 0)
    ends = asked.copy()
    ends[:-1] &= ~goes_on[1:]
    starts, stops = np.flatnonzero(asked & ~goes_on), np.flatnonzero(ends)
    order = np.argsort(rank[sentence[starts]], kind="stable")
    starts, stops = starts[order], stops[order]
    of = sentence[starts]
    columns = (of, position[starts], position[stops] + 1, doubt[of])
    return [Query(*row) for row in zip(*(column.tolist() for column in columns))]
