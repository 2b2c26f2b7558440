"""Signed URLs for a store's objects: S3's own, or the server's."""

import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote, urlencode

from forge_schema.model.quantities import duration_text
from forge_schema.model.stored import SignedUrl
from forge_schema.storage import open_store
from forge_schema.storage.keys import checked, checked_digest
from forge_schema.storage.store_url import split

PATH = "/api/v1/objects/"
# The same secret signs other texts, none of which begins like this.
PURPOSE = "forge signed url 1"
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


def open_signer(
    store_url: str,
    *,
    secret: bytes,
    base_url: str,
    lasts_s: int,
    content_hash: bool = False,
    same_machine: str | None = None,
) -> Signer:
    """Open a signer of URLs that are valid for `lasts_s` seconds, at most 900.

    Objects in S3 get S3 presigned URLs. Objects in a file store get URLs of the server, which
    begin with `base_url` and are signed with its `secret`; `same_machine` is where it listens for
    workers on its machine. `content_hash` is for S3 servers that do not verify checksums; see
    `signs_content_hash`.

    Raises:
        StoreUrlInvalid: the URL does not name a store.
    """
    if not 0 < lasts_s <= LONGEST_S:
        raise ValueError(f"a signed URL lasts 1 s to {duration_text(LONGEST_S)}, not {lasts_s}")
    if split(store_url).scheme == "s3":
        # boto3 takes half a second and tens of megabytes, so it is imported only for S3.
        from forge_schema.storage.s3.signer import S3Signer  # noqa: PLC0415

        return S3Signer(store_url, lasts_s=lasts_s, content_hash=content_hash)
    open_store(store_url)
    return ServerSigner(secret, base_url=base_url, lasts_s=lasts_s, same_machine=same_machine)


def signs_content_hash(store_url: str) -> bool:
    """Tell whether `open_signer` needs `content_hash`, as a probe in this process has found."""
    if split(store_url).scheme != "s3":
        return False
    from forge_schema.storage.s3.conditions import UploadCheck, known  # noqa: PLC0415

    return known(store_url) is UploadCheck.CONTENT_HASH


@dataclass(frozen=True)
class Permit:
    """What a signature permits; `expires` is in seconds since 1970."""

    method: str
    key: str
    expires: int
    size: int = 0
    sha256: str = ""
    if_absent: bool = False
    owner: str = ""

    def text(self) -> bytes:
        """Serialise the permit. No field can contain a line break, so this is unambiguous."""
        size = f"{self.size} {self.sha256} {self.if_absent:d}"
        lines = [PURPOSE, self.method, self.key, str(self.expires), size]
        return "\n".join([*lines, quote(self.owner)] if self.owner else lines).encode()


class ServerSigner:
    """Signs with the server's secret, and verifies its own signatures."""

    def __init__(
        self,
        secret: bytes,
        *,
        base_url: str,
        lasts_s: int,
        clock: Callable[[], float] = time.time,
        same_machine: str | None = None,
    ) -> None:
        self._secret, self._base_url = secret, base_url.rstrip("/")
        self._lasts_s, self._clock = lasts_s, clock
        self._same_machine = same_machine

    def put(
        self, key: str, *, size: int, sha256: str, if_absent: bool = False, owner: str = ""
    ) -> SignedUrl:
        expires = self._expires()
        permit = Permit(
            "PUT", checked(key), expires, size, checked_digest(sha256), if_absent, owner
        )
        asked = {"size": size, "sha256": sha256, "if_absent": int(if_absent)}
        asked |= {"owner": owner} if owner else {}
        return self._signed(permit, asked, {"Content-Length": str(size)})

    def get(self, key: str) -> SignedUrl:
        return self._signed(Permit("GET", checked(key), self._expires()), {}, {})

    def is_signed(self, permit: Permit, signature: str) -> bool:
        """Tell, in constant time, whether this secret signed the permit."""
        return hmac.compare_digest(self.signature(permit).encode(), signature.encode())

    def is_over(self, permit: Permit) -> bool:
        """Tell whether the permit has expired."""
        return self._clock() >= permit.expires

    def _expires(self) -> int:
        return int(self._clock()) + self._lasts_s

    def _signed(
        self, permit: Permit, asked: dict[str, object], headers: dict[str, str]
    ) -> SignedUrl:
        query = {"expires": permit.expires, **asked, "signature": self.signature(permit)}
        url = f"{self._base_url}{PATH}{quote(permit.key)}?{urlencode(query)}"
        return SignedUrl(
            url=url,
            method=permit.method,
            headers=headers,
            expires_in_s=self._lasts_s,
            same_machine=self._same_machine,
        )

    def signature(self, permit: Permit) -> str:
        """Sign a permit."""
        return hmac.new(self._secret, permit.text(), "sha256").hexdigest()
