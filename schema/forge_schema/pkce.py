"""PKCE (RFC 7636): who begins a login alone can finish it."""

import hashlib
from base64 import urlsafe_b64encode


def challenge_of(verifier: str) -> str:
    """Return the challenge (S256) of a verifier, which is shown only at the end."""
    digest = hashlib.sha256(verifier.encode("utf-8", "replace")).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
