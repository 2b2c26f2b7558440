"""The client over HTTP: a server's URL, the API key, and the certificates to trust."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from forge_client.errors import ClientError, as_client_error

if TYPE_CHECKING:
    from forge_schema.signing import Signing

WORKER_PREFIX = "fgw_"
# What an HTTP header can carry, so that a broken key is named here and not shown anywhere.
_KEY = re.compile(r"[!-~]{8,8192}")
# A host without its scheme. No key is like that, since all have an underscore or are longer.
BARE = re.compile(r"[a-z0-9.-]{1,60}(:\d{1,5})?/?")


# httpx would import its own command, with click, rich and pygments, wherever these are installed.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # None: not to be imported


@dataclass(frozen=True)
class Server:
    """A `forge-server`: its URL without a trailing slash, and how to connect to it.

    Args:
        url: `https://…`, with the path under which it is served, if any.
        key: an API key or another bearer token; None is anonymous.
        signing_key: a file with the Ed25519 key that signs requests, if the API key requires it.
        ca: a file with certificates to trust besides those of the system.
        verify: whether the server's certificate is checked at all.
        login: whether the key is that of `forge login`.
    """

    url: str
    key: str | None = field(default=None, repr=False)
    signing_key: Path | None = None
    ca: Path | None = None
    verify: bool = True
    login: bool = False


def checked_url(url: str, named: str = "") -> str:
    """Return a server's URL without a trailing slash.

    Raises:
        ClientError: it is invalid; no more than a bare host is quoted, as it may hold a password.
    """
    from forge_schema.http_client import server_url  # noqa: PLC0415 - httpx is slow

    try:
        return server_url(url)
    except ValueError as error:
        shown = repr(url) if BARE.fullmatch(url) else ""
        what = " ".join(filter(None, [named, shown])) or "this"
        raise _wrong(f"{what} is not a server's URL", str(error)) from None


def checked_key(text: str, where: str) -> str:
    """Return an API key without surrounding white space.

    Raises:
        ClientError: it is not an API key; the message never shows it.
    """
    key = text.strip()
    if key.startswith(WORKER_PREFIX):
        raise _wrong(
            f"{where} contains a worker's token, which is not an API key",
            "an API key begins with fgk_",
        )
    if not key:
        raise _wrong(f"{where} is empty", "`forge login` gets a key; an admin creates one")
    if not _KEY.fullmatch(key):
        raise _wrong(
            f"{where} does not contain an API key",
            "copy all of it: one line without spaces, from fgk_ on unless an issuer made it",
        )
    return key


def read_key(path: Path) -> str:
    """Return the API key in a file.

    Raises:
        ClientError: the file cannot be read, or contains no API key.
    """
    try:
        return checked_key(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise _wrong(
            f"the API key cannot be read from {path}: {why}", "check --api-key-file"
        ) from error


def open_signing(path: Path | None) -> Signing | None:
    """Return what signs with the private key in a file; None without a file.

    Raises:
        ClientError: the file has no usable Ed25519 key, or a library is not installed.
    """
    from forge_schema.signing import Signing, read_signing_key  # noqa: PLC0415 - httpx is slow

    with as_client_error():
        return None if path is None else Signing(read_signing_key(path))


def _wrong(message: str, hint: str) -> ClientError:
    return ClientError(message, hint=hint, code="server_invalid")
