"""Requests to signed URLs, with urllib3: httpx takes three times its CPU for a large body."""

import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from importlib.metadata import version
from urllib.parse import unquote, urlsplit

import urllib3
from forge_schema.http_client import below
from forge_schema.model.quantities import size_text
from forge_schema.model.stored import SignedUrl
from forge_schema.proxies import Proxy, proxy_of
from forge_schema.storage import (
    ObjectMissing,
    ObjectTooLarge,
    StoreError,
    StoreUnfit,
    StoreUnreachable,
)
from urllib3.exceptions import HTTPError

from forge_worker.queue.http.session import PROGRAM

AGENT = f"{PROGRAM}/{version('forge-queue')}"
# Between two pieces, not for the whole object.
TIMEOUT = urllib3.Timeout(connect=10.0, read=60.0)
CONNECTIONS = 100
EXISTS = 412
MISSING = 404
TOO_LARGE = 413
NOT_OFFERED = 501
# Statuses that may pass: an expired URL, a conflict, too many requests.
PASSING = {403, 408, 409, 425, 429}


class SignedRequests:
    """A pool of connections; requests never carry the worker's token. Thread-safe."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._pool = cache(self._made)

    def close(self) -> None:
        """Close the connections."""
        self._pool(None).clear()
        self._pool.cache_clear()

    def put(self, key: str, signed: SignedUrl, size: int, pieces: Iterable[bytes]) -> bool:
        """Send an object; False if it must be new and is there already.

        Raises:
            StoreUnreachable: it may work later.
            ObjectTooLarge: the store does not accept it in one request.
            StoreError: the store refuses it.
        """
        # Even if it is not signed: otherwise the encoding would be chunked.
        headers = {**signed.headers, "Content-Length": str(size)}
        with self._answer(key, signed, headers, pieces) as answer:
            if answer.status == EXISTS:
                return False
            if answer.status == TOO_LARGE:
                raise ObjectTooLarge(
                    f"the store, or a proxy in front of it, refuses an object of {size_text(size)}"
                )
            _checked(key, answer)
            return True

    @contextmanager
    def getting(self, key: str, signed: SignedUrl) -> Iterator[urllib3.BaseHTTPResponse]:
        """Give the answer, with a body that is still to be read.

        Raises:
            ObjectMissing: there is none.
            StoreUnreachable: it may work later; also from reading.
            StoreError: the store refuses it.
        """
        with self._answer(key, signed, signed.headers) as answer:
            if answer.status == MISSING:
                raise ObjectMissing(f"there is no object {key} in the store")
            _checked(key, answer)
            yield answer

    @contextmanager
    def _answer(
        self,
        key: str,
        signed: SignedUrl,
        headers: Mapping[str, str],
        body: Iterable[bytes] | None = None,
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        proxy = proxy_of(signed.url)
        pool = self._pool(proxy)
        with _translated(key, proxy):
            answer = pool.request(
                signed.method,
                signed.url,
                headers={"User-Agent": AGENT, **headers},
                body=body,
                preload_content=False,
            )
            try:
                yield answer
            finally:
                # A connection with an unread rest is of no more use; otherwise it is back already.
                answer.close()

    def _made(self, proxy: Proxy | None) -> urllib3.PoolManager:
        new: Callable[..., urllib3.PoolManager] = urllib3.PoolManager
        if proxy is not None and proxy.is_socks:
            # Only with its package, which `proxy_of` has looked for.
            from urllib3.contrib.socks import SOCKSProxyManager  # noqa: PLC0415

            new = partial(SOCKSProxyManager, proxy.url)
        elif proxy is not None:
            login = urlsplit(proxy.url)
            name = f"{unquote(login.username or '')}:{unquote(login.password or '')}"
            headers = urllib3.make_headers(proxy_basic_auth=name if login.username else None)
            new = partial(urllib3.ProxyManager, proxy.url, proxy_headers=headers)
        return new(ssl_context=self._tls, timeout=TIMEOUT, retries=False, maxsize=CONNECTIONS)


@contextmanager
def _translated(key: str, proxy: Proxy | None) -> Iterator[None]:
    # The URL is as good as a password for a while, so no message contains it.
    try:
        yield
    except HTTPError as error:
        why = str(below(error, OSError) or error) or type(error).__name__
        raise StoreUnreachable(
            f"the store did not answer for {key}{f' through the proxy {proxy}' if proxy else ''}:"
            f" {why}",
            hint="check that this machine can reach the store",
        ) from error


def _checked(key: str, answer: urllib3.BaseHTTPResponse) -> None:
    status = answer.status
    if 200 <= status < 300:  # noqa: PLR2004
        return
    message = f"the store answered {status} {answer.reason} for {key}"
    if status == NOT_OFFERED:
        raise StoreUnfit(
            message, hint="the store does not offer what Forge needs; see the server's log"
        )
    if status >= 500 or status in PASSING:  # noqa: PLR2004
        raise StoreUnreachable(message)
    raise StoreError(message)
