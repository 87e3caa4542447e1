"""Corpora larger than memory: shards on disk, and training from them."""

from jaxseq.shards._files import SHARD_TOKENS as SHARD_TOKENS
from jaxseq.shards._files import read_index as read_index
from jaxseq.shards._files import write_shards as write_shards
from jaxseq.shards._training import StreamedCorpus as StreamedCorpus
from jaxseq.shards._training import train_from_shards as train_from_shards

__all__ = [
    "StreamedCorpus",
    "train_from_shards",
    "write_shards",
]
"""What users call; the other names are for the packages of jaxseq itself."""
