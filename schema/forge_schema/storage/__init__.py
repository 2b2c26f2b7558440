"""Object storage: `s3://` and `file://` behind one interface."""

from forge_schema.storage.errors import (
    KeyInvalid,
    ObjectMissing,
    ObjectTooLarge,
    StoreError,
    StoreUnreachable,
    StoreUrlInvalid,
)
from forge_schema.storage.opening import open_store
from forge_schema.storage.store import Progress, Store, StoredObject

__all__ = [
    "KeyInvalid",
    "ObjectMissing",
    "ObjectTooLarge",
    "Progress",
    "Store",
    "StoreError",
    "StoreUnreachable",
    "StoreUrlInvalid",
    "StoredObject",
    "open_store",
]
