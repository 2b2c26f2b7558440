"""Object storage: `s3://` and `file://` behind one interface."""

from forge_schema.storage.opening import open_store
from forge_schema.storage.store import (
    KeyInvalid,
    ObjectMissing,
    ObjectTooLarge,
    Piece,
    Progress,
    Store,
    StoreDenied,
    StoredObject,
    StoreError,
    StoreUnfit,
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
    "StoreDenied",
    "StoreError",
    "StoreUnfit",
    "StoreUnreachable",
    "StoreUrlInvalid",
    "StoredObject",
    "open_store",
]
