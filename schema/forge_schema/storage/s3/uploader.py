"""Who uploaded an object by a signed URL, kept with the object as S3's own metadata."""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping

UPLOADER = "forge-uploader"


def as_metadata(owner: str) -> str:
    """Return an owner's name as a header can hold it."""
    return urlsafe_b64encode(owner.encode()).decode()


def from_metadata(metadata: Mapping[str, str]) -> str | None:
    """Return the owner's name, None where there is none."""
    try:
        return urlsafe_b64decode(metadata.get(UPLOADER, "")).decode() or None
    except (binascii.Error, ValueError):
        return None
