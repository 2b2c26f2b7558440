"""S3 clients, their errors, and how an object keeps the name of its uploader."""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004  botocore's own, the base of its connection errors
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
)

from forge_schema.model.quantities import duration_text
from forge_schema.proxies import ProxyUnusable, proxy_of
from forge_schema.storage.store import (
    ObjectMissing,
    StoreDenied,
    StoreError,
    StoreUnfit,
    StoreUnreachable,
    StoreUrlInvalid,
)
from forge_schema.storage.store_url import s3_fault

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CREDENTIALS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or use a role"
ENDPOINT = "check endpoint_url and region in the store's URL, and the network"
MISSING = {"404", "NoSuchKey"}
FORBIDDEN = {401, 403}
# Answered with 400, or with a cause that no other credentials remove.
EXPIRED = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired"}
HINTS = {
    "RequestTimeTooSkewed": "set the clock of this machine: it differs from that of the store",
    "QuotaExceeded": "raise the quota of the bucket or of its owner",
}
NOT_OFFERED = 501
EXISTS = 412
CONFLICT = 409
DOCTOR = "run `forge doctor`, which says what this store can do"
SERVER_FAULT = 500
SLOW_DOWN = 429
UPLOADER = "forge-uploader"
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


def connect(
    url: str,
    bucket: str,
    prefix: str,
    *,
    endpoint_url: str | None,
    region: str | None,
    config: Config = PATIENT,
    session: boto3.session.Session | None = None,
) -> "S3Client":
    """Create a client, which several threads may share. Nothing is contacted yet.

    Without a session, it has the credentials that boto3 finds.

    Raises:
        StoreUrlInvalid: S3 does not allow some part of the URL.
        ProxyUnusable: the proxy on the way to it cannot be used.
    """
    if fault := s3_fault(bucket, prefix, endpoint_url, region):
        raise StoreUrlInvalid(f"{url!r} is not a store's URL: {fault}", hint=ENDPOINT)
    try:
        # A new session, because boto3's default session is not thread-safe.
        opened = session or boto3.session.Session()
        made = partial(opened.client, "s3", endpoint_url=endpoint_url, region_name=region)
        client: S3Client = made(config=config)
        proxies = proxies_of(client.meta.endpoint_url)
        if proxies is not None:
            client = made(config=config.merge(Config(proxies=proxies)))
    except (BotoCoreError, ValueError) as error:
        raise StoreUrlInvalid(f"{url!r} cannot be used: {error}", hint=ENDPOINT) from error
    return client


def proxies_of(endpoint: str) -> dict[str, str] | None:
    """Return boto3's proxies for an endpoint if the environment names any, else None."""
    if not getproxies():
        return None
    proxy = proxy_of(endpoint)
    if proxy and proxy.is_socks:
        raise ProxyUnusable(
            f"S3 is not reached through the SOCKS proxy {proxy}, since boto3 speaks no SOCKS",
            hint="name an HTTP proxy, or list the store's host in NO_PROXY",
        )
    return {urlsplit(endpoint).scheme: proxy.url} if proxy else {}


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
        raise StoreUnreachable(
            f"{url} does not answer within {duration_text(CHECK_SECONDS)}", hint=ENDPOINT
        )
    if outcome[0]:
        raise outcome[0]


@contextmanager
def translated(what: str, url: str) -> Iterator[None]:
    """Turn boto3's errors in the block into a `StoreError` that names the operation."""
    try:
        yield
    except ClientError as error:
        raise _refusal(error, what, url) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise StoreUnreachable(f"no credentials for {url}: {error}", hint=CREDENTIALS) from error
    except (ConnectionError, HTTPClientError) as error:
        raise StoreUnreachable(f"{url} does not answer: {error}", hint=ENDPOINT) from error
    except BotoCoreError as error:
        raise StoreError(f"{what} in {url} failed: {error}", hint=ENDPOINT) from error


def code_of(error: ClientError) -> str:
    """Return S3's code of an error, or the HTTP status if there was no body."""
    return error.response.get("Error", {}).get("Code", "")


def status_of(error: ClientError) -> int:
    """Return the HTTP status of an error."""
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)


def _refusal(error: ClientError, what: str, url: str) -> StoreError:
    code, status = code_of(error), status_of(error)
    if code == "NoSuchBucket":
        return StoreUrlInvalid(
            f"{url} names a bucket that does not exist",
            hint="create the bucket, or correct the store's URL",
        )
    if code in MISSING:
        return ObjectMissing(f"there is no object for {what} in {url}")
    if status in FORBIDDEN or code in EXPIRED:
        hint = HINTS.get(code, CREDENTIALS)
        return StoreDenied(f"{url} denies access ({code}): {what}", hint=hint)
    if status == NOT_OFFERED:
        return StoreUnfit(f"{url} does not offer this ({code}): {what}", hint=DOCTOR)
    if status >= SERVER_FAULT or status == SLOW_DOWN:
        return StoreUnreachable(f"{url} answers {status} {code}: {what}", hint="try again later")
    return StoreError(f"{url} refused {what}: {error}", hint=ENDPOINT)


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


def as_metadata(owner: str) -> str:
    """Encode an owner's name for a header."""
    return urlsafe_b64encode(owner.encode()).decode()


def from_metadata(metadata: Mapping[str, str]) -> str | None:
    """Return the owner's name, or None."""
    try:
        return urlsafe_b64decode(metadata.get(UPLOADER, "")).decode() or None
    except (binascii.Error, ValueError):
        return None
