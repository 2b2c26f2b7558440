"""A server's own authority: anybody may have it, and a line names it by its fingerprint."""

import hashlib
import ssl
from contextlib import closing, suppress

from forge_schema.model.errors import ForgeError

AUTHORITY = "/api/v1/workers/authority"
LARGEST_BYTES = 100_000
PATIENCE_S = 30.0


class AuthorityDiffers(ForgeError):
    """The server's authority is not the one that a line names."""


def fingerprint(pem: str) -> str:
    """Return the SHA-256 of a certificate, as `openssl x509 -fingerprint -sha256` has it.

    Raises:
        ValueError: it is not one certificate.
    """
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


def offered(url: str, tls: ssl.SSLContext) -> str | None:
    """Return the certificate of the authority that a server says is its own, if it has one.

    Raises:
        httpx.HTTPError: the server does not answer.
    """
    # What speaks HTTP takes a while to import, and lines need only the path.
    import httpx  # noqa: PLC0415

    from forge_schema.http_client import open_client  # noqa: PLC0415

    timeout = httpx.Timeout(PATIENCE_S)
    with closing(open_client("forge", tls, timeout)) as client:
        answer = client.get(f"{url.rstrip('/')}{AUTHORITY}")
    text = answer.content[:LARGEST_BYTES].decode("ascii", "replace")
    with suppress(ValueError):
        # What follows the certificate is not vouched for.
        return ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(text))
    return None


def vouched(url: str, expected: str) -> str:
    """Return the certificate of a server's authority, which has the expected fingerprint.

    Nothing but the certificate is asked of a server that is not trusted yet.

    Raises:
        AuthorityDiffers: the server has none, or another one.
        httpx.HTTPError: the server does not answer.
    """
    from forge_schema.http_client import tls_context  # noqa: PLC0415 - as above

    pem = offered(url, tls_context(verify=False))
    if pem is None or fingerprint(pem) != expected:
        raise AuthorityDiffers(
            f"{url} has another authority than the one that the line names",
            hint="ask an admin for a new line; another machine may be answering for the server",
        )
    return pem
