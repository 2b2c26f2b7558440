"""What every HTTP client of a server needs, the worker's as well as the `forge` command's."""

import hashlib
import re
import ssl
from base64 import urlsafe_b64encode
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import TypeVar
from urllib.parse import urlsplit

import httpx

from forge_schema.model.errors import ForgeError
from forge_schema.proxies import Proxy, ProxyFailed, is_loopback, proxy_of

E = TypeVar("E", bound=BaseException)

# Nothing was sent, so it can be sent again.
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
# Servers close a connection that was idle for five seconds. A request sent at that moment is lost,
# and nobody knows whether it took effect.
LIMITS = httpx.Limits(max_connections=100, keepalive_expiry=2.0)
LONGEST_RETRY_AFTER_S = 300.0

# OpenSSL's numbers for what Python checks from 3.13 on (ssl.VERIFY_X509_STRICT). It refuses an
# authority as `openssl req -x509` makes it, also where it was named as one to trust.
STRICT = range(80, 95)
SINCE_3_13 = " (checked from Python 3.13 on)"
REISSUE = (
    "issue the authority's certificate with a key usage, and the server's with key identifiers:"
    " deploy-server.md has the commands under “An authority of your own”"
)
# By a part of OpenSSL's reason: an authority, which is what others lack, would not help.
TRUST_HINTS = {
    SINCE_3_13: REISSUE,
    "mismatch": "write a name into the URL that the certificate has, or issue one with this name",
    "expired": "renew the server's certificate; if it is valid, set this machine's clock",
    "not yet valid": "set the clock of this machine, or of the one that issued the certificate",
}


class CertificatesUnusable(ForgeError):
    """A file of certificates cannot be read, or holds none."""

    code = "tls_ca_invalid"


def server_url(text: str) -> str:
    """Return the URL of a server without a trailing slash.

    Raises:
        ValueError: it is not one. The message does not quote it, because it may hold a password.
    """
    if not is_http(text) or re.search(r"\s", text):
        raise ValueError("write a server's URL as https://forge.example or http://host:8900")
    parts = urlsplit(text)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            "a server's URL has no user, question mark or #;"
            " the key or the token is a setting of its own"
        )
    return text.rstrip("/")


def is_http(text: str) -> bool:
    """Tell whether a text is a URL of http or https with a host."""
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def in_the_clear(url: str) -> bool:
    """Tell whether what is sent to this URL crosses a network unencrypted."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def tls_context(ca: Path | None = None, *, verify: bool = True) -> ssl.SSLContext:
    """Return a context that trusts httpx's authorities, the system's, and those in `ca`.

    Args:
        ca: a PEM file with more authorities.
        verify: False trusts any certificate.

    Raises:
        CertificatesUnusable: the file cannot be read, or holds no certificate.
    """
    context = httpx.create_ssl_context(verify=verify)
    if not verify:
        return context
    context.load_default_certs()
    if ca is not None:
        try:
            context.load_verify_locations(cafile=ca)
        except OSError as error:
            no_pem = isinstance(error, ssl.SSLError)
            why = "it holds no certificate" if no_pem else error.strerror
            raise CertificatesUnusable(
                f"the certificates in {ca} cannot be used: {why}",
                hint="name a PEM file with --tls-ca or FORGE_TLS_CA",
            ) from error
    return context


def open_client(
    program: str, tls: ssl.SSLContext, timeout: httpx.Timeout, auth: httpx.Auth | None = None
) -> httpx.Client:
    """Return a client that sends `program` and its version as the user agent."""
    headers = {"User-Agent": f"{program}/{version('forge-queue')}"}
    return httpx.Client(auth=auth, transport=Routed(tls), timeout=timeout, headers=headers)


class Routed(httpx.BaseTransport):
    """Sends each request directly or through the proxy that the environment has for its URL.

    An error from behind a proxy names it, and has a `ProxyFailed` among its causes; so has an
    answer, as the extension `proxy`, because it may be the proxy's own.
    """

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._ways: dict[Proxy | None, httpx.HTTPTransport] = {}
        self._lock = Lock()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; raises `ProxyUnusable` if its proxy cannot be used."""
        proxy = proxy_of(str(request.url))
        if proxy is None:
            return self._way(None).handle_request(request)
        try:
            answer = self._way(proxy).handle_request(request)
        except httpx.TransportError as error:
            message = f"{str(error) or type(error).__name__} (through the proxy {proxy})"
            failed = ProxyFailed(str(proxy))
            failed.__cause__ = error
            raise type(error)(message, request=request) from failed
        answer.extensions["proxy"] = str(proxy)
        return answer

    def _way(self, proxy: Proxy | None) -> httpx.HTTPTransport:
        with self._lock:
            if (way := self._ways.get(proxy)) is None:
                way = self._ways[proxy] = httpx.HTTPTransport(
                    verify=self._tls,
                    trust_env=False,
                    limits=LIMITS,
                    proxy=proxy.url if proxy else None,
                )
            return way

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            for way in self._ways.values():
                way.close()


def below(error: BaseException | None, kind: type[E]) -> E | None:
    """Return the error of a kind in the chain of causes of this one."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


def untrusted(error: BaseException) -> str:
    """Return why a server's certificate was not trusted, or "" if something else failed."""
    verification = below(error, ssl.SSLCertVerificationError)
    if verification is None:
        return ""
    return verification.verify_message + (SINCE_3_13 if verification.verify_code in STRICT else "")


def trust_hint(why: str, otherwise: str) -> str:
    """Return what to do about a certificate that is not trusted, by the reason of `untrusted`."""
    return next((hint for reason, hint in TRUST_HINTS.items() if reason in why), otherwise)


def retry_after_s(response: httpx.Response) -> float:
    """Return the pause in seconds that a server asks for, 0 if it names none."""
    seconds = response.headers.get("Retry-After", "")
    return min(float(seconds), LONGEST_RETRY_AFTER_S) if seconds.isdecimal() else 0.0


def challenge_of(verifier: str) -> str:
    """Return the challenge (S256) of a verifier, which is shown only at the end."""
    digest = hashlib.sha256(verifier.encode("utf-8", "replace")).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
