"""A store in S3 or in a server that speaks its protocol."""

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import stamina
from botocore.exceptions import ClientError

from forge_schema.storage.keys import checked, checked_prefix, is_valid
from forge_schema.storage.landing import landing
from forge_schema.storage.s3.client import code_of, connect, from_metadata, probe, translated
from forge_schema.storage.s3.transfer import PART_BYTES, Upload, chunks
from forge_schema.storage.store import ObjectMissing, Piece, Progress, StoredObject

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import HeadObjectOutputTypeDef, MultipartUploadTypeDef

CONFLICT_TRIES = 5


class S3Store:
    """A bucket, or a prefix in one, as an object store."""

    def __init__(
        self, bucket: str, prefix: str, *, endpoint_url: str | None, region: str | None, url: str
    ) -> None:
        self.url = url
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._endpoint_url, self._region = endpoint_url, region
        self._client = connect(url, bucket, prefix, endpoint_url=endpoint_url, region=region)

    def expect(self, *, puts: Sequence[Piece] = (), gets: Sequence[str] = ()) -> None:
        """Do nothing: boto3 signs each request itself."""

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        name = self._name(key)
        with translated(key, self.url):
            return _won(lambda: self._put(name, data, if_absent=if_absent))

    def put_file(
        self, key: str, path: Path, *, if_absent: bool = False, progress: Progress | None = None
    ) -> bool:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > PART_BYTES:
                return self._put_parts(key, file.fileno(), size, progress, if_absent=if_absent)
            data = file.read(size)
        won = self.put(key, data, if_absent=if_absent)
        if won and progress:
            progress(len(data))
        return won

    def put_part(self, key: str, file: BinaryIO, offset: int, size: int) -> bool:  # noqa: ARG002
        return False

    def put_together(self, objects: Mapping[str, bytes]) -> bool:  # noqa: ARG002 - S3 takes one each
        return False

    def get(self, key: str) -> bytes:
        return b"".join(self.stream(key))

    def stream(self, key: str) -> Generator[bytes, None, None]:
        name = self._name(key)
        with translated(key, self.url):
            yield from chunks(self._client, self._bucket, name)

    def get_file(self, key: str, path: Path, *, progress: Progress | None = None) -> None:
        with landing(path) as file:
            for chunk in self.stream(key):
                file.write(chunk)
                if progress:
                    progress(len(chunk))

    def size(self, key: str) -> int | None:
        found = self._head(key)
        return found["ContentLength"] if found else None

    def modified(self, key: str) -> datetime | None:
        found = self._head(key)
        return found["LastModified"] if found else None

    def uploader(self, key: str) -> str | None:
        """Return the owner who uploaded an object through a signed URL, or None."""
        found = self._head(key)
        return from_metadata(found["Metadata"]) if found else None

    def list(self, prefix: str) -> Iterator[StoredObject]:
        wanted = self._prefix + checked_prefix(prefix)
        pages = self._client.get_paginator("list_objects_v2")
        with translated(prefix, self.url):
            for page in pages.paginate(Bucket=self._bucket, Prefix=wanted):
                for found in page.get("Contents", []):
                    key = found["Key"].removeprefix(self._prefix)
                    if is_valid(key):
                        yield StoredObject(key, found["Size"])

    def delete(self, key: str) -> None:
        name = self._name(key)
        with translated(key, self.url):
            self._client.delete_object(Bucket=self._bucket, Key=name)

    def check(self) -> None:
        probe(
            self.url,
            self._bucket,
            self._prefix,
            endpoint_url=self._endpoint_url,
            region=self._region,
        )

    def tidy(self, older_than_s: float) -> int:
        before = datetime.now(UTC) - timedelta(seconds=older_than_s)
        removed = 0
        with translated("unfinished uploads", self.url):
            for upload in self._unfinished():
                if upload["Initiated"] <= before:
                    self._client.abort_multipart_upload(
                        Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                    )
                    removed += 1
        return removed

    def _head(self, key: str) -> "HeadObjectOutputTypeDef | None":
        name = self._name(key)
        try:
            with translated(key, self.url):
                return self._client.head_object(Bucket=self._bucket, Key=name)
        except ObjectMissing:
            return None

    def _name(self, key: str) -> str:
        return self._prefix + checked(key)

    def _unfinished(self) -> "Iterator[MultipartUploadTypeDef]":
        pages = self._client.get_paginator("list_multipart_uploads")
        for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix):
            yield from page.get("Uploads", [])

    def _put(self, name: str, data: bytes, *, if_absent: bool) -> None:
        if if_absent:
            self._client.put_object(Bucket=self._bucket, Key=name, Body=data, IfNoneMatch="*")
        else:
            self._client.put_object(Bucket=self._bucket, Key=name, Body=data)

    def _put_parts(
        self, key: str, descriptor: int, size: int, progress: Progress | None, *, if_absent: bool
    ) -> bool:
        # Check first: S3 evaluates the condition only after every part has been sent.
        if if_absent and self.size(key) is not None:
            return False
        upload = Upload(self._client, self._bucket, self._name(key), descriptor, size)
        with translated(key, self.url):
            return _won(lambda: upload.run(if_absent=if_absent, progress=progress))


def _won(write: Callable[[], None]) -> bool:
    """Run a conditional write; return False if the object already exists."""
    try:
        # S3 answers 409 to one of two concurrent writers, which must retry.
        for attempt in stamina.retry_context(on=_is_conflict, attempts=CONFLICT_TRIES):
            with attempt:
                write()
    except ClientError as error:
        if code_of(error) == "PreconditionFailed":
            return False
        raise
    return True


def _is_conflict(error: Exception) -> bool:
    return isinstance(error, ClientError) and code_of(error) == "ConditionalRequestConflict"
