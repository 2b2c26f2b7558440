"""How a server keeps conditions of writes and verifies uploads at signed URLs, found by trying."""

import hashlib
import secrets
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock
from typing import TYPE_CHECKING

import botocore.session
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError, ClientError
from botocore.httpsession import URLLib3Session

from forge_schema.storage import keys
from forge_schema.storage.s3.client import EXISTS, FORBIDDEN, proxies_of, status_of, translated
from forge_schema.storage.s3.signer import AMAZON, S3Signer
from forge_schema.storage.store import StoreUnreachable
from forge_schema.storage.store_url import s3_place, split

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client

    from forge_schema.model.stored import SignedUrl

PASSING = {408, 429, 500, 502, 503, 504}

RIGHT, WRONG = b"what was signed for", b"what nobody expects"
LASTS_S = 60
PATIENCE_S = 30


@dataclass(frozen=True)
class Conditions:
    """Whether `If-None-Match: *` holds, when an object is put and when its upload is completed.

    `answers` are what the server answers where it does not.
    """

    put: bool
    complete: bool
    answers: tuple[str, str] = ("", "")


def find(client: "S3Client", bucket: str, name: str) -> Conditions:
    """Try both on an object of this name, and delete it.

    Raises:
        BotoCoreError, ClientError: the server does not answer, or denies access.
    """
    try:
        client.put_object(Bucket=bucket, Key=name, Body=b"first")
        put, answer = _held(
            lambda: client.put_object(Bucket=bucket, Key=name, Body=b"second", IfNoneMatch="*")
        )
        complete, also = _held(
            lambda: upload_in_parts(client, bucket, name, b"second", if_absent=True)
        )
    finally:
        with suppress(ClientError, BotoCoreError):
            client.delete_object(Bucket=bucket, Key=name)
    return Conditions(put, complete, (answer, also))


def _held(write: "Callable[[], object]") -> tuple[bool, str]:
    try:
        write()
    except ClientError as error:
        status = status_of(error)
        if status in FORBIDDEN | PASSING:
            raise
        return status == EXISTS, f"answers {status}"
    return False, "ignores the condition"


def upload_in_parts(
    client: "S3Client", bucket: str, name: str, body: bytes, *, if_absent: bool
) -> None:
    """Write a small object by an upload in parts, of which it has one.

    Raises:
        BotoCoreError, ClientError: the server does not answer, or refuses; nothing is left behind.
    """
    upload = client.create_multipart_upload(Bucket=bucket, Key=name)["UploadId"]
    condition = {"IfNoneMatch": "*"} if if_absent else {}
    try:
        part = client.upload_part(Bucket=bucket, Key=name, UploadId=upload, PartNumber=1, Body=body)
        client.complete_multipart_upload(
            Bucket=bucket,
            Key=name,
            UploadId=upload,
            MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]},
            **condition,  # type: ignore[arg-type]  # the stubs require literal names
        )
    except BaseException:
        with suppress(ClientError, BotoCoreError):
            client.abort_multipart_upload(Bucket=bucket, Key=name, UploadId=upload)
        raise


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
            _known[url] = find_upload_check(url)
        return _known[url]


def known(url: str) -> UploadCheck | None:
    """Return what `upload_check` has found in this process, or None."""
    return _known.get(url)


def find_upload_check(url: str) -> UploadCheck:
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
