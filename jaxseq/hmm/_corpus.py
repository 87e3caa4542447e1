"""Sequences of words, laid out for the E-step: packed rows, cut into one shard per core."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, ArrayLike, Bool, Int

from jaxseq._runtime import usable_cores
from jaxseq.crf import UNKNOWN, lay_out

# -------------------------------------------------------------------------------------------------
# The words that a model of discrete sequences knows, and the one that stands for all others.


UNKNOWN_WORD = 0
"""The number of the unknown word in every vocabulary."""


class WordVocabulary:
    """Words numbered from 1, in the order in which they first occur; 0 is the unknown word.

    Args:
        sentences: sequences of words.
        min_count: a word seen less often in them is unknown (5 in the paper).

    Example:
        >>> vocabulary = WordVocabulary([["a", "b", "a"], ["c", "b"]], min_count=2)
        >>> vocabulary.words, len(vocabulary)
        (['a', 'b'], 3)
        >>> [ids.tolist() for ids in vocabulary.encode([["b", "c", "d"], []])]
        [[2, 0, 0], []]

    References:
        Haffari & Sarkar 2008, section 5: words seen less than 5 times become the unknown word.
    """

    def __init__(self, sentences: Iterable[Sequence[str]], *, min_count: int = 5):
        if min_count < 1:
            raise ValueError(f"min_count: expected 1 or more, got {min_count}")
        counts = Counter(word for sentence in sentences for word in sentence)
        # A Counter keeps the order of first occurrence.
        kept = (word for word, count in counts.items() if count >= min_count)
        self._numbers = {word: number for number, word in enumerate(kept, UNKNOWN_WORD + 1)}

    @property
    def words(self) -> list[str]:
        """The known words, in the order of their numbers."""
        return list(self._numbers)

    @property
    def unknown(self) -> int:
        """The number of the unknown word."""
        return UNKNOWN_WORD

    def __len__(self) -> int:
        """v: the known words and the unknown one."""
        return len(self._numbers) + 1

    def encode(self, sentences: Iterable[Sequence[str]]) -> list[np.ndarray]:
        """The numbers of the words of each sentence."""
        find = self._numbers.get
        return [
            np.fromiter((find(word, UNKNOWN_WORD) for word in sentence), np.int32, len(sentence))
            for sentence in sentences
        ]


Words = ArrayLike | Sequence
"""Numbers of words, or what is known of their labels, for one sequence."""

MOST_ROWS = 512
"""Rows that the E-step works on at a time: bounds the memory of its messages."""


class WordShard(eqx.Module):
    """Some rows of a corpus in b blocks of c rows of w slots, rows innermost.

    Attributes:
        words: their numbers, 0 on padding.
        segments: the sequence of the shard that a slot belongs to, −1 on padding.
        allowed: which labels a slot may have, or None when it may have any.
        num_sequences: of the shard.
    """

    words: Int[Array, "b w c"]
    segments: Int[Array, "b w c"]
    allowed: Bool[Array, "b w s c"] | None
    num_sequences: int = eqx.field(static=True)


@dataclass(frozen=True)
class WordCorpus:
    """Sequences of words, and what is known of their labels. Made by `word_corpus`.

    Attributes:
        words: int32 [N], of all tokens one after another.
        lengths: [B], all positive.
        labels: int32 [N], −1 where not known.
        allowed: bool [N, s], or None when there is nothing to exclude or every label is known.
        index: [B], the place of each sequence among those that were given, which may have had
            empty ones between them.
        num_words: v.
        num_labels: s, or None without labels.
        cores: how many shards.
        width: slots in a row, or None.
    """

    words: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray
    allowed: np.ndarray | None
    index: np.ndarray
    num_words: int
    num_labels: int | None
    cores: int
    width: int | None

    @property
    def num_sequences(self) -> int:
        """B: sequences with at least one token."""
        return len(self.lengths)

    @property
    def num_tokens(self) -> int:
        """N."""
        return len(self.words)

    @property
    def is_labelled(self) -> bool:
        """Whether every label is known."""
        return bool((self.labels >= 0).all())

    @cached_property
    def _placed(self) -> tuple[list[WordShard], list[np.ndarray]]:
        return _make_shards(self)

    @property
    def shards(self) -> list[WordShard]:
        """On the device, of equal shapes, one per core."""
        return self._placed[0]

    @property
    def owners(self) -> list[np.ndarray]:
        """For each shard, which sequences of the corpus its segments are."""
        return self._placed[1]

    @cached_property
    def _on_meshes(self) -> dict[Mesh, WordShard]:
        return {}

    def on(self, mesh: Mesh) -> WordShard:
        """The shards on the devices of a mesh of `jaxseq.parallel.make_mesh`, placed once.

        Where the mesh spans several processes, this corpus is the part of this one, which may be
        empty.
        """
        from jaxseq.hmm._counts import place_words  # which needs this module

        if mesh not in self._on_meshes:
            self._on_meshes[mesh] = place_words(self, mesh)
        return self._on_meshes[mesh]


def word_corpus(
    sequences: Sequence[Words],
    num_words: int,
    *,
    labels: Sequence[Words | None] | None = None,
    num_labels: int | None = None,
    unknown: int | None = None,
    cores: int | None = None,
    width: int | None = None,
) -> WordCorpus:
    """Lay sequences of word numbers out for counting.

    Args:
        sequences: integers [n] each; empty ones are left out, and do not count as sequences.
        num_words: v; the words are 0 … v − 1.
        labels: for each sequence None, integers [n] with −1 where the label is not known, or
            booleans [n, s] with the labels that are possible; None when nothing is known.
        num_labels: s; needed with labels.
        unknown: the word that all numbers outside 0 … v − 1 become; None refuses them.
        cores: how many shards; by default as many as the machine has cores.
        width: slots in a row, as in `jaxseq.pack`.

    Raises:
        ValueError: for words, labels or shapes that do not fit, with the place.

    Cost: O(N s) on the host.

    Example:
        >>> corpus = word_corpus([[0, 2], [], [1]], 3, labels=[[0, 1], [], [-1]], num_labels=2)
        >>> corpus.num_sequences, corpus.num_tokens, corpus.is_labelled
        (2, 3, False)
    """
    if num_words < 1:
        raise ValueError(f"num_words: expected 1 or more, got {num_words}")
    if unknown is not None and not 0 <= unknown < num_words:
        raise ValueError(f"unknown: expected a word, 0 … {num_words - 1}, got {unknown}")
    arrays = [_as_words(f"sequences[{q}]", words) for q, words in enumerate(sequences)]
    index = np.array([q for q, array in enumerate(arrays) if len(array)], np.int64)
    lengths = np.array([len(arrays[q]) for q in index], np.int64)
    words = np.concatenate([*arrays, np.zeros(0, np.int64)])
    outside = (words < 0) | (words >= num_words)
    if outside.any() and unknown is None:
        q, t = _place(int(np.flatnonzero(outside)[0]), lengths)
        raise ValueError(
            f"sequences[{index[q]}][{t}]: expected a word, 0 … {num_words - 1}, or an unknown word "
            f"to take its place, got {words[outside][0]}"
        )
    # Known to be in bounds from here on: the E-step does not look again.
    words = np.where(outside, unknown if unknown is not None else 0, words).astype(np.int32)
    known, allowed = np.full(len(words), UNKNOWN, np.int32), None
    if labels is not None:
        known, allowed = _read_labels(labels, arrays, num_labels)
    cores = usable_cores() if cores is None else cores
    if cores < 1:
        raise ValueError(f"cores: expected 1 or more, got {cores}")
    if width is not None and width < lengths.max(initial=1):
        raise ValueError(f"width: expected at least {lengths.max(initial=1)}, got {width}")
    return WordCorpus(
        words, lengths, known, allowed, index, num_words, num_labels, cores, width
    )  # fmt: skip


def _as_words(name: str, words: Words) -> np.ndarray:
    array = np.asarray(words)
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise ValueError(
            f"{name}: expected integers of shape [n], got dtype {array.dtype.name} "
            f"of shape {list(array.shape)}"
        )
    return array.astype(np.int64)


def _place(token: int, lengths: np.ndarray) -> tuple[int, int]:
    """The sequence that a token belongs to, and its position there."""
    ends = np.cumsum(lengths)
    q = int(np.searchsorted(ends, token, side="right"))
    return q, token - int(ends[q] - lengths[q])


def _read_labels(
    labels: Sequence[Words | None], arrays: list[np.ndarray], num_labels: int | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Known labels [N], and the possible ones [N, s] unless all are known."""
    if num_labels is None or num_labels < 1:
        raise ValueError(f"num_labels: expected 1 or more to go with labels, got {num_labels}")
    if len(labels) != len(arrays):
        raise ValueError(f"labels: expected {len(arrays)}, one per sequence, got {len(labels)}")
    possible = [np.zeros((0, num_labels), bool)]
    for q, (known, words) in enumerate(zip(labels, arrays)):
        possible.append(_possible_labels(f"labels[{q}]", known, len(words), num_labels))
    allowed = np.concatenate(possible)
    # One possible label is a known one, however it was given.
    single = allowed.sum(1) == 1
    known = np.where(single, allowed.argmax(1), UNKNOWN).astype(np.int32)
    return known, None if single.all() or allowed.all() else allowed


def _possible_labels(name: str, labels: Words | None, n: int, s: int) -> np.ndarray:
    """Booleans [n, s]."""
    if labels is None or n == np.size(labels) == 0:
        return np.ones((n, s), bool)
    array = np.asarray(labels)
    if array.dtype == bool and array.shape == (n, s):
        if not array.any(1).all():
            raise ValueError(f"{name}[{int(array.any(1).argmin())}]: expected a possible label")
        return array
    if array.shape != (n,) or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            f"{name}: expected integers of shape [{n}] or booleans of shape [{n}, {s}], got dtype "
            f"{array.dtype.name} of shape {list(array.shape)}"
        )
    wrong = np.flatnonzero((array < UNKNOWN) | (array >= s))
    if len(wrong):
        raise ValueError(
            f"{name}[{wrong[0]}]: expected −1 (not known) or a label, 0 … {s - 1}, "
            f"got {array[wrong[0]]}"
        )
    return (array[:, None] == np.arange(s)) | (array[:, None] == UNKNOWN)


def _make_shards(corpus: WordCorpus) -> tuple[list[WordShard], list[np.ndarray]]:
    """The device's arrays, and whose each segment is."""
    layout = lay_out(corpus.lengths, corpus.cores, width=corpus.width)
    # Blocks as even as can be: the rows that fill the last one up cost as much as others.
    blocks = -(-layout.rows // MOST_ROWS)
    rows = -(-layout.rows // blocks)
    sequence = np.repeat(np.arange(corpus.num_sequences), corpus.lengths)
    allowed = corpus.allowed
    if allowed is None and corpus.num_labels is not None and (corpus.labels >= 0).any():
        allowed = corpus.labels[:, None] == np.arange(corpus.num_labels)
    shards, owners = [], []
    for core in range(corpus.cores):
        tokens = layout.shard == core
        slot = layout.slot[tokens]

        def place(values: np.ndarray, fill, slot=slot) -> Array:
            array = np.full((blocks * rows * layout.width, *values.shape[1:]), fill, values.dtype)
            array[slot] = values
            array = array.reshape(blocks, rows, layout.width, *values.shape[1:])
            # Rows innermost: a slot's labels of all rows are then one piece of memory.
            return jnp.asarray(np.ascontiguousarray(np.moveaxis(array, 1, -1)))

        owner, segments = np.unique(sequence[tokens], return_inverse=True)
        shards.append(
            WordShard(
                words=place(corpus.words[tokens], 0),
                segments=place(segments.astype(np.int32), -1),
                allowed=None if allowed is None else place(allowed[tokens], True),
                num_sequences=layout.sequences,
            )
        )
        owners.append(owner)
    return shards, owners
