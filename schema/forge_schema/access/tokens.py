"""Tokens: how a secret is written, read and compared.

`fgw_<id>_<256-bit secret>_<crc>` for a worker, `fgk_…` for an API key. The checksum tells a typing
error from a wrong token without asking the database, and lets scanners find lost ones.
"""

import hashlib
import hmac
import re
import secrets
import zlib
from dataclasses import dataclass
from enum import StrEnum

from forge_schema.model.errors import ForgeError

SECRET_BYTES = 32
# Before anything is computed from it.
LONGEST = 200
_FORM = re.compile(r"(fg[kw])_([0-9A-Za-z]{1,32})_([0-9a-f]{64})_([0-9a-f]{8})")


class TokenMalformed(ForgeError):
    """The text is no token, or was not copied whole."""

    code = "token_malformed"


class TokenKind(StrEnum):
    """Whose token it is, by its prefix."""

    KEY = "fgk"
    WORKER = "fgw"


@dataclass(frozen=True, slots=True)
class Token:
    """A token as read: whose it says it is, and the SHA-256 of its text, 32 bytes."""

    kind: TokenKind
    id: str
    digest: bytes


def mint(kind: TokenKind, key_id: str) -> tuple[str, bytes]:
    """Return a new token's text, to be shown once, and its digest, to be stored."""
    stem = f"{kind.value}_{key_id}_{secrets.token_hex(SECRET_BYTES)}"
    text = f"{stem}_{_checksum(stem)}"
    return text, _digest(text)


def parse(text: str, kind: TokenKind) -> Token:
    """Read a token of this kind; whether it is the right one `matches` tells.

    Raises:
        TokenMalformed: it is not one, or was not copied whole.
    """
    match = _FORM.fullmatch(text) if len(text) <= LONGEST else None
    if match is None or match[1] != kind.value or _checksum(text[:-9]) != match[4]:
        raise TokenMalformed(
            "this is no whole token", hint=f"it begins with {kind.value}_; copy it as it was shown"
        )
    return Token(kind, match[2], _digest(text))


def matches(token: Token, stored: bytes | None) -> bool:
    """Compare with what is stored, in a time that tells nothing."""
    return stored is not None and hmac.compare_digest(token.digest, stored)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _checksum(stem: str) -> str:
    return f"{zlib.crc32(stem.encode()):08x}"
