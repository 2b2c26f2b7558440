"""A store in S3 or in a server that speaks its protocol."""

import hashlib
import os
import secrets
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO

import stamina
import structlog
from botocore.exceptions import ClientError

from forge_schema.storage import keys
from forge_schema.storage.keys import checked, checked_prefix, is_valid
from forge_schema.storage.s3.client import (
    CONFLICT,
    DOCTOR,
    EXISTS,
    connect,
    from_metadata,
    probe,
    status_of,
    translated,
)
from forge_schema.storage.s3.conditions import Conditions, UploadCheck, find, upload_check
from forge_schema.storage.s3.transfer import PART_BYTES, MultipartUpload, chunks
from forge_schema.storage.store import (
    ObjectMissing,
    Piece,
    Progress,
    StoredObject,
    StoreUnfit,
    landing,
)

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import HeadObjectOutputTypeDef, MultipartUploadTypeDef

CONFLICT_TRIES = 5

log = structlog.get_logger(__name__)


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
        # botocore leaves its connections open, of which Python 3.13 complains.
        weakref.finalize(self, self._client.close)
        self._finding = Lock()
        self._known_conditions: Conditions | None = None

    def expect(self, *, puts: Sequence[Piece] = (), gets: Sequence[str] = ()) -> None:
        """Do nothing: boto3 signs each request itself."""

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        name = self._name(key)
        if if_absent and self.size(key) is not None:
            return False
        conditional = self._is_conditional(key, if_absent=if_absent)
        with translated(key, self.url):
            if conditional:
                return _won(lambda: self._put_new(name, data))
            self._client.put_object(Bucket=self._bucket, Key=name, Body=data)
        return True

    def put_file(
        self, key: str, path: Path, *, if_absent: bool = False, progress: Progress | None = None
    ) -> bool:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > PART_BYTES:
                return self._put_large(key, file, size, progress, if_absent=if_absent)
            data = file.read(size)
        won = self.put(key, data, if_absent=if_absent)
        if won and progress:
            progress(len(data))
        return won

    def put_part(self, key: str, file: BinaryIO, offset: int, size: int) -> bool:  # noqa: ARG002
        return False

    def put_unread(self, *_: object) -> None:
        return None

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
        head = self._head(key)
        return head["ContentLength"] if head else None

    def modified(self, key: str) -> datetime | None:
        head = self._head(key)
        return head["LastModified"] if head else None

    def uploader(self, key: str) -> str | None:
        head = self._head(key)
        owner = from_metadata(head["Metadata"]) if head else None
        if owner is None or self._is_as_named(key):
            return owner
        log.warning("upload_damaged", key=key, uploader=owner)
        return None

    def list(self, prefix: str) -> Iterator[StoredObject]:
        wanted = self._prefix + checked_prefix(prefix)
        pages = self._client.get_paginator("list_objects_v2")
        with translated(prefix, self.url):
            for page in pages.paginate(Bucket=self._bucket, Prefix=wanted):
                for item in page.get("Contents", []):
                    key = item["Key"].removeprefix(self._prefix)
                    if is_valid(key):
                        yield StoredObject(key, item["Size"])

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

    def _is_as_named(self, key: str) -> bool:
        """Tell whether an uploaded object has the content that its key names, if any."""
        digest = keys.named_digest(key)
        # A hash in the signature too: the URL may have been signed before that was found out.
        if digest is None or upload_check(self.url) is UploadCheck.CHECKSUM:
            return True
        sha256 = hashlib.sha256()
        for piece in self.stream(key):
            sha256.update(piece)
        return sha256.hexdigest() == digest

    def _is_conditional(self, key: str, *, if_absent: bool, large: bool = False) -> bool:
        """Tell whether a write must be conditional.

        Looking first is enough where all who write a key have the same content. The server may
        ignore a condition, which must not go unnoticed elsewhere.

        Raises:
            StoreUnfit: it must, and the server does not do that.
        """
        if not if_absent or keys.named_digest(key):
            return False
        if not self._conditions.put and not (large and self._conditions.complete):
            raise StoreUnfit(
                f"{key} cannot be written only if it is new: {self.url}"
                f" {self._conditions.answers[0]} where If-None-Match is sent",
                hint=DOCTOR,
            )
        return True

    @property
    def _conditions(self) -> Conditions:
        with self._finding:
            if self._known_conditions is None:
                self._known_conditions = self._find_conditions()
            return self._known_conditions

    def _find_conditions(self) -> Conditions:
        conditions: list[Conditions] = []
        name = self._name(f"{keys.PROBE}{secrets.token_hex(12)}")
        with translated("conditional writes", self.url):
            _again(lambda: conditions.append(find(self._client, self._bucket, name)))
        return conditions[0]

    def _put_new(self, name: str, data: bytes | BinaryIO) -> None:
        self._client.put_object(Bucket=self._bucket, Key=name, Body=data, IfNoneMatch="*")

    def _put_large(
        self, key: str, file: BinaryIO, size: int, progress: Progress | None, *, if_absent: bool
    ) -> bool:
        # Check first: S3 evaluates the condition only after every part has been sent.
        if if_absent and self.size(key) is not None:
            return False
        name = self._name(key)
        conditional = self._is_conditional(key, if_absent=if_absent, large=True)
        if conditional and not self._conditions.complete:
            return self._put_whole(key, file, size, progress)
        upload = MultipartUpload(self._client, self._bucket, name, file.fileno(), size)
        with translated(key, self.url):
            return _won(lambda: upload.run(if_absent=conditional, progress=progress))

    def _put_whole(self, key: str, file: BinaryIO, size: int, progress: Progress | None) -> bool:
        """Write a large object in one request, for a server that ignores conditions on uploads."""
        with translated(key, self.url):
            won = _won(lambda: self._put_new(self._name(key), _rewound(file)))
        if won and progress:
            progress(size)
        return won


def _rewound(file: BinaryIO) -> BinaryIO:
    file.seek(0)
    return file


def _won(write: Callable[[], None]) -> bool:
    """Run a conditional write; return False if the object already exists."""
    try:
        _again(write)
    except ClientError as error:
        # By status: not all servers call it PreconditionFailed.
        if status_of(error) == EXISTS:
            return False
        raise
    return True


def _again(write: Callable[[], None]) -> None:
    """Write; S3 answers 409 to one of two concurrent writers, which must retry."""
    for attempt in stamina.retry_context(on=_is_conflict, attempts=CONFLICT_TRIES):
        with attempt:
            write()


def _is_conflict(error: Exception) -> bool:
    return isinstance(error, ClientError) and status_of(error) == CONFLICT
