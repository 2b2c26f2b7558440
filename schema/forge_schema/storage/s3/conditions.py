"""Which conditional writes a server really makes; some ignore the condition, others refuse it."""

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from forge_schema.storage.s3.client import EXISTS, FORBIDDEN, status_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client

PASSING = {408, 429, 500, 502, 503, 504}


@dataclass(frozen=True)
class Conditions:
    """Whether `If-None-Match: *` holds, when an object is put and when its upload is completed.

    `said` is what the server answers where it does not.
    """

    put: bool
    complete: bool
    said: tuple[str, str] = ("", "")


def find(client: "S3Client", bucket: str, name: str) -> Conditions:
    """Try both on an object of this name, and delete it.

    Raises:
        BotoCoreError, ClientError: the server does not answer, or denies access.
    """
    try:
        client.put_object(Bucket=bucket, Key=name, Body=b"first")
        put, said = _held(
            lambda: client.put_object(Bucket=bucket, Key=name, Body=b"second", IfNoneMatch="*")
        )
        complete, also_said = _held(
            lambda: upload_in_parts(client, bucket, name, b"second", if_absent=True)
        )
    finally:
        with suppress(ClientError, BotoCoreError):
            client.delete_object(Bucket=bucket, Key=name)
    return Conditions(put, complete, (said, also_said))


def _held(write: "Callable[[], object]") -> tuple[bool, str]:
    try:
        write()
    except ClientError as error:
        status = status_of(error)
        if status in FORBIDDEN | PASSING:
            raise
        return status == EXISTS, f"answers {status}"
    return False, "ignores the condition"


def upload_in_parts(
    client: "S3Client", bucket: str, name: str, body: bytes, *, if_absent: bool
) -> None:
    """Write a small object by an upload in parts, of which it has one.

    Raises:
        BotoCoreError, ClientError: the server does not answer, or refuses; nothing is left behind.
    """
    upload = client.create_multipart_upload(Bucket=bucket, Key=name)["UploadId"]
    condition = {"IfNoneMatch": "*"} if if_absent else {}
    try:
        part = client.upload_part(Bucket=bucket, Key=name, UploadId=upload, PartNumber=1, Body=body)
        client.complete_multipart_upload(
            Bucket=bucket,
            Key=name,
            UploadId=upload,
            MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]},
            **condition,  # type: ignore[arg-type]  # the stubs require literal names
        )
    except BaseException:
        with suppress(ClientError, BotoCoreError):
            client.abort_multipart_upload(Bucket=bucket, Key=name, UploadId=upload)
        raise
