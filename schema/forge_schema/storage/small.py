"""Objects that are read into memory, although anybody may have made them large."""

from typing import Protocol

from forge_schema.model.quantities import size_text
from forge_schema.storage.store import ObjectTooLarge

# A list of what a terabyte of files consists of takes as much.
MOST_BYTES = 4 << 20


class Readable(Protocol):
    """The part of a store that reads small objects."""

    def get(self, key: str) -> bytes: ...
    def size(self, key: str) -> int | None: ...


def small(store: Readable, key: str, most: int = MOST_BYTES) -> bytes:
    """Return an object that is no larger than it may be.

    Raises:
        ObjectMissing: it does not exist.
        ObjectTooLarge: it is larger.
    """
    size = store.size(key)
    if size is not None and size > most:
        limit = size_text(most)
        raise ObjectTooLarge(f"the object {key} has {size_text(size)}; {limit} are read at once")
    return store.get(key)
