"""Which objects are a job's code: its bundle, and the segments of a large one."""

from functools import lru_cache

from forge_schema.model.bundles import MOST_LIST_BYTES, segments_in
from forge_schema.storage import keys
from forge_schema.storage.store import ObjectMissing, Store


def is_code(digest: str, key: str, store: Store) -> bool:
    """Tell whether a key is the bundle with this digest, or one of its segments."""
    if not key.startswith(keys.SEGMENTS):
        return key == keys.bundle(digest)
    try:
        return key in _segments(store, digest)  # type: ignore[arg-type]  # a protocol has no hash
    except ObjectMissing:
        return False


# A bundle never changes, and its segments are asked for in many requests.
@lru_cache(maxsize=64)
def _segments(store: Store, digest: str) -> frozenset[str]:
    """Return the keys of a bundle's segments.

    Raises:
        ObjectMissing: it is not stored, or is a single archive.
    """
    key = keys.bundle(digest)
    size = store.size(key)
    listed = store.get(key) if size is not None and size <= MOST_LIST_BYTES else b""
    if not (found := segments_in(listed, digest)):
        raise ObjectMissing(f"{key} is no list of segments")
    return frozenset(keys.segment(one.sha256) for one in found)
