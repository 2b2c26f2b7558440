"""Open a signer of URLs for a store's objects."""

from typing import Protocol

from forge_schema.model.stored import SignedUrl
from forge_schema.storage.errors import ObjectTooLarge
from forge_schema.storage.opening import open_store, split
from forge_schema.storage.server_signer import ServerSigner

__all__ = ["LONGEST_S", "ObjectTooLarge", "Signer", "open_signer"]

LONGEST_S = 900


class Signer(Protocol):
    """Signs URLs of the objects in one store, without contacting it."""

    def put(
        self, key: str, *, size: int, sha256: str, if_absent: bool = False, owner: str = ""
    ) -> SignedUrl:
        """Permit an upload of `size` bytes with this SHA-256, in lower-case hexadecimal.

        With `if_absent` the store answers 412 if the object exists. An `owner` is stored as the
        one who uploaded it.

        Raises:
            KeyInvalid: the key or the digest is not valid.
            ObjectTooLarge: it does not fit into one request.
            StoreUnreachable: there are no credentials to sign with.
        """

    def get(self, key: str) -> SignedUrl:
        """Permit a download of an object, whether or not it exists.

        Raises:
            KeyInvalid: the key is not valid.
            StoreUnreachable: there are no credentials to sign with.
        """


def open_signer(store_url: str, *, secret: bytes, base_url: str, lasts_s: int) -> Signer:
    """Open a signer of URLs that are valid for `lasts_s` seconds, at most 900.

    Objects in S3 get S3 presigned URLs. Objects in a file store get URLs of the server, which
    begin with `base_url` and are signed with its `secret`.

    Raises:
        StoreUrlInvalid: the URL does not name a store.
    """
    if not 0 < lasts_s <= LONGEST_S:
        raise ValueError(f"a signed URL lasts 1 to {LONGEST_S} seconds, not {lasts_s}")
    if split(store_url).scheme == "s3":
        # boto3 takes half a second and tens of megabytes: only who uses S3 pays.
        from forge_schema.storage.s3.signer import S3Signer  # noqa: PLC0415

        return S3Signer(store_url, lasts_s=lasts_s)
    open_store(store_url)
    return ServerSigner(secret, base_url=base_url, lasts_s=lasts_s)
