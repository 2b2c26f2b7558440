"""What only S3 servers are tried for: conditions, uploads in parts, listings, signed URLs."""

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from forge_schema.storage.s3 import conditions
from forge_schema.storage.s3.client import UPLOADER, as_metadata, translated
from forge_schema.storage.s3.conditions import LASTS_S, RIGHT, UploadCheck, sent, upload_check
from forge_schema.storage.s3.signer import S3Signer
from forge_schema.storage.store import (
    PROBE_CONTENT,
    ProbeFinding,
    ProbeVerdict,
    StoreError,
    failed_probe,
)
from forge_schema.storage.store_url import s3_place, split

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from forge_schema.model.stored import SignedUrl

UNSORTED = ("o/a/b", "o/a-b", "o/a.b", "o/a", "o/b")
PAGE = 2
LOOKS, PAUSE_S = 8, 1.0
LATE = "a backup may miss what was written shortly before: make another one after a while"
DO_NOT = "do not use this store: objects would be lost"


def findings(url: str, folder: str) -> list[ProbeFinding]:
    """Try an S3 store in a folder of it, which somebody else deletes."""
    place = s3_place(url, split(url))
    client = S3Signer(url, lasts_s=LASTS_S).client
    prefix = f"{place.prefix}/" if place.prefix else ""
    tried = _Tried(client, url, place.bucket, prefix, folder)
    steps: dict[str, Callable[[], ProbeFinding]] = {
        "listing": tried.listing,
        "uploads in parts": tried.parts,
        "unfinished uploads": tried.unfinished,
        "conditional writes": tried.conditions,
        "signed uploads": tried.signed,
        "signatures": tried.signatures,
    }
    return [_finding(name, step, url) for name, step in steps.items()]


def _finding(name: str, step: Callable[[], ProbeFinding], url: str) -> ProbeFinding:
    try:
        with translated(name, url):
            return step()
    except StoreError as error:
        return failed_probe(name, error)


class _Tried:
    """One try of each capability; `prefix` is the store's within its bucket."""

    def __init__(self, client: "S3Client", url: str, bucket: str, prefix: str, folder: str) -> None:
        self._client, self._url, self._bucket = client, url, bucket
        self._folder, self._name = folder, f"{prefix}{folder}"

    def listing(self) -> ProbeFinding:
        names = [f"{self._name}{suffix}" for suffix in UNSORTED]
        for name in names:
            self._client.put_object(Bucket=self._bucket, Key=name, Body=b"")
        listed, looks = self._listed(), 1
        # Some servers list an object a while after it was written.
        while sorted(listed) != sorted(names) and looks < LOOKS:
            time.sleep(PAUSE_S)
            listed, looks = self._listed(), looks + 1
        if sorted(listed) != sorted(names):
            detail = f"{len(set(listed))} of {len(names)} objects are listed, {PAGE} at a time"
            return ProbeFinding("listing", ProbeVerdict.UNFIT, detail, DO_NOT)
        if looks > 1:
            return ProbeFinding("listing", ProbeVerdict.WEAK, "new objects are listed late", LATE)
        order = "in the order of keys" if listed == sorted(names) else "in an order of its own"
        return ProbeFinding("listing", ProbeVerdict.OK, f"complete over several pages, {order}")

    def _listed(self) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=f"{self._name}o/", PaginationConfig={"PageSize": PAGE}
        )
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    def parts(self) -> ProbeFinding:
        capability, name = "uploads in parts", f"{self._name}parts"
        conditions.upload_in_parts(self._client, self._bucket, name, PROBE_CONTENT, if_absent=False)
        read = self._client.get_object(Bucket=self._bucket, Key=name)["Body"].read()
        if read != PROBE_CONTENT:
            return ProbeFinding(
                capability, ProbeVerdict.UNFIT, "an object in parts reads differently", DO_NOT
            )
        return ProbeFinding(capability, ProbeVerdict.OK, "an upload was completed")

    def unfinished(self) -> ProbeFinding:
        capability, name = "unfinished uploads", f"{self._name}unfinished"
        upload = self._client.create_multipart_upload(Bucket=self._bucket, Key=name)["UploadId"]
        try:
            listed = self._client.list_multipart_uploads(Bucket=self._bucket, Prefix=name)
            seen = upload in [begun["UploadId"] for begun in listed.get("Uploads", [])]
            detail = "an unfinished upload is not listed"
        except ClientError as error:
            seen, detail = False, f"they are not listed ({error})"
        finally:
            with suppress(ClientError, BotoCoreError):
                self._client.abort_multipart_upload(Bucket=self._bucket, Key=name, UploadId=upload)
        if seen:
            return ProbeFinding(capability, ProbeVerdict.OK, "they are listed, and can be aborted")
        hint = "let the store itself delete what killed workers leave, with a lifecycle rule"
        return ProbeFinding(capability, ProbeVerdict.WEAK, detail, hint)

    def conditions(self) -> ProbeFinding:
        capability = "conditional writes"
        held = conditions.find(self._client, self._bucket, f"{self._name}condition")
        if held.put and held.complete:
            return ProbeFinding(capability, ProbeVerdict.OK, "If-None-Match holds")
        writes = ((held.put, "a PUT"), (held.complete, "the end of an upload in parts"))
        verdict = [
            f"{verdict} at {what}"
            for (holds, what), verdict in zip(writes, held.answers, strict=True)
            if not holds
        ]
        detail = f"the server {' and '.join(verdict)}; Forge looks first instead"
        return ProbeFinding(capability, ProbeVerdict.OK, detail)

    def signed(self) -> ProbeFinding:
        capability = "signed uploads"
        check = upload_check(self._url)
        if check is UploadCheck.NONE:
            return ProbeFinding(
                capability,
                ProbeVerdict.WEAK,
                "the store takes any content for a signed URL; Forge reads uploads back",
                "anyone who may submit can damage other owners' code in it, though not run it",
            )
        detail = f"another content is refused, by its {check.value}"
        if not self._names_uploader(content_hash=check is UploadCheck.CONTENT_HASH):
            return ProbeFinding(
                capability,
                ProbeVerdict.UNFIT,
                "the uploader, sent as metadata of the object, is not kept",
                "users cannot submit through a server that has this store",
            )
        return ProbeFinding(capability, ProbeVerdict.OK, detail)

    def signatures(self) -> ProbeFinding:
        signed = self._signed("forged")
        last = "0" if signed.url[-1] != "0" else "1"
        forged = signed.model_copy(update={"url": signed.url[:-1] + last})
        if sent(self._client, forged, RIGHT):
            return ProbeFinding(
                "signatures",
                ProbeVerdict.WEAK,
                "a forged signature is accepted",
                "use this store for tests only: anyone who reaches it may read and write it",
            )
        return ProbeFinding("signatures", ProbeVerdict.OK, "a forged signature is refused")

    def _names_uploader(self, *, content_hash: bool) -> bool:
        signed = self._signed("owned", content_hash=content_hash)
        if not sent(self._client, signed, RIGHT):
            return False
        head = self._client.head_object(Bucket=self._bucket, Key=f"{self._name}owned")
        return head["Metadata"].get(UPLOADER) == as_metadata("probe")

    def _signed(self, name: str, *, content_hash: bool = False) -> "SignedUrl":
        signer = S3Signer(self._url, lasts_s=LASTS_S, content_hash=content_hash)
        digest = hashlib.sha256(RIGHT).hexdigest()
        return signer.put(f"{self._folder}{name}", size=len(RIGHT), sha256=digest, owner="probe")
