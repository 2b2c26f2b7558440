"""How a server verifies what is uploaded with a signed URL, found out by trying."""

import hashlib
import secrets
from contextlib import suppress
from enum import StrEnum
from threading import Lock
from typing import TYPE_CHECKING

import botocore.session
from botocore.awsrequest import AWSRequest
from botocore.httpsession import URLLib3Session

from forge_schema.storage import keys
from forge_schema.storage.opening import s3_place, split
from forge_schema.storage.s3.client import proxies_of, translated
from forge_schema.storage.s3.conditions import PASSING
from forge_schema.storage.s3.signer import AMAZON, S3Signer
from forge_schema.storage.store import StoreUnreachable

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from forge_schema.model.stored import SignedUrl

RIGHT, WRONG = b"what was signed for", b"what nobody expects"
LASTS_S = 60
PATIENCE_S = 30


class UploadCheck(StrEnum):
    """What a server compares a body with."""

    CHECKSUM = "checksum"
    """The signed checksum, as S3 does."""
    CONTENT_HASH = "content hash"
    """Only the hash that is part of the signature."""
    NONE = "none"
    """Nothing: whoever relies on an object's content must read it."""


_known: dict[str, UploadCheck] = {}
_finding = Lock()


def upload_check(url: str) -> UploadCheck:
    """Return how the server of a store's URL verifies uploads. It is asked once per process.

    Raises:
        StoreError: it does not answer.
    """
    with _finding:
        if url not in _known:
            _known[url] = find(url)
        return _known[url]


def known(url: str) -> UploadCheck | None:
    """Return what `upload_check` has found in this process, or None."""
    return _known.get(url)


def find(url: str) -> UploadCheck:
    """Upload a right and a wrong body, in each way; see `upload_check`."""
    place = s3_place(url, split(url))
    client = S3Signer(url, lasts_s=LASTS_S).client
    if client.meta.endpoint_url.endswith(AMAZON):
        return UploadCheck.CHECKSUM
    key = f"{keys.PROBE}{secrets.token_hex(12)}"
    try:
        for check in (UploadCheck.CHECKSUM, UploadCheck.CONTENT_HASH):
            if _holds(url, key, client, content_hash=check is UploadCheck.CONTENT_HASH):
                return check
    finally:
        name = "/".join(filter(None, (place.prefix, key)))
        with suppress(Exception):  # the next probe deletes it
            client.delete_object(Bucket=place.bucket, Key=name)
    return UploadCheck.NONE


def _holds(url: str, key: str, client: "S3Client", *, content_hash: bool) -> bool:
    """Tell whether a wrong body is refused, and the right one is not."""
    signer = S3Signer(url, lasts_s=LASTS_S, content_hash=content_hash)
    digest = hashlib.sha256(RIGHT).hexdigest()
    signed = signer.put(key, size=len(RIGHT), sha256=digest, owner="probe")
    with translated("an upload", url):
        return not sent(client, signed, WRONG) and sent(client, signed, RIGHT)


def sent(client: "S3Client", signed: "SignedUrl", body: bytes) -> bool:
    """Send a body to a signed URL; tell whether it was stored, or refused for good.

    Raises:
        StoreUnreachable: the server fails now, which says nothing about the body.
        BotoCoreError: the server does not answer.
    """
    verify = botocore.session.get_session().get_config_variable("ca_bundle")
    session = URLLib3Session(
        verify=verify or True,
        proxies=proxies_of(client.meta.endpoint_url) or {},
        timeout=PATIENCE_S,
    )
    try:
        request = AWSRequest(signed.method, signed.url, headers=signed.headers, data=body)
        status = session.send(request.prepare()).status_code
    finally:
        session.close()
    if status in PASSING:
        raise StoreUnreachable(f"the store answers {status} to an upload", hint="try again later")
    return 200 <= status < 300  # noqa: PLR2004
