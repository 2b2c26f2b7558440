"""Read one object in pieces, resuming after a broken connection."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import stamina
from botocore.exceptions import IncompleteReadError, ReadTimeoutError, ResponseStreamingError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef

CHUNK = 1 << 20
READ_TRIES = 8

# boto3 retries requests, but not the rest of a body that has begun.
BROKEN = (IncompleteReadError, ReadTimeoutError, ResponseStreamingError)


class _BodyBroken(Exception):
    """The connection broke within a body."""


def chunks(client: "S3Client", bucket: str, key: str) -> Iterator[bytes]:
    """Yield an object's bytes, all from the same version.

    Raises:
        BotoCoreError: the connection broke repeatedly.
        ClientError: S3 refused; `PreconditionFailed` if the object changed meanwhile.
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
        yield from body.iter_chunks(CHUNK)
    except BROKEN as error:
        raise _BodyBroken from error
    finally:
        body.close()
