"""Reads objects with requests of our own: botocore takes three times the CPU for each small one.

Its signer, checksums and connections are used. What is not simply answered is left to its client,
which knows how to go on: redirects, regions, refusals, retries.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import (
    ConnectionError,  # noqa: A004  botocore's own, the base of its connection errors
    HTTPClientError,
)
from botocore.httpchecksum import (
    Crc32Checksum,
    Sha1Checksum,
    Sha256Checksum,
    StreamingChecksumBody,
)
from botocore.response import StreamingBody

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CHECKSUMS = {"crc32": Crc32Checksum, "sha256": Sha256Checksum, "sha1": Sha1Checksum}


class PlainGets:
    """Objects of a bucket, read with the connections of a client. Thread-safe.

    Args:
        client: knows where the bucket is.
        bucket: its name.
        credentials: sign each request; None for what is public.
    """

    def __init__(self, client: "S3Client", bucket: str, credentials: Credentials | None) -> None:
        url = client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"})
        self._place = url.partition("?")[0].removesuffix("k")
        self._session = client._endpoint.http_session  # type: ignore[attr-defined]  # noqa: SLF001 - with the client's proxies, certificates and time-outs
        region = client.meta.region_name
        self._signer = S3SigV4Auth(credentials, "s3", region) if credentials else None
        self._works = True

    def body(self, key: str, headers: Mapping[str, str]) -> StreamingBody | None:
        """Return the body of an object; None if the client has to ask for it."""
        if not self._works:
            return None
        request = AWSRequest("GET", self._place + quote(key, safe="/~"), headers=dict(headers))
        request.stream_output = True
        if self._signer:
            self._signer.add_auth(request)
        try:
            answer = self._session.send(request.prepare())
        except (ConnectionError, HTTPClientError):
            return None
        status = answer.status_code
        if status in {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT}:
            return _checked(answer.raw, answer.headers)
        answer.raw.close()
        # A fault of the server may pass; another refusal would come each time.
        self._works = status >= HTTPStatus.INTERNAL_SERVER_ERROR
        return None


def _checked(raw: Any, headers: Mapping[str, str]) -> StreamingBody:  # noqa: ANN401 - urllib3's
    """Return a body that compares itself with the checksum of the whole object, if that is told."""
    length: Any = headers.get("Content-Length")
    for name, checksum in CHECKSUMS.items():
        checksum_sent = headers.get(f"x-amz-checksum-{name}")
        # With a dash, it is one of the checksums of parts.
        if checksum_sent and "-" not in checksum_sent:
            return StreamingChecksumBody(raw, length, checksum(), checksum_sent)
    return StreamingBody(raw, length)
