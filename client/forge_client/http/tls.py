"""Whose certificates are trusted."""

import ssl

import httpx

from forge_client.errors import ClientError
from forge_client.http.server import Server


def context(server: Server) -> ssl.SSLContext:
    """Return what to check certificates by: the usual authorities and the one that is named.

    Raises:
        ClientError: the file with the certificates cannot be used.
    """
    made = httpx.create_ssl_context(verify=server.verify)
    if not server.verify:
        return made
    made.load_default_certs()
    if server.ca is not None:
        try:
            made.load_verify_locations(cafile=server.ca)
        except (OSError, ssl.SSLError) as error:
            why = "it holds no certificate" if isinstance(error, ssl.SSLError) else error.strerror
            raise ClientError(
                f"the certificates in {server.ca} cannot be used: {why}",
                hint="name a PEM file with --tls-ca or FORGE_TLS_CA",
                code="tls_ca_invalid",
            ) from error
    return made
