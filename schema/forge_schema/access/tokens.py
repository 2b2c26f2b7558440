"""Create, parse and compare tokens.

`fgw_<id>_<256-bit secret>_<crc>` for a worker, `fgk_…` for an API key, `fgj_…` for a machine that
joins. The checksum detects typing errors without a database query, and lets scanners recognise
leaked tokens.
"""

import ctypes
import hashlib
import hmac
import re
import secrets
import sys
import zlib
from dataclasses import dataclass
from enum import StrEnum

from forge_schema.model.errors import ForgeError

SECRET_BYTES = 32
# Longer texts are rejected before they are parsed or hashed.
LONGEST = 200
_FORM = re.compile(r"(fg[kwj])_([0-9A-Za-z]{1,32})_([0-9a-f]{64})_([0-9a-f]{8})")

_PR_SET_DUMPABLE = 4


class TokenMalformed(ForgeError):
    """The text is not a token, or was not copied completely."""


class TokenKind(StrEnum):
    """The prefix of a token, which says what kind of caller it is for."""

    KEY = "fgk"
    WORKER = "fgw"
    JOIN = "fgj"


@dataclass(frozen=True, slots=True)
class ParsedToken:
    """A parsed token: the id that it claims, and the SHA-256 of its text, 32 bytes."""

    kind: TokenKind
    id: str
    digest: bytes


def mint(kind: TokenKind, key_id: str, secret: str = "") -> tuple[str, bytes]:
    """Create a token; return its text, to be shown once, and its digest, to be stored.

    A caller who may have to repeat this gives the secret, 64 hexadecimal digits.
    """
    stem = f"{kind.value}_{key_id}_{secret or secrets.token_hex(SECRET_BYTES)}"
    text = f"{stem}_{_checksum(stem)}"
    return text, _digest(text)


def parse(text: str, kind: TokenKind) -> ParsedToken:
    """Parse a token of this kind. `matches` checks whether it is valid.

    Raises:
        TokenMalformed: it is not such a token, or was not copied completely.
    """
    match = _FORM.fullmatch(text) if len(text) <= LONGEST else None
    if match is None or match[1] != kind.value or _checksum(text[:-9]) != match[4]:
        raise TokenMalformed(
            "this is not a complete token",
            hint=f"it begins with {kind.value}_; copy it as it was shown",
        )
    return ParsedToken(kind, match[2], _digest(text))


def matches(token: ParsedToken, stored: bytes | None) -> bool:
    """Compare a token with the stored digest in constant time."""
    return stored is not None and hmac.compare_digest(token.digest, stored)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _checksum(stem: str) -> str:
    return f"{zlib.crc32(stem.encode()):08x}"


def hide() -> None:
    """Hide this process's memory, environment and open files in `/proc` from its own user.

    Linux only. Root can still read them, unless it lacks CAP_SYS_PTRACE, CAP_SYS_ADMIN
    and CAP_PERFMON.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
