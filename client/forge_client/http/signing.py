"""Sign the requests of API keys that require it."""

from pathlib import Path

from forge_schema.signing import Signing, read_signing_key

from forge_client.errors import as_client_error


def open_signing(path: Path | None) -> Signing | None:
    """Return what signs with the private key in a file; None without a file.

    Raises:
        ClientError: the file has no usable Ed25519 key, or a library is not installed.
    """
    with as_client_error():
        return None if path is None else Signing(read_signing_key(path))
