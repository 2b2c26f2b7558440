"""Requests to signed URLs, with urllib3: httpx takes three times its CPU for a large body."""

import os
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from importlib.metadata import version
from typing import Any, BinaryIO, cast
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
from forge_schema.storage.signed import PATH
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError

from forge_worker.files.copies import FileChanged
from forge_worker.queue.http.session import PROGRAM

AGENT = f"{PROGRAM}/{version('forge-queue')}"
# Between two pieces, not for the whole object.
TIMEOUT = urllib3.Timeout(connect=10.0, read=60.0)
CONNECTIONS = 100
# Bytes of a file at a time: of Python, and of the kernel.
PIECE, STEP = 1 << 20, 32 << 20
EXISTS = 412
MISSING = 404
TOO_LARGE = 413
NOT_OFFERED = 501
# Statuses that may pass: an expired URL, a conflict, too many requests.
PASSING = {403, 408, 409, 425, 429}


class FilePart:
    """A part of a file that the kernel sends: nobody copies its bytes."""

    def __init__(self, file: BinaryIO, offset: int, size: int) -> None:
        self._file, self._offset, self._size = file, offset, size

    def __len__(self) -> int:
        return self._size

    def send(self, connection: HTTPConnection) -> None:
        """Send it.

        Raises:
            FileChanged: the file ends before.
            OSError: the connection is lost.
        """
        sent = connection.sock.sendfile(self._file, self._offset, self._size)
        if sent < self._size:
            raise FileChanged("it became shorter while it was sent")


Part = bytes | FilePart


class PartsConnection(HTTPConnection):
    """A connection without TLS, to which urllib3 passes a body's parts as they are."""

    def send(self, data: Any) -> None:  # noqa: ANN401  as in the standard library
        if isinstance(data, FilePart):
            data.send(self)
        else:
            super().send(data)


class PartsPool(urllib3.HTTPConnectionPool):
    """Connections that send parts of files."""

    ConnectionCls = PartsConnection


class SignedRequests:
    """A pool of connections; requests never carry the worker's token. Thread-safe."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._pool = cache(self._made)

    def close(self) -> None:
        """Close the connections."""
        self._pool(None).clear()
        self._pool.cache_clear()

    def content(
        self, signed: SignedUrl, file: BinaryIO, offset: int, size: int, most: int = STEP
    ) -> Iterator[Part]:
        """Yield a part of a file as it is sent to a URL, at most so many bytes at a time."""
        by_kernel = signed.url.startswith("http:") and proxy_of(signed.url) is None
        step, end = most if by_kernel else min(most, PIECE), offset + size
        for start in range(offset, end, step):
            some = min(step, end - start)
            yield FilePart(file, start, some) if by_kernel else _read(file, start, some)

    def put(self, key: str, signed: SignedUrl, size: int, pieces: Iterable[Part]) -> bool:
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
        body: Iterable[Part] | None = None,
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        proxy = proxy_of(signed.url)
        pool = self._pool(proxy)
        with _translated(key, signed.url, proxy):
            answer = pool.request(
                signed.method,
                signed.url,
                headers={"User-Agent": AGENT, **headers},
                body=cast("Iterable[bytes] | None", body),
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
        made = new(ssl_context=self._tls, timeout=TIMEOUT, retries=False, maxsize=CONNECTIONS)
        if proxy is None:
            made.pool_classes_by_scheme = {**made.pool_classes_by_scheme, "http": PartsPool}
        return made


def _read(file: BinaryIO, offset: int, size: int) -> bytes:
    # In pieces, whose memory is used again: to read all of it at once takes longer.
    if len(piece := os.pread(file.fileno(), size, offset)) < size:
        raise FileChanged("it became shorter while it was sent")
    return piece


@contextmanager
def _translated(key: str, url: str, proxy: Proxy | None) -> Iterator[None]:
    # The URL is as good as a password for a while, so no message contains all of it.
    try:
        yield
    except HTTPError as error:
        parts = urlsplit(url)
        place = f"{parts.scheme}://{parts.netloc}"
        ours = parts.path.startswith(PATH)
        why = str(below(error, OSError) or error) or type(error).__name__
        raise StoreUnreachable(
            f"the store at {place} did not answer for {key}"
            f"{f' through the proxy {proxy}' if proxy else ''}: {why}",
            hint="set the server's FORGE_PUBLIC_URL if this is not where machines reach it"
            if ours
            else "check that this machine can reach the store",
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
