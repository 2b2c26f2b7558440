"""Open a store by its URL, without contacting it."""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from forge_schema.storage.store import Store, StoreUrlInvalid

EXAMPLES = "write file:///path/to/folder or s3://bucket/prefix?endpoint_url=https://…&region=…"
S3_OPTIONS = {"endpoint_url", "region"}


class S3Place(NamedTuple):
    """The parts of an S3 store's URL."""

    bucket: str
    prefix: str
    endpoint_url: str | None
    region: str | None


def open_store(url: str) -> Store:
    """Open the store behind `file:///folder` or `s3://bucket/prefix?endpoint_url=…&region=…`.

    Nothing is contacted yet; `Store.check` does that.

    Raises:
        StoreUrlInvalid: the URL does not name a store.
    """
    parts = split(url)
    return _open_s3(url, parts) if parts.scheme == "s3" else _open_file(url, parts)


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
        raise StoreUrlInvalid(f"{url!r} has an unknown scheme: {parts.scheme!r}", hint=EXAMPLES)
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
    return S3Place(parts.netloc, prefix, options.get("endpoint_url"), options.get("region"))


def _without_secrets(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _open_file(url: str, parts: SplitResult) -> Store:
    folder = Path(unquote(parts.path))
    if parts.netloc not in {"", "localhost"} or parts.query:
        raise StoreUrlInvalid(
            f"{url!r} has more than a path on this machine",
            hint="write the URL of a file store with three slashes: file:///path/to/folder",
        )
    if not folder.is_absolute() or folder == Path("/") or "\0" in str(folder):
        raise StoreUrlInvalid(f"{url!r} names no folder", hint=EXAMPLES)
    # Neither those who have S3 nor commands that read no object need it.
    from forge_schema.storage.file_store import FileStore  # noqa: PLC0415

    return FileStore(folder, url=url)


def _open_s3(url: str, parts: SplitResult) -> Store:
    # boto3 takes half a second and tens of megabytes to import, so only S3 users do.
    from forge_schema.storage.s3.store import S3Store  # noqa: PLC0415

    place = s3_place(url, parts)
    return S3Store(
        place.bucket,
        place.prefix,
        endpoint_url=place.endpoint_url,
        region=place.region,
        url=url,
    )
