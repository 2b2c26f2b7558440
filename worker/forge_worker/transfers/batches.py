"""Batches of what fits in memory, to be sent or fetched together."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from forge_schema.protocol.messages import OBJECTS
from forge_schema.storage.chunks import CHUNK_BYTES

T = TypeVar("T")


def batches(sized: Iterable[tuple[T, int]], most: int = CHUNK_BYTES) -> Iterator[list[T]]:
    """Split into lists of at most `OBJECTS` items and `most` bytes, or of one larger item."""
    batch: list[T] = []
    room = most
    for item, size in sized:
        if batch and (size > room or len(batch) == OBJECTS):
            yield batch
            batch, room = [], most
        batch.append(item)
        room -= size
    if batch:
        yield batch
