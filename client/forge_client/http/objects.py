"""Transfer objects with signed URLs, without ever sending the API key."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from forge_schema.model.stored import SignedUrl
from pydantic import BaseModel

from forge_client.errors import ClientError, ExitCode, NotAllowed
from forge_client.http.errors import Retryable, loss
from forge_client.uploads import Progress

PIECE = 1 << 20
# A store may be slow with a large object, but is never silent for this long.
TIMEOUT = httpx.Timeout(60.0, connect=5.0)
RETRYABLE = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}


class Offer(BaseModel, defer_build=True):
    """Where and how to store an object, unless the store already has it."""

    stored: bool
    url: str = ""
    method: str = "PUT"
    headers: dict[str, str] = {}


class UrlRefused(NotAllowed):
    """The store refuses the URL, which may have expired."""


class ObjectTransfers:
    """Transfers objects; each method is one try, and raises `Retryable` if another may succeed."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def put(self, offer: Offer | SignedUrl, path: Path, progress: Progress) -> None:
        """Store a file; success if the object already exists.

        Raises:
            UrlRefused: the URL is refused.
            ClientError: the object is refused.
        """
        headers = {**offer.headers, "Content-Length": str(path.stat().st_size)}
        with path.open("rb") as file, _counted(progress) as counted:
            sent = counted(iter(lambda: file.read(PIECE), b""))
            with self._answer(offer.method, offer.url, content=sent, headers=headers) as answer:
                if answer.status_code != HTTPStatus.PRECONDITION_FAILED:
                    _check(answer)

    def get(
        self, url: str, most: int, write: Callable[[bytes], object], progress: Progress
    ) -> None:
        """Read an object, stopping soon after `most` bytes.

        Raises:
            UrlRefused: the URL is refused.
            ClientError: there is no such object.
        """
        plain = {"Accept-Encoding": "identity"}
        with _counted(progress) as counted, self._answer("GET", url, headers=plain) as answer:
            _check(answer)
            came = 0
            for piece in counted(answer.iter_raw(PIECE)):
                write(piece)
                came += len(piece)
                if came > most:
                    return

    @contextmanager
    def _answer(self, method: str, url: str, **given: Any) -> Iterator[httpx.Response]:  # noqa: ANN401 - httpx's own
        try:
            with self._client.stream(method, url, timeout=TIMEOUT, **given) as answer:
                yield answer
        except (httpx.RequestError, httpx.InvalidURL) as error:
            raise loss(error, _place(url)) from error


@contextmanager
def _counted(progress: Progress) -> Iterator[Callable[[Iterable[bytes]], Iterator[bytes]]]:
    """Report transferred bytes, and subtract them again if the try fails."""
    moved = 0

    def counting(pieces: Iterable[bytes]) -> Iterator[bytes]:
        nonlocal moved
        for piece in pieces:
            yield piece
            moved += len(piece)
            progress(len(piece))

    try:
        yield counting
    except BaseException:
        progress(-moved)
        raise


def _check(answer: httpx.Response) -> None:
    status, place = answer.status_code, _place(str(answer.url))
    if answer.is_success:
        return
    if status == HTTPStatus.NOT_FOUND:
        raise ClientError(
            "the object is no longer in the store",
            hint="it may have been removed by retention; run the job again",
            code="object_missing",
        )
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        raise UrlRefused(
            f"the store at {place} refuses the server's URL: HTTP {status}",
            hint="check the clocks of the server and of this machine's proxy, and the server's"
            " permissions in the store",
        )
    lacks = status == HTTPStatus.NOT_IMPLEMENTED
    may_pass = not lacks and (answer.is_server_error or status in RETRYABLE)
    error = ClientError(
        f"the store at {place} refused the object: HTTP {status}",
        hint="this store does not offer what Forge needs; the server's log says what"
        if lacks
        else "try again; if it persists, the server's log may say why",
        code="store_refused",
        exit_code=ExitCode.UNREACHABLE if may_pass else ExitCode.FAILED,
    )
    if may_pass:
        raise Retryable(error, unsure=True)
    raise error


def _place(url: str) -> str:
    # Without the path and the signature.
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
