"""The server to ask: its URL, the API key, and the certificates to trust."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from forge_client.errors import ClientError

WORKER_PREFIX = "fgw_"
# What an HTTP header can carry, so that a broken key is named here and not shown anywhere.
_KEY = re.compile(r"[!-~]{8,8192}")


@dataclass(frozen=True)
class Server:
    """A `forge-server`: its URL without a slash at the end, and how it is spoken to.

    Args:
        url: `https://…`, with the path below which it is served, if there is one.
        key: an API key or another bearer token; None asks as nobody.
        signing_key: a file with the Ed25519 key that signs requests, where the API key wants it.
        ca: a file with certificates to trust besides those of the system.
        verify: whether the server's certificate is checked at all.
    """

    url: str
    key: str | None = field(default=None, repr=False)
    signing_key: Path | None = None
    ca: Path | None = None
    verify: bool = True


def checked_url(url: str) -> str:
    """Return a server's URL, without a slash at its end.

    Raises:
        ClientError: it is none; the message leaves out what it holds, which may be a password.
    """
    from forge_schema.http_client import server_url  # noqa: PLC0415 - httpx is slow

    try:
        return server_url(url)
    except ValueError as error:
        raise _wrong("this is not a server's URL", str(error)) from None


def checked_key(text: str, where: str) -> str:
    """Return an API key as it was found somewhere, without the space around it.

    Raises:
        ClientError: it is none; the message never shows it.
    """
    key = text.strip()
    if key.startswith(WORKER_PREFIX):
        raise _wrong(
            f"{where} holds a worker's token, which is not an API key",
            "an API key begins with fgk_",
        )
    if not _KEY.fullmatch(key):
        raise _wrong(
            f"{where} holds no API key", "it is one line without spaces, as it was shown when made"
        )
    return key


def read_key(path: Path) -> str:
    """Return the API key in a file.

    Raises:
        ClientError: the file cannot be read, or holds none.
    """
    try:
        return checked_key(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise _wrong(
            f"the API key cannot be read from {path}: {why}", "check --api-key-file"
        ) from error


def _wrong(message: str, hint: str) -> ClientError:
    return ClientError(message, hint=hint, code="server_invalid")
