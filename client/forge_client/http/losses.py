"""What it means that no answer came."""

import socket
import ssl

import httpx

from forge_client.errors import ClientError
from forge_client.http.patience import Passing

# Nothing was sent, so it can be sent again.
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


def loss(error: Exception, place: str) -> ClientError | Passing:
    """Return what a request without an answer means; `place` is where it went."""
    if (untrusted := _below(error, ssl.SSLCertVerificationError)) is not None:
        return _tls(f"the certificate of {place} is not trusted: {_why(untrusted)}", TRUST_HINT)
    if (broken := _below(error, ssl.SSLError)) is not None:
        return _tls(f"no TLS connection to {place} comes about: {_why(broken)}", SCHEME_HINT)
    if (unknown := _below(error, socket.gaierror)) is not None:
        return Passing(_unreachable(place, _why(unknown)), unsure=False)
    if isinstance(error, httpx.TransportError) and not isinstance(error, httpx.UnsupportedProtocol):
        return Passing(_unreachable(place, _why(error)), unsure=not isinstance(error, NOT_SENT))
    return _unreachable(place, _why(error))


TRUST_HINT = (
    "name its authority's certificate with --tls-ca or FORGE_TLS_CA; in development,"
    " FORGE_INSECURE_SKIP_VERIFY=true trusts anybody"
)
SCHEME_HINT = "check that the URL begins as the server serves it, with http:// or https://"


def _tls(message: str, hint: str) -> ClientError:
    return ClientError(message, hint=hint, code="tls_failed")


def _unreachable(place: str, why: str) -> ClientError:
    return ClientError(
        f"{place} does not answer: {why}",
        hint="check the URL, that the server runs, and that this machine may reach it",
        code="server_unreachable",
    )


def _below(error: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    """Return the error of a kind that is behind this one."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


def _why(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, httpx.TimeoutException):
        return "it takes too long"
    said = str(getattr(error, "strerror", None) or error).partition(" (_ssl.c")[0]
    return said or type(error).__name__
