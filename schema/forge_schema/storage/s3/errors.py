"""Translate boto3's errors into Forge's."""

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004  botocore's own, the base of its connection errors
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
)

from forge_schema.storage.errors import (
    ObjectMissing,
    StoreError,
    StoreUnreachable,
    StoreUrlInvalid,
)

CREDENTIALS = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or use a role."
ENDPOINT = "Check endpoint_url and region in the store's URL, and the network."
MISSING = {"404", "NoSuchKey"}
FORBIDDEN = {401, 403}
SERVER_FAULT = 500
SLOW_DOWN = 429


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
            hint="Create the bucket, or correct the store's URL.",
        )
    if code in MISSING:
        return ObjectMissing(f"there is no object for {what} in {url}")
    if status in FORBIDDEN:
        return StoreUnreachable(f"{url} denies access ({code}): {what}", hint=CREDENTIALS)
    if status >= SERVER_FAULT or status == SLOW_DOWN:
        return StoreUnreachable(f"{url} answers {status} {code}: {what}", hint="Try again later.")
    return StoreError(f"{url} refused {what}: {error}", hint=ENDPOINT)
