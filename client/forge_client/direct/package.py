"""The package that a server gives to machines that join."""

import hashlib

import httpx
from forge_schema.access.join_line import PACKAGE
from forge_schema.http_client import open_client, tls_context

from forge_client.errors import ClientError, as_client_error

PATIENCE_S = 30.0


def package_digest(url: str) -> str:
    """Return the SHA-256 of a server's package.

    Raises:
        ClientError: there is no server that has one.
    """
    try:
        tls, patience = tls_context(None), httpx.Timeout(PATIENCE_S)
        with as_client_error(), open_client("forge", tls, patience) as client:
            answer = client.get(f"{url.rstrip('/')}{PACKAGE}").raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ClientError(
            f"{url} does not give out the package for machines: {error}",
            hint="check --server; it names a forge-server, as in https://forge.example:8900",
            code="server_unreachable",
        ) from error
    return hashlib.sha256(answer.content).hexdigest()
