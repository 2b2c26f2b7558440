"""An attempt's objects, through URLs that the server signs for each object and method."""

import hashlib
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

import httpx
import stamina
from forge_schema.http_client import open_client
from forge_schema.model.stored import SignedUrl
from forge_schema.protocol.messages import ObjectWanted
from forge_schema.storage import (
    KeyInvalid,
    ObjectMissing,
    ObjectTooLarge,
    Progress,
    StoreError,
    StoreUnreachable,
)
from forge_schema.storage.landing import landing

from forge_worker.attempt.attempt import Attempt
from forge_worker.queue.http.session import PROGRAM, LeaseUnknown, ServerRefused, Session

T = TypeVar("T")

CHUNK = 1 << 20
TRIES = 3
# Applies between two pieces, not to the whole object.
TIMEOUT = httpx.Timeout(60.0, connect=10.0)
EXISTS = 412
MISSING = 404
TOO_LARGE = 413
# Statuses that may pass: an expired URL, a conflict, too many requests.
PASSING = {403, 408, 409, 425, 429}


class LeaseLost(StoreError):
    """The server signs no more URLs for this attempt."""

    code = "lease_lost"


class HttpStore:
    """The store for all attempts of a worker; requests to signed URLs never carry its token."""

    def __init__(self, session: Session, tls: ssl.SSLContext) -> None:
        self.session = session
        self.client = open_client(PROGRAM, tls, TIMEOUT)

    def close(self) -> None:
        self.client.close()

    def of(self, attempt: Attempt) -> "HttpObjects":
        """Return the objects of one attempt."""
        return HttpObjects(self, attempt)


class HttpObjects:
    """One attempt's objects; an attempt that the server no longer knows is lost."""

    def __init__(self, store: HttpStore, attempt: Attempt) -> None:
        self._store = store
        self._attempt = attempt

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        digest = hashlib.sha256(data).hexdigest()
        wanted = self._wanted("put", key, size=len(data), sha256=digest, if_absent=if_absent)
        return _again(lambda: self._send(wanted, lambda: data))

    def put_file(
        self, key: str, path: Path, *, if_absent: bool = False, progress: Progress | None = None
    ) -> bool:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            wanted = self._wanted("put", key, size=file.tell(), sha256=digest, if_absent=if_absent)
            return _again(lambda: self._send(wanted, lambda: _read(file, progress)))

    def get(self, key: str) -> bytes:
        return _again(lambda: self._get(key))

    def get_file(self, key: str, path: Path, *, progress: Progress | None = None) -> None:
        _again(lambda: self._get_file(key, path, progress))

    def _get(self, key: str) -> bytes:
        with self._receiving(key) as response:
            return response.read()

    def _get_file(self, key: str, path: Path, progress: Progress | None) -> None:
        with self._receiving(key) as response, landing(path) as file:
            for piece in response.iter_bytes(CHUNK):
                file.write(piece)
                if progress:
                    progress(len(piece))

    def _send(self, wanted: ObjectWanted, content: Callable[[], bytes | Iterator[bytes]]) -> bool:
        signed = self._signed(wanted)
        with _translated(wanted.key):
            response = self._store.client.request(
                signed.method,
                signed.url,
                # Even if it is not signed: otherwise httpx would use chunked encoding.
                headers={**signed.headers, "Content-Length": str(wanted.size)},
                content=content(),
            )
        if response.status_code == EXISTS:
            return False
        _checked(response, wanted.key)
        return True

    @contextmanager
    def _receiving(self, key: str) -> Iterator[httpx.Response]:
        signed = self._signed(self._wanted("get", key))
        with (
            _translated(key),
            self._store.client.stream(
                signed.method, signed.url, headers=signed.headers
            ) as response,
        ):
            _checked(response, key)
            yield response

    def _wanted(
        self,
        operation: Literal["put", "get"],
        key: str,
        *,
        size: int | None = None,
        sha256: str | None = None,
        if_absent: bool = False,
    ) -> ObjectWanted:
        fence = self._attempt.fence
        return ObjectWanted(
            token=fence.token,
            nonce=fence.nonce,
            operation=operation,
            key=key,
            size=size,
            sha256=sha256,
            if_absent=if_absent,
        )

    def _signed(self, wanted: ObjectWanted) -> SignedUrl:
        path = f"/job/{self._attempt.fence.job_id}/objects"
        try:
            return self._store.session.post(path, wanted, SignedUrl)
        except LeaseUnknown as error:
            self._attempt.lose()
            raise LeaseLost(error.message, hint=error.hint) from error
        except ServerRefused as error:
            raise KeyInvalid(f"{wanted.key}: {error.message}", hint=error.hint) from error


def _again(step: Callable[[], T]) -> T:
    for tried in stamina.retry_context(
        on=StoreUnreachable, attempts=TRIES, timeout=None, wait_initial=0.2, wait_max=2
    ):
        with tried:
            answer = step()
    return answer


def _read(file: BinaryIO, progress: Progress | None) -> Iterator[bytes]:
    file.seek(0)
    while piece := file.read(CHUNK):
        yield piece
        if progress:
            progress(len(piece))


@contextmanager
def _translated(key: str) -> Iterator[None]:
    # The URL is as good as a password for a while, so no message contains it.
    try:
        yield
    except httpx.RequestError as error:
        why = str(error) or type(error).__name__
        raise StoreUnreachable(
            f"the store did not answer for {key}: {why}",
            hint="check that this machine can reach the store",
        ) from error


def _checked(response: httpx.Response, key: str) -> None:
    status = response.status_code
    if response.is_success:
        return
    if status == MISSING and response.request.method == "GET":
        raise ObjectMissing(f"there is no object {key} in the store")
    said = f"the store answered {status} {response.reason_phrase} for {key}"
    if status == TOO_LARGE:
        size = response.request.headers.get("Content-Length", "?")
        raise ObjectTooLarge(
            f"the store, or a proxy in front of it, refuses an object of {size} bytes"
        )
    if status >= 500 or status in PASSING:  # noqa: PLR2004
        raise StoreUnreachable(said)
    raise StoreError(said)
