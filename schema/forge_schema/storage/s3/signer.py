"""S3 presigned URLs that also sign the object's size and checksum."""

from base64 import b64decode, b64encode
from functools import lru_cache
from typing import TYPE_CHECKING

from botocore.config import Config

from forge_schema.model.quantities import size_text
from forge_schema.model.stored import SignedUrl
from forge_schema.storage.keys import checked, checked_digest
from forge_schema.storage.s3.client import PATIENT, UPLOADER, as_metadata, connect, translated
from forge_schema.storage.store import ObjectTooLarge
from forge_schema.storage.store_url import S3Place, s3_place, split

if TYPE_CHECKING:
    from botocore.awsrequest import AWSRequest
    from mypy_boto3_s3 import S3Client

LARGEST = 5 << 30  # the limit of one PUT to S3
# By default, boto3 presigns with an old scheme, which signs no headers …
SIGNING = PATIENT.merge(Config(signature_version="s3v4"))
# … and with Amazon's global name of a bucket, which redirects while the bucket is new.
REGIONAL = SIGNING.merge(Config(s3={"addressing_style": "virtual"}))
AMAZON = ".amazonaws.com"


CHECKSUM, CONTENT_HASH = "x-amz-checksum-sha256", "x-amz-content-sha256"


class S3Signer:
    """Signs with the credentials that boto3 finds. A URL expires with them at the latest.

    The body's SHA-256 is signed as a checksum; with `content_hash`, also as part of the signature,
    for servers that verify only this.
    """

    def __init__(self, store_url: str, *, lasts_s: int, content_hash: bool = False) -> None:
        self._url, self._lasts_s = store_url, lasts_s
        self._place = s3_place(store_url, split(store_url))
        self.client = _client(store_url, self._place, content_hash=content_hash)
        self._content_hash = content_hash

    def put(
        self, key: str, *, size: int, sha256: str, if_absent: bool = False, owner: str = ""
    ) -> SignedUrl:
        if size > LARGEST:
            raise ObjectTooLarge(
                f"it has more than {size_text(LARGEST)}, the most that S3 accepts at once",
                hint="write several smaller files, or use a worker that reaches the store directly",
            )
        checksum = b64encode(bytes.fromhex(checked_digest(sha256))).decode()
        params: dict[str, object] = {"ContentLength": size, "ChecksumSHA256": checksum}
        headers = {"Content-Length": str(size), CHECKSUM: checksum}
        if self._content_hash:
            headers[CONTENT_HASH] = sha256
        if if_absent:
            params["IfNoneMatch"] = headers["If-None-Match"] = "*"
        if owner:
            params["Metadata"] = {UPLOADER: as_metadata(owner)}
            headers[f"x-amz-meta-{UPLOADER}"] = as_metadata(owner)
        return SignedUrl(
            url=self._signed("put_object", key, params),
            method="PUT",
            headers=headers,
            expires_in_s=self._lasts_s,
        )

    def get(self, key: str) -> SignedUrl:
        return SignedUrl(
            url=self._signed("get_object", key, {}), method="GET", expires_in_s=self._lasts_s
        )

    def _signed(self, operation: str, key: str, params: dict[str, object]) -> str:
        name = "/".join(filter(None, (self._place.prefix, checked(key))))
        params = {"Bucket": self._place.bucket, "Key": name, **params}
        with translated(key, self._url):
            return self.client.generate_presigned_url(
                operation, Params=params, ExpiresIn=self._lasts_s
            )


# Creating a client takes a tenth of a second, and each request opens a signer.
@lru_cache(maxsize=8)
def _client(url: str, place: S3Place, *, content_hash: bool) -> "S3Client":
    client = _connected(url, place, SIGNING)
    if client.meta.endpoint_url.endswith(AMAZON):
        client = _connected(url, place, REGIONAL)
    if content_hash:
        client.meta.events.register("before-sign.s3.PutObject", _with_content_hash)
    return client


def _with_content_hash(request: "AWSRequest", **_: object) -> None:
    checksum = request.headers[CHECKSUM]
    request.headers[CONTENT_HASH] = b64decode(checksum).hex()


def _connected(url: str, place: S3Place, config: Config) -> "S3Client":
    return connect(
        url,
        place.bucket,
        place.prefix,
        endpoint_url=place.endpoint_url,
        region=place.region,
        config=config,
    )
