"""Transfers: upload one file in parts, completely or not at all; read one in chunks.

boto3's own `upload_file` does not support `IfNoneMatch`, so the parts are sent here.
"""

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import stamina
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    IncompleteReadError,
    ReadTimeoutError,
    ResponseStreamingError,
)

from forge_schema.storage.s3.client import code_of
from forge_schema.storage.store import Progress, StoreError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef, GetObjectOutputTypeDef

PART_BYTES = 8 << 20
MOST_PARTS = 10_000  # the limit of S3
PARTS_AT_ONCE = 4
# A server may have many streams.
PIECE = 64 << 10
READ_TRIES = 8

# boto3 retries requests, but not the rest of a body that has begun.
BROKEN = (IncompleteReadError, ReadTimeoutError, ResponseStreamingError)


@dataclass(frozen=True)
class MultipartUpload:
    """The multipart upload of an open file of `size` bytes."""

    client: "S3Client"
    bucket: str
    key: str
    descriptor: int
    size: int

    def run(self, *, if_absent: bool, progress: Progress | None) -> None:
        """Upload every part and complete the upload.

        Raises:
            StoreError: the file became shorter meanwhile.
            ClientError: S3 refused; status 412 if the object exists with `if_absent`.
        """
        with self._begun() as upload_id:
            parts = self._send(upload_id, progress)
            self._complete(upload_id, parts, if_absent=if_absent)

    @contextmanager
    def _begun(self) -> Iterator[str]:
        begun = self.client.create_multipart_upload(Bucket=self.bucket, Key=self.key)
        upload_id = begun["UploadId"]
        try:
            yield upload_id
        except BaseException:
            # Unfinished parts are stored, and paid for, until the upload is aborted.
            with suppress(ClientError, BotoCoreError):
                self.client.abort_multipart_upload(
                    Bucket=self.bucket, Key=self.key, UploadId=upload_id
                )
            raise

    def _send(self, upload_id: str, progress: Progress | None) -> "list[CompletedPartTypeDef]":
        step = max(PART_BYTES, -(-self.size // MOST_PARTS))
        offsets = range(0, self.size, step)
        parts: list[CompletedPartTypeDef] = []
        pool = ThreadPoolExecutor(PARTS_AT_ONCE, thread_name_prefix="forge-upload")
        try:
            sent: dict[Future[str], int] = {
                pool.submit(self._send_part, upload_id, number, offset, step): number
                for number, offset in enumerate(offsets, start=1)
            }
            for done in as_completed(sent):
                number = sent[done]
                parts.append({"PartNumber": number, "ETag": done.result()})
                if progress:
                    progress(min(step, self.size - offsets[number - 1]))
        finally:
            # A part still in transit could be stored after the abort.
            pool.shutdown(wait=True, cancel_futures=True)
        return sorted(parts, key=lambda part: part["PartNumber"])

    def _send_part(self, upload_id: str, number: int, offset: int, step: int) -> str:
        expected = min(step, self.size - offset)
        body = os.pread(self.descriptor, expected, offset)
        if len(body) != expected:
            raise StoreError(f"the file for {self.key} became shorter while it was uploaded")
        answer = self.client.upload_part(
            Bucket=self.bucket, Key=self.key, UploadId=upload_id, PartNumber=number, Body=body
        )
        return answer["ETag"]

    def _complete(
        self, upload_id: str, parts: "list[CompletedPartTypeDef]", *, if_absent: bool
    ) -> None:
        condition = {"IfNoneMatch": "*"} if if_absent else {}
        try:
            self.client.complete_multipart_upload(
                Bucket=self.bucket,
                Key=self.key,
                UploadId=upload_id,
                MultipartUpload={"Parts": parts},
                **condition,  # type: ignore[arg-type]  # the stubs require literal names
            )
        except ClientError as error:
            # The first try succeeded, only its answer was lost.
            if code_of(error) != "NoSuchUpload" or not self._is_there():
                raise

    def _is_there(self) -> bool:
        with suppress(ClientError):
            head = self.client.head_object(Bucket=self.bucket, Key=self.key)
            return head["ContentLength"] == self.size
        return False


class _BodyBroken(Exception):
    """The connection broke within a body."""


def chunks(client: "S3Client", bucket: str, key: str) -> Iterator[bytes]:
    """Yield an object's bytes, all from the same version.

    Raises:
        BotoCoreError: the connection broke repeatedly.
        ClientError: S3 refused; status 412 if the object changed meanwhile.
    """
    try:
        yield from _pieces(client, bucket, key)
    except _BodyBroken as broken:
        if broken.__cause__:
            raise broken.__cause__ from None
        raise


def _pieces(client: "S3Client", bucket: str, key: str) -> Iterator[bytes]:
    offset, etag = 0, ""
    for attempt in stamina.retry_context(on=_BodyBroken, attempts=READ_TRIES, timeout=None):
        with attempt:
            answer = _open(client, bucket, key, offset, etag)
            etag = answer["ETag"]
            for piece in _body(answer):
                offset += len(piece)
                yield piece


def _open(
    client: "S3Client", bucket: str, key: str, offset: int, etag: str
) -> "GetObjectOutputTypeDef":
    if not offset:
        return client.get_object(Bucket=bucket, Key=key)
    return client.get_object(Bucket=bucket, Key=key, Range=f"bytes={offset}-", IfMatch=etag)


def _body(answer: "GetObjectOutputTypeDef") -> Iterator[bytes]:
    body = answer["Body"]
    try:
        yield from body.iter_chunks(PIECE)
    except BROKEN as error:
        raise _BodyBroken from error
    finally:
        body.close()
