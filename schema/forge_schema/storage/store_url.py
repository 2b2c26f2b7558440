"""The URLs of stores, read without contacting one."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from forge_schema.model.quantities import counted
from forge_schema.storage.keys import is_valid
from forge_schema.storage.store import StoreUrlInvalid

EXAMPLES = "write file:///path/to/folder or s3://bucket/prefix?endpoint_url=https://…&region=…"
GOOGLES = (
    "Google's buckets speak S3's protocol too: write"
    " s3://{}?endpoint_url=https%3A%2F%2Fstorage.googleapis.com, with an HMAC key as"
    " AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z")
_REGION = re.compile(r"[a-z0-9-]{1,40}\Z")
PREFIX_BYTES = 120  # together with the longest key, below S3's 1024
S3_OPTIONS = {"endpoint_url", "region"}


class S3Place(NamedTuple):
    """The parts of an S3 store's URL."""

    bucket: str
    prefix: str
    endpoint_url: str | None
    region: str | None


def url_fault(url: str) -> str:
    """Return what is wrong with a store's URL and what to write, or "". Nothing is contacted."""
    try:
        parts = split(url)
        if parts.scheme == "s3":
            s3_place(url, parts)
        else:
            folder_of(url, parts)
    except StoreUrlInvalid as error:
        return f"{error.message}; {error.hint}" if error.hint else error.message
    return ""


def split(url: str) -> SplitResult:
    """Parse a store's URL, which begins with `file:` or `s3:`.

    Raises:
        StoreUrlInvalid: it has another scheme, credentials or a fragment.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise StoreUrlInvalid(f"{url!r} is not a URL: {error}", hint=EXAMPLES) from error
    if parts.fragment or parts.username or parts.password:
        raise StoreUrlInvalid(
            f"a store's URL must not contain '#' or credentials: {_without_secrets(parts)}",
            hint="give credentials as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    if parts.scheme not in {"file", "s3"}:
        hint = GOOGLES.format(parts.netloc + parts.path) if parts.scheme == "gs" else EXAMPLES
        raise StoreUrlInvalid(f"{url!r} has an unknown scheme: {parts.scheme!r}", hint=hint)
    return parts


def s3_place(url: str, parts: SplitResult) -> S3Place:
    """Parse the rest of a URL that begins with `s3:`.

    Raises:
        StoreUrlInvalid: it has an unknown option.
    """
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(options.keys() - S3_OPTIONS):
        raise StoreUrlInvalid(f"{url!r} has an unknown option: {unknown[0]}", hint=EXAMPLES)
    prefix = unquote(parts.path).strip("/")
    if fault := s3_fault(parts.netloc, prefix, options.get("endpoint_url"), options.get("region")):
        raise StoreUrlInvalid(f"{url!r} is not a store's URL: {fault}", hint=EXAMPLES)
    return S3Place(parts.netloc, prefix, options.get("endpoint_url"), options.get("region"))


def s3_fault(
    bucket: str, prefix: str, endpoint_url: str | None, region: str | None = None
) -> str | None:
    """Return what S3 does not allow in a store's URL, or None."""
    return next(_s3_faults(bucket, prefix, endpoint_url, region), None)


def _s3_faults(
    bucket: str, prefix: str, endpoint_url: str | None, region: str | None
) -> Iterator[str]:
    if not bucket:
        yield "it names no bucket"
    elif not _BUCKET.match(bucket):
        yield f"{bucket!r} is not a valid bucket name: 3 to 63 small letters, digits, dots, hyphens"
    if endpoint_url is not None and not re.match(r"https?://[^/]", endpoint_url):
        yield f"endpoint_url {endpoint_url!r} is not http:// or https://"
    if region is not None and not _REGION.match(region):
        yield f"region {region!r} is not one, such as eu-west-1"
    if len(prefix.encode(errors="replace")) > PREFIX_BYTES:
        yield f"the prefix is longer than {counted(PREFIX_BYTES, 'byte')}"
    if prefix and not is_valid(prefix):
        yield f"{prefix!r} cannot begin the name of an object"


def _without_secrets(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def folder_of(url: str, parts: SplitResult) -> Path:
    """Return the folder of a URL that begins with `file:`; `StoreUrlInvalid` if it names none."""
    folder = Path(unquote(parts.path))
    if parts.netloc not in {"", "localhost"} or parts.query:
        raise StoreUrlInvalid(
            f"{url!r} has more than a path on this machine",
            hint="write the URL of a file store with three slashes: file:///path/to/folder",
        )
    if not folder.is_absolute() or folder == Path("/") or "\0" in str(folder):
        raise StoreUrlInvalid(f"{url!r} names no folder", hint=EXAMPLES)
    return folder
