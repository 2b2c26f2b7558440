"""Objects in S3, or in a server that speaks its protocol, as inputs.

They are read with the secrets of the job's owner, never with the worker's own rights: those may
reach what belongs to others, such as the queue's store.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import boto3
from botocore import UNSIGNED
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import (
    ClientError,
    ConnectionError,  # noqa: A004  botocore's own, the base of its connection errors
    FlexibleChecksumError,
    HTTPClientError,
)
from botocore.httpchecksum import (
    Crc32Checksum,
    Sha1Checksum,
    Sha256Checksum,
    StreamingChecksumBody,
)
from botocore.response import StreamingBody
from botocore.session import get_session
from forge_schema.model.spec.inputs import NamedSource
from forge_schema.storage import StoreDenied, StoreError, StoreUnreachable
from forge_schema.storage.manifest import CHUNK_BYTES, Extent
from forge_schema.storage.s3.client import EXISTS, PATIENT, connect, status_of, translated
from forge_schema.storage.s3.transfer import BROKEN

from forge_worker.prepare.inputs.source import (
    InputListing,
    InputUnusable,
    RemoteFile,
    below,
    check_paths,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
# A larger one does not stay in the processor's cache.
PIECE = 256 << 10
# A cancelled job must not wait long for a server that hangs; what calls this tries again itself.
PROMPT = PATIENT.merge(
    Config(  # type: ignore[call-arg]  # the stubs lack the last one
        retries={"mode": "standard", "total_max_attempts": 2},
        read_timeout=10,
        ignore_configured_endpoint_urls=True,
    )
)
ANONYMOUS = Config(signature_version=UNSIGNED)


class S3Files:
    """An object, or all below a prefix.

    Args:
        secret: returns a secret of the job's owner by its name, None if there is none.
    """

    def __init__(self, source: NamedSource, secret: Callable[[str], str | None]) -> None:
        self._bucket = source.parts["bucket"]
        self._path = source.path
        # An object may have the name of a folder.
        self._is_folder = source.parts.get("path", "/").endswith("/")
        self._url = f"s3://{self._bucket}"
        whose = map(secret, (*KEYS, "AWS_REGION", "AWS_ENDPOINT_URL"))
        self._client = _connected(self._bucket, *whose)
        self._credentials = _credentials(secret)
        self._gets = PlainGets(self._client, self._bucket, self._credentials)
        self._etags: dict[str, str] = {}

    def listing(self) -> InputListing:
        """Return the objects that are there now, as `InputSource`."""
        with self._refused():
            objects = self._single() or dict(self._all())
        if not objects:
            raise InputUnusable(f"there is nothing at {self._url}/{self._path}")
        paths = {key: below(key, self._path) for key in objects}
        check_paths(paths.values())
        self._etags = {key: etag for key, (_, etag) in objects.items()}
        files = [RemoteFile(paths[key], size, key) for key, (size, _) in objects.items()]
        listing = InputListing("", files, {paths[key]: etag for key, etag in self._etags.items()})
        version = next(iter(self._etags.values())) if len(objects) == 1 else listing.identity[:12]
        return InputListing(version.strip('"'), listing.files, listing.contents)

    def expect(self, extents: Sequence[Extent]) -> None:
        """Do nothing: each request is signed here."""

    def read(self, extent: Extent) -> Generator[bytes, None, None]:
        """Yield a part of an object, as long as that is the one that was listed."""
        if not extent.size:
            return
        # A checksum covers a whole object.
        some, headers = {"ChecksumMode": "ENABLED"}, {"x-amz-checksum-mode": "ENABLED"}
        if extent.offset or extent.size == CHUNK_BYTES:
            last = extent.offset + extent.size - 1
            some = headers = {"Range": f"bytes={extent.offset}-{last}"}
        etag = self._etags[extent.key]
        with self._refused(), translated(extent.key, self._url):
            body = self._gets.body(extent.key, {**headers, "If-Match": etag})
            if body is None:
                wanted: dict[str, Any] = {"IfMatch": etag, **some}
                body = self._client.get_object(Bucket=self._bucket, Key=extent.key, **wanted)[
                    "Body"
                ]
            yield from body.iter_chunks(PIECE)

    def _single(self) -> Mapping[str, tuple[int, str]]:
        if self._is_folder:
            return {}
        try:
            head = self._client.head_object(Bucket=self._bucket, Key=self._path)
        except ClientError:
            # Listing says why, if there is nothing else.
            return {}
        return {self._path: (head["ContentLength"], head["ETag"])}

    def _all(self) -> Iterator[tuple[str, tuple[int, str]]]:
        prefix = f"{self._path}/" if self._path else ""
        pages = self._client.get_paginator("list_objects_v2")
        with translated(prefix, self._url):
            for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
                for item in page.get("Contents", []):
                    # Some programs make empty objects as folders.
                    if not item["Key"].endswith("/"):
                        yield item["Key"], (item["Size"], item["ETag"])

    @contextmanager
    def _refused(self) -> Iterator[None]:
        """Tell what may pass from what a person has to change."""
        try:
            yield
        except StoreDenied as error:
            how = "with the secrets of its owner" if self._credentials else "without credentials"
            raise InputUnusable(
                f"{error.message} ({how})",
                hint=f"store {' and '.join(KEYS[:2])} as secrets of the job's owner on the workers",
            ) from error
        except StoreUnreachable:
            raise
        except StoreError as error:
            cause = error.__cause__
            if isinstance(cause, (*BROKEN, FlexibleChecksumError)):
                raise StoreUnreachable(error.message) from error
            if isinstance(cause, ClientError) and status_of(cause) == EXISTS:
                raise StoreUnreachable(f"{self._url} changed while it was fetched") from error
            raise InputUnusable(error.message) from error


def _credentials(secret: Callable[[str], str | None]) -> Credentials | None:
    key, secret_key, token = map(secret, KEYS)
    return Credentials(key, secret_key, token) if key and secret_key else None


# To create one takes longer than to start a job. Threads may share it, with its connections.
@lru_cache(maxsize=16)
def _connected(bucket: str, *whose: str | None) -> "S3Client":
    key, secret_key, token, region, endpoint_url = whose
    core = get_session()
    # Nobody looks at the times in a listing, and to parse them takes two thirds of it.
    core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=str)
    session = boto3.session.Session(
        botocore_session=core,
        aws_access_key_id=key,
        aws_secret_access_key=secret_key,
        aws_session_token=token,
        region_name=region or "us-east-1",
    )
    return connect(
        f"s3://{bucket}",
        bucket,
        "",
        endpoint_url=endpoint_url,
        region=None,
        config=PROMPT if key else PROMPT.merge(ANONYMOUS),
        session=session,
    )


if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CHECKSUMS = {"crc32": Crc32Checksum, "sha256": Sha256Checksum, "sha1": Sha1Checksum}


class PlainGets:
    """Objects of a bucket, read with the connections of a client. Thread-safe."""

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
