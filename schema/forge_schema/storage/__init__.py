"""Object storage: `s3://` and `file://` behind one interface, opened by a URL."""

from urllib.parse import SplitResult

from forge_schema.storage.store import (
    KeyInvalid,
    ObjectMissing,
    Objects,
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
    Taken,
)
from forge_schema.storage.store_url import folder_of, s3_place, split

__all__ = [
    "KeyInvalid",
    "ObjectMissing",
    "ObjectTooLarge",
    "Objects",
    "Piece",
    "Progress",
    "Store",
    "StoreDenied",
    "StoreError",
    "StoreUnfit",
    "StoreUnreachable",
    "StoreUrlInvalid",
    "StoredObject",
    "Taken",
    "open_store",
]


def open_store(url: str) -> Store:
    """Open the store behind `file:///folder` or `s3://bucket/prefix?endpoint_url=…&region=…`.

    Nothing is contacted yet; `Store.check` does that.

    Raises:
        StoreUrlInvalid: the URL does not name a store.
    """
    parts = split(url)
    return _open_s3(url, parts) if parts.scheme == "s3" else _open_file(url, parts)


def _open_file(url: str, parts: SplitResult) -> Store:
    folder = folder_of(url, parts)
    # Neither those who have S3 nor commands that read no object need it.
    from forge_schema.storage.file_store import FileStore  # noqa: PLC0415

    return FileStore(folder, url=url)


def _open_s3(url: str, parts: SplitResult) -> Store:
    # boto3 takes half a second and tens of megabytes to import, so only S3 users do.
    from forge_schema.storage.s3.store import S3Store  # noqa: PLC0415

    place = s3_place(url, parts)
    return S3Store(
        place.bucket, place.prefix, endpoint_url=place.endpoint_url, region=place.region, url=url
    )
