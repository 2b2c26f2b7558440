"""Try what Forge needs of a store, with small objects in a folder of its own."""

import secrets
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from forge_schema.storage import keys, open_store
from forge_schema.storage.store import (
    PROBE_CONTENT,
    ProbeFinding,
    ProbeVerdict,
    Store,
    StoreDenied,
    StoreError,
    StoreUnfit,
    failed_probe,
)
from forge_schema.storage.store_url import split

RIGHTS = "allow s3:PutObject, GetObject, DeleteObject, AbortMultipartUpload and ListBucket"
ALLOW_DELETING = "allow it, or old checkpoints and jobs fill the store"
# A probe takes seconds. What is older was left by one that died.
ABANDONED = timedelta(hours=1)


def probe(url: str) -> list[ProbeFinding]:
    """Try the store, which must exist: some servers create a bucket that is written to.

    Whatever the probe wrote is deleted, and what earlier ones left when they died.

    Raises:
        StoreUrlInvalid: the URL does not name a store.
        StoreUnreachable: it does not answer.
    """
    store = open_store(url)
    store.check()
    with suppress(StoreError):
        delete_abandoned(store)
    folder = f"{keys.PROBE}{secrets.token_hex(12)}/"
    try:
        probed = [*_written(store, folder)]
        if split(url).scheme == "s3" and probed[0].verdict is ProbeVerdict.OK:
            # Only S3 users import boto3.
            from forge_schema.storage.s3.probing import findings  # noqa: PLC0415

            probed += findings(url, folder)
        return probed
    finally:
        with suppress(StoreError):
            for left in list(store.list(folder)):
                store.delete(left.key)


def require_fit(url: str, probed: list[ProbeFinding]) -> None:
    """Check that no finding rules the store out; `StoreUnfit` if one does."""
    for finding in probed:
        if finding.verdict is ProbeVerdict.UNFIT:
            raise StoreUnfit(f"{url}: {finding.capability}: {finding.detail}", hint=finding.hint)


def delete_abandoned(store: Store) -> None:
    """Delete what a probe left that died.

    Raises:
        StoreError: the store does not answer, or denies it.
    """
    before = datetime.now(UTC) - ABANDONED
    for left in list(store.list(keys.PROBE)):
        written = store.modified(left.key)
        if written is not None and written < before:
            store.delete(left.key)


def _written(store: Store, folder: str) -> Iterator[ProbeFinding]:
    """Write, read and delete one object; nothing else is tried if it cannot be written."""
    key = f"{folder}object"
    try:
        store.put(key, PROBE_CONTENT)
    except StoreDenied as error:
        detail = f"these credentials may list objects, but not write any: {error.message}"
        yield ProbeFinding("writing", ProbeVerdict.FAILED, detail, RIGHTS)
        return
    except StoreError as error:
        yield failed_probe("writing", error)
        return
    yield ProbeFinding("writing", ProbeVerdict.OK, "an object was written")
    yield _read(store, key)
    yield _deleted(store, key)


def _read(store: Store, key: str) -> ProbeFinding:
    try:
        same = store.get(key) == PROBE_CONTENT and store.size(key) == len(PROBE_CONTENT)
    except StoreError as error:
        return failed_probe("reading", error)
    if same:
        return ProbeFinding("reading", ProbeVerdict.OK, "it reads as it was written")
    detail = "an object reads differently than it was written"
    return ProbeFinding(
        "reading", ProbeVerdict.UNFIT, detail, "do not use this store: it damages results"
    )


def _deleted(store: Store, key: str) -> ProbeFinding:
    try:
        store.delete(key)
        gone = store.size(key) is None
    except StoreError as error:
        return ProbeFinding("deleting", ProbeVerdict.WEAK, error.message, ALLOW_DELETING)
    if gone:
        return ProbeFinding("deleting", ProbeVerdict.OK, "it was deleted")
    return ProbeFinding(
        "deleting", ProbeVerdict.WEAK, "a deleted object is still there", ALLOW_DELETING
    )
