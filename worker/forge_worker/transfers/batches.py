"""Batches of what fits in memory, to be sent or fetched together."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from forge_schema.protocol.messages import OBJECTS
from forge_schema.storage.chunks import CHUNK_BYTES

T = TypeVar("T")


def batches(sized: Iterable[tuple[T, int]]) -> Iterator[list[T]]:
    """Split into lists of at most `OBJECTS` items and `CHUNK_BYTES`, or of one larger item."""
    batch: list[T] = []
    room = CHUNK_BYTES
    for item, size in sized:
        if batch and (size > room or len(batch) == OBJECTS):
            yield batch
            batch, room = [], CHUNK_BYTES
        batch.append(item)
        room -= size
    if batch:
        yield batch
