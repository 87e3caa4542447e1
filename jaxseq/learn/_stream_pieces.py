"""Which part of a batch is whose, where many devices train on shards of one corpus.

The shards of a corpus are dealt out to streams: stream g of G has those whose number is g modulo G.
A batch has rows of every stream. A place, one along ``"data"`` of a mesh, works on all rows of some
streams, or where there are more places than streams, on some rows of one stream. So what a batch
is depends on the number of streams, and not on that of places.
"""

from __future__ import annotations

from typing import NamedTuple


class Piece(NamedTuple):
    """What a place takes of a stream: of its rows in a batch, each `parts`-th from `part` on."""

    stream: int
    part: int = 0
    parts: int = 1


def deal_streams(streams: int, places: int) -> list[list[Piece]]:
    """The pieces of each place: neighbours have neighbouring streams, or share one.

    Example:
        >>> deal_streams(2, 1)
        [[Piece(stream=0, part=0, parts=1), Piece(stream=1, part=0, parts=1)]]
        >>> deal_streams(1, 2)
        [[Piece(stream=0, part=0, parts=2)], [Piece(stream=0, part=1, parts=2)]]
    """
    if places <= streams:
        owners = [stream * places // streams for stream in range(streams)]
        return [
            [Piece(stream) for stream in range(streams) if owners[stream] == place]
            for place in range(places)
        ]
    chosen = [place * streams // places for place in range(places)]
    return [
        [Piece(stream, place - chosen.index(stream), chosen.count(stream))]
        for place, stream in enumerate(chosen)
    ]
