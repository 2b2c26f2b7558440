"""S3 clients: patient for transfers, impatient for the check whether S3 answers."""

import re
from threading import Thread
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from forge_schema.storage.errors import (
    StoreError,
    StoreUnreachable,
    StoreUrlInvalid,
)
from forge_schema.storage.keys import is_valid
from forge_schema.storage.s3.errors import ENDPOINT, translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PREFIX_BYTES = 120  # together with the longest key, below S3's 1024
CHECK_SECONDS = 14.0

PATIENT = Config(
    retries={"mode": "standard", "max_attempts": 8},
    connect_timeout=5,
    read_timeout=30,
    max_pool_connections=32,
    # Other S3 servers do not know the checksums that boto3 adds by default.
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)
IMPATIENT = PATIENT.merge(
    Config(retries={"mode": "standard", "total_max_attempts": 2}, connect_timeout=3, read_timeout=4)
)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z")


def connect(
    url: str,
    bucket: str,
    prefix: str,
    *,
    endpoint_url: str | None,
    region: str | None,
    config: Config = PATIENT,
) -> "S3Client":
    """Create a client, which several threads may share. Nothing is contacted yet.

    Raises:
        StoreUrlInvalid: S3 does not allow some part of the URL.
    """
    if fault := _fault(bucket, prefix, endpoint_url):
        raise StoreUrlInvalid(f"{url!r} is not a store's URL: {fault}", hint=ENDPOINT)
    try:
        # A new session, because boto3's default session is not thread-safe.
        return boto3.session.Session().client(
            "s3", endpoint_url=endpoint_url, region_name=region, config=config
        )
    except (BotoCoreError, ValueError) as error:
        raise StoreUrlInvalid(f"{url!r} cannot be used: {error}", hint=ENDPOINT) from error


def probe(
    url: str, bucket: str, prefix: str, *, endpoint_url: str | None, region: str | None
) -> None:
    """List at most one object, with a deadline for everything: DNS, connections, retries.

    Raises:
        StoreUnreachable: it does not answer in time, or denies access.
        StoreUrlInvalid: it answers that there is no such store.
    """
    outcome: list[Exception | None] = []

    def ask() -> None:
        try:
            client = connect(
                url, bucket, "", endpoint_url=endpoint_url, region=region, config=IMPATIENT
            )
            _list_one(client, url, bucket, prefix)
            outcome.append(None)
        except Exception as error:  # noqa: BLE001  raised again in the calling thread
            outcome.append(error)

    # A DNS lookup has no timeout, so the thread is abandoned if it takes too long.
    asking = Thread(target=ask, name="forge-store-check", daemon=True)
    asking.start()
    asking.join(CHECK_SECONDS)
    if not outcome:
        raise StoreUnreachable(f"{url} does not answer within {CHECK_SECONDS:.0f} s", hint=ENDPOINT)
    if outcome[0]:
        raise outcome[0]


def _list_one(client: "S3Client", url: str, bucket: str, prefix: str) -> None:
    try:
        with translated("listing", url):
            answer = client.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1)
    except (StoreUnreachable, StoreUrlInvalid):
        raise
    except StoreError as error:
        raise StoreUrlInvalid(f"{url} is not an S3 store: {error}", hint=ENDPOINT) from error
    if "Name" not in answer:
        raise StoreUrlInvalid(f"the server at {url} is not an S3 store", hint=ENDPOINT)


def _fault(bucket: str, prefix: str, endpoint_url: str | None) -> str | None:
    if not _BUCKET.match(bucket):
        return f"{bucket!r} is not a valid bucket name"
    if endpoint_url is not None and not re.match(r"https?://[^/]", endpoint_url):
        return f"endpoint_url {endpoint_url!r} is not http:// or https://"
    if len(prefix.encode(errors="replace")) > PREFIX_BYTES:
        return f"the prefix is longer than {PREFIX_BYTES} bytes"
    if prefix and not is_valid(prefix):
        return f"{prefix!r} cannot begin the name of an object"
    return None
