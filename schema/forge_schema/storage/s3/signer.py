"""S3 presigned URLs that also sign the object's size and checksum."""

from base64 import b64encode
from functools import lru_cache
from typing import TYPE_CHECKING

from botocore.config import Config

from forge_schema.model.quantities import size_text
from forge_schema.model.stored import SignedUrl
from forge_schema.storage.keys import checked, checked_digest
from forge_schema.storage.opening import S3Place, s3_place, split
from forge_schema.storage.s3.client import PATIENT, UPLOADER, as_metadata, connect, translated
from forge_schema.storage.store import ObjectTooLarge

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LARGEST = 5 << 30  # the limit of one PUT to S3
# By default, boto3 presigns with an old scheme, which signs no headers …
SIGNING = PATIENT.merge(Config(signature_version="s3v4"))
# … and with Amazon's global name of a bucket, which redirects while the bucket is new.
REGIONAL = SIGNING.merge(Config(s3={"addressing_style": "virtual"}))
AMAZON = ".amazonaws.com"


class S3Signer:
    """Signs with the credentials that boto3 finds. A URL expires with them at the latest."""

    def __init__(self, store_url: str, *, lasts_s: int) -> None:
        self._url, self._lasts_s = store_url, lasts_s
        self._place = s3_place(store_url, split(store_url))
        self._client = _client(store_url, self._place)

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
        headers = {"Content-Length": str(size), "x-amz-checksum-sha256": checksum}
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
            return self._client.generate_presigned_url(
                operation, Params=params, ExpiresIn=self._lasts_s
            )


# Creating a client takes a tenth of a second, and each request opens a signer.
@lru_cache(maxsize=8)
def _client(url: str, place: S3Place) -> "S3Client":
    client = _connected(url, place, SIGNING)
    if client.meta.endpoint_url.endswith(AMAZON):
        return _connected(url, place, REGIONAL)
    return client


def _connected(url: str, place: S3Place, config: Config) -> "S3Client":
    return connect(
        url,
        place.bucket,
        place.prefix,
        endpoint_url=place.endpoint_url,
        region=place.region,
        config=config,
    )
