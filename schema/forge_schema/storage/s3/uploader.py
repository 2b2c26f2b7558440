"""The owner who uploaded an object through a signed URL, stored in its S3 metadata."""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping

UPLOADER = "forge-uploader"


def as_metadata(owner: str) -> str:
    """Encode an owner's name for a header."""
    return urlsafe_b64encode(owner.encode()).decode()


def from_metadata(metadata: Mapping[str, str]) -> str | None:
    """Return the owner's name, or None."""
    try:
        return urlsafe_b64decode(metadata.get(UPLOADER, "")).decode() or None
    except (binascii.Error, ValueError):
        return None
