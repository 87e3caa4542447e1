"""What an evaluation of the objective costs on paper: a roofline for a token, a ring for a step.

The supervised objective and its gradient, float32, for tokens with `attributes` active attributes
each and `labels` labels:

- node scores: `attributes` rows of the table of weights are read and added; the gradient adds as
  many rows of marginals back, each of them read and written;
- lattice: forward and backward messages and the sum of edge marginals, 2 · labels² operations
  each, and about 10 operations a label for exponentials, scales and products; node scores and
  messages are read and written about six times.

Weights are read and written where they lie, so that what a token moves does not depend on how many
there are. A step adds one all-reduce of the gradient, by a ring: each of P devices sends and
receives 2 (P − 1) / P of its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

FLOAT = 4
"""Bytes."""


@dataclass(frozen=True)
class Work:
    """An evaluation of the objective.

    Args:
        tokens: of the corpus. attributes: active on a token, on average. labels: s, as padded in
            the tables. weights: that are learnt.
    """

    tokens: int
    attributes: float
    labels: int
    weights: int

    @property
    def flops_per_token(self) -> float:
        """Floating-point operations, an exponential counting as one."""
        sums = 2 * self.attributes * self.labels
        return sums + 6 * self.labels**2 + 10 * self.labels

    @property
    def bytes_per_token(self) -> float:
        """Read and written: one reading and two for adding back of each row, six of a lattice's."""
        return FLOAT * self.labels * (3 * self.attributes + 6)

    @property
    def all_reduce_bytes(self) -> int:
        """Of the gradient."""
        return FLOAT * self.weights


@dataclass(frozen=True)
class Machine:
    """A device and what joins it to the others.

    Args:
        name: of the kind. flops: a second, that matrix products of this size reach. bandwidth:
            bytes a second of its memory. link: bytes a second to a neighbour. latency: seconds of
            an all-reduce of nothing, for each step of the ring.
    """

    name: str
    flops: float
    bandwidth: float
    link: float
    latency: float

    def tokens_per_second(self, work: Work) -> float:
        """Of one device: by arithmetic or by memory, whichever is slower."""
        seconds = max(work.flops_per_token / self.flops, work.bytes_per_token / self.bandwidth)
        return 1 / seconds


def all_reduce_seconds(work: Work, devices: int, link: float, latency: float = 0.0) -> float:
    """By a ring.

    Example:
        >>> all_reduce_seconds(Work(1, 1, 1, weights=1_000_000), devices=2, link=4e6)
        1.0
    """
    if devices == 1:
        return 0.0
    share = 2 * (devices - 1) / devices
    return share * work.all_reduce_bytes / link + 2 * (devices - 1) * latency


def predicted_tokens_per_second(
    work: Work, devices: int, each: float, link: float, latency: float = 0.0
) -> float:
    """Of all devices together, when each has an equal share of the corpus.

    Args:
        work: an evaluation. devices: P. each: tokens a second of one device alone. link, latency:
            as of `Machine`.

    Example:
        >>> predicted_tokens_per_second(Work(1000, 1, 1, weights=0), 2, each=100.0, link=1.0)
        200.0
    """
    computing = work.tokens / devices / each
    return work.tokens / (computing + all_reduce_seconds(work, devices, link, latency))
