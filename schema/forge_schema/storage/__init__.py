"""Object storage: `s3://` and `file://` behind one interface."""

from forge_schema.storage.opening import open_store
from forge_schema.storage.store import (
    KeyInvalid,
    ObjectMissing,
    ObjectTooLarge,
    Piece,
    Progress,
    Store,
    StoredObject,
    StoreError,
    StoreUnreachable,
    StoreUrlInvalid,
)

__all__ = [
    "KeyInvalid",
    "ObjectMissing",
    "ObjectTooLarge",
    "Piece",
    "Progress",
    "Store",
    "StoreError",
    "StoreUnreachable",
    "StoreUrlInvalid",
    "StoredObject",
    "open_store",
]
