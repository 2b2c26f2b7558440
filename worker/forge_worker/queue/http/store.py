"""An attempt's objects, through URLs that the server signs for each object and method."""

import hashlib
import ssl
from base64 import b64encode
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import BinaryIO, TypeVar

import stamina
from forge_schema.model.stored import SignedUrl
from forge_schema.protocol import OBJECTS
from forge_schema.protocol.answers import Nothing, SignedUrls
from forge_schema.protocol.messages import (
    InputsWanted,
    ObjectsWanted,
    ObjectWanted,
    SmallObject,
    SmallObjects,
    Transfer,
)
from forge_schema.storage import (
    KeyInvalid,
    ObjectTooLarge,
    Piece,
    Progress,
    StoreError,
    StoreUnreachable,
    Taken,
)
from forge_schema.storage.keys import is_digest
from forge_schema.storage.manifest import DIGEST
from forge_schema.storage.same_machine import UNREAD
from forge_schema.storage.store import landing

from forge_worker.attempt import LiveAttempt
from forge_worker.queue.http.same_machine import SameMachine
from forge_worker.queue.http.session import LeaseUnknown, ServerRefused, Session
from forge_worker.queue.http.signed_requests import Part, SignedRequests

T = TypeVar("T")

CHUNK = 1 << 20
# Of a file, so that what is hashed and written still lies in the processor's cache.
PIECE = 256 << 10
TRIES = 3


class LeaseLost(StoreError):
    """The server signs no more URLs for this attempt."""


class HttpStore:
    """The store for all attempts of a worker; requests to signed URLs never carry its token."""

    def __init__(self, session: Session, tls: ssl.SSLContext) -> None:
        self.session = session
        self.requests = SignedRequests(tls)
        self.same_machine = SameMachine()
        # The name of the socket, if any, of the server that signed the last URL.
        self.socket_name = ""

    def close(self) -> None:
        self.requests.close()

    def of(self, attempt: LiveAttempt) -> "HttpObjects":
        """Return the objects of one attempt."""
        return HttpObjects(self, attempt)


class HttpObjects:
    """One attempt's objects; an attempt that the server no longer knows is lost."""

    def __init__(self, store: HttpStore, attempt: LiveAttempt) -> None:
        self._store = store
        self._attempt = attempt
        # URLs for objects that are expected next.
        self._ahead: dict[tuple[str, str], tuple[Transfer, SignedUrl]] = {}
        # The last URL for what nobody has read, and until when it serves others of the same size.
        self._same: tuple[Transfer, SignedUrl, float] | None = None

    def expect(self, *, puts: Sequence[Piece] = (), gets: Sequence[str] = ()) -> None:
        wanted = [
            *(_put(piece.key, piece.size, piece.sha256) for piece in puts),
            *(_get(key) for key in gets),
        ]
        if len(wanted) > 1:
            for start in range(0, len(wanted), OBJECTS):
                self._sign_ahead(wanted[start : start + OBJECTS])

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        expected = self._ahead.get(("put", key))
        known = expected is not None and expected[0].size == len(data) and expected[0].sha256
        digest = known or hashlib.sha256(data).hexdigest()
        wanted = _put(key, len(data), digest, if_absent=if_absent)
        return _again(lambda: self._send(wanted, lambda: _pieces(data)))

    def put_file(
        self, key: str, path: Path, *, if_absent: bool = False, progress: Progress | None = None
    ) -> bool:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            wanted = _put(key, file.tell(), digest, if_absent=if_absent)
            return _again(lambda: self._send_file(wanted, file, progress))

    def put_part(self, key: str, file: BinaryIO, offset: int, size: int) -> bool:
        if not is_digest(digest := key[-DIGEST:]):
            return False
        wanted = _put(key, size, digest)
        return _again(lambda: self._send_part(wanted, file, offset))

    def put_unread(
        self,
        key: Callable[[str], str],
        file: BinaryIO,
        offset: int,
        size: int,
        wanted: Callable[[str], bool],
        /,
    ) -> Taken | None:
        if not self._store.same_machine.takes_unread(self._store.socket_name):
            return None
        signed = self._unread(_put(key(UNREAD), size, UNREAD))
        taken = self._store.same_machine.put_unread(signed, file, offset, size, wanted)
        if taken is None:
            self._same = None
        return taken

    def put_together(self, objects: Mapping[str, bytes]) -> bool:
        if not self._store.session.stores_small_objects:
            return False
        fence = self._attempt.fence
        small = [_small(key, data) for key, data in objects.items()]
        body = SmallObjects(token=fence.token, nonce=fence.nonce, objects=small)
        try:
            with self._while_held():
                self._store.session.post(f"/job/{fence.job_id}/objects/small", body, Nothing)
        except ServerRefused:
            # Another server, with a lower limit on bodies.
            return False
        return True

    def get(self, key: str) -> bytes:
        return _again(lambda: self._get(key))

    def stream(self, key: str) -> Generator[bytes, None, None]:
        signed = self._signed(_get(key))
        if (file := self._store.same_machine.get(signed)) is not None:
            with file:
                yield from iter(lambda: file.read(PIECE), b"")
            return
        with self._store.requests.getting(key, signed) as response:
            yield from response.stream(CHUNK)

    def get_file(self, key: str, path: Path, *, progress: Progress | None = None) -> None:
        _again(lambda: self._get_file(key, path, progress))

    def _get(self, key: str) -> bytes:
        with self._store.requests.getting(key, self._signed(_get(key))) as response:
            return response.data

    def _get_file(self, key: str, path: Path, progress: Progress | None) -> None:
        with landing(path) as file:
            for piece in self.stream(key):
                file.write(piece)
                if progress:
                    progress(len(piece))

    def _send(self, wanted: Transfer, content: Callable[[], Iterator[bytes]]) -> bool:
        signed = self._signed(wanted)
        return self._store.requests.put(wanted.key, signed, wanted.size or 0, content())

    def _send_file(self, wanted: Transfer, file: BinaryIO, progress: Progress | None) -> bool:
        signed, requests, size = self._signed(wanted), self._store.requests, wanted.size or 0
        pieces = requests.content(signed, file, 0, size, CHUNK)
        return requests.put(wanted.key, signed, size, _counted(pieces, progress))

    def _send_part(self, wanted: Transfer, file: BinaryIO, offset: int) -> bool:
        signed, requests, size = self._signed(wanted), self._store.requests, wanted.size or 0
        if self._store.same_machine.put(signed, file, offset, size):
            return True
        pieces = requests.content(signed, file, offset, size)
        return requests.put(wanted.key, signed, size, pieces)

    def _sign_ahead(self, wanted: list[Transfer]) -> None:
        try:
            urls = self._urls(wanted)
        except (ServerRefused, ObjectTooLarge):
            # One of the objects is refused: each is signed in its turn.
            return
        for request, url in zip(wanted, urls, strict=True):
            self._ahead[request.operation, request.key] = (request, url)

    def _unread(self, wanted: Transfer) -> SignedUrl:
        if (same := self._same) is not None and same[0] == wanted and monotonic() < same[2]:
            return same[1]
        signed = _again(lambda: self._signed(wanted))
        self._same = wanted, signed, monotonic() + signed.expires_in_s / 2
        return signed

    def _urls(self, wanted: list[Transfer]) -> list[SignedUrl]:
        fence = self._attempt.fence
        body = ObjectsWanted(token=fence.token, nonce=fence.nonce, objects=wanted)
        with self._while_held():
            path = f"/job/{fence.job_id}/objects/batch"
            return self._store.session.post(path, body, SignedUrls).urls

    def _signed(self, wanted: Transfer) -> SignedUrl:
        expected, ahead = self._ahead.pop((wanted.operation, wanted.key), (None, None))
        signed = ahead if ahead is not None and expected == wanted else self._url(wanted)
        self._store.socket_name = signed.same_machine or ""
        return signed

    def _url(self, wanted: Transfer) -> SignedUrl:
        fence = self._attempt.fence
        body = ObjectWanted(token=fence.token, nonce=fence.nonce, **wanted.model_dump())
        try:
            with self._while_held():
                return self._store.session.post(f"/job/{fence.job_id}/objects", body, SignedUrl)
        except ServerRefused as error:
            raise KeyInvalid(f"{wanted.key}: {error.message}", hint=error.hint) from error

    @contextmanager
    def _while_held(self) -> Iterator[None]:
        try:
            yield
        except LeaseUnknown as error:
            self._attempt.lose()
            raise LeaseLost(error.message, hint=error.hint) from error


def _small(key: str, data: bytes) -> SmallObject:
    digest = hashlib.sha256(data).hexdigest()
    return SmallObject(key=key, sha256=digest, content=b64encode(data))


def _put(key: str, size: int, sha256: str, *, if_absent: bool = False) -> Transfer:
    return Transfer(operation="put", key=key, size=size, sha256=sha256, if_absent=if_absent)


def _get(key: str) -> Transfer:
    return Transfer(operation="get", key=key)


def _again(step: Callable[[], T]) -> T:
    for tried in stamina.retry_context(
        on=StoreUnreachable, attempts=TRIES, timeout=None, wait_initial=0.2, wait_max=2
    ):
        with tried:
            answer = step()
    return answer


def _pieces(data: bytes) -> Iterator[bytes]:
    # The HTTP library copies what it sends.
    for start in range(0, len(data), CHUNK):
        yield data[start : start + CHUNK]


def _counted(pieces: Iterable[Part], progress: Progress | None) -> Iterator[Part]:
    for piece in pieces:
        yield piece
        if progress:
            progress(len(piece))


class WaitingObjects(HttpObjects):
    """The bundle and the saved image of a waiting job."""

    def _urls(self, wanted: list[Transfer]) -> list[SignedUrl]:
        path = f"/next/{self._attempt.fence.job_id}/objects"
        body = InputsWanted(keys=[request.key for request in wanted])
        return self._store.session.post(path, body, SignedUrls).urls

    def _url(self, wanted: Transfer) -> SignedUrl:
        try:
            return self._urls([wanted])[0]
        except ServerRefused as error:
            # Another worker has taken the job.
            raise KeyInvalid(f"{wanted.key}: {error.message}", hint=error.hint) from error
