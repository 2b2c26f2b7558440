"""Objects of a file store for workers on the server's machine: as open files, not as bytes.

What is to be stored is copied and hashed here, as a body is. Whatever is refused or fails, the
worker repeats over HTTP, which says why.
"""

import hmac
import socket
from collections import Counter
from contextlib import suppress
from http import HTTPStatus
from threading import BoundedSemaphore, Lock, Thread
from time import perf_counter

import structlog
from forge_schema.model.errors import ForgeError
from forge_schema.model.stored import in_chunks
from forge_schema.storage import StoreError
from forge_schema.storage.file_store import FileStore
from forge_schema.storage.same_machine import (
    KEEP,
    MOST,
    UNREAD,
    FileRequest,
    Unheard,
    address,
    new_name,
    new_socket,
    proof,
    received,
    send,
)
from forge_schema.storage.signed import PATH, Permit
from pydantic import ValidationError

from forge_functions.errors import Refused
from forge_functions.objects import Upload, fits
from forge_functions.services import Services

# How many copy at once, how many copies are no objects yet, and how many connections there are.
AT_ONCE, UNPLACED, CONNECTIONS = 2, 8, 64
# How often a permit that does not say what is stored may be used.
USES = 64
# Seconds for a message.
PATIENCE_S = 5.0

log = structlog.get_logger(__name__)


class SameMachineObjects:
    """Listens until it is closed, if the store is a folder and this is Linux."""

    def __init__(self, shared: Services) -> None:
        self._shared = shared
        self._room, self._turns = BoundedSemaphore(CONNECTIONS), BoundedSemaphore(AT_ONCE)
        self._unplaced = BoundedSemaphore(UNPLACED)
        self._lock, self._uses = Lock(), Counter[Permit]()
        self._listening: socket.socket | None = None
        self._name = ""

    def open(self) -> None:
        """Listen, and have every signed URL say where."""
        if not isinstance(self._shared.store, FileStore) or not (name := new_name()):
            return
        self._listening = listening = new_socket()
        listening.bind(address(name))
        listening.listen(CONNECTIONS)
        self._shared.same_machine = self._name = name
        Thread(target=self._accept, args=[listening], name="same-machine", daemon=True).start()

    def close(self) -> None:
        """Listen no more. Copies are not waited for: the worker repeats them elsewhere."""
        self._shared.same_machine = None
        if self._listening is not None:
            with suppress(OSError):
                self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()

    def _accept(self, listening: socket.socket) -> None:
        while listening.fileno() >= 0:
            try:
                line, _ = listening.accept()
            except OSError:
                # It was closed, or there are no descriptors left.
                self._shared.stopping.wait(0.1)
                continue
            if self._room.acquire(blocking=False):
                Thread(target=self._serve, args=[line], name="same-machine", daemon=True).start()
            else:
                line.close()

    def _serve(self, line: socket.socket) -> None:
        try:
            with line, suppress(OSError, ValidationError):
                line.settimeout(PATIENCE_S)
                self._answer(line, FileRequest.model_validate_json(line.recv(MOST)))
        finally:
            self._room.release()

    def _answer(self, line: socket.socket, request: FileRequest) -> None:
        signer, permit = self._shared.own_signer(""), request.permit
        signature = signer.signature(permit)
        send(line, proof(self._name, signature, request.nonce))
        with received(line) as (told, file):
            known, _, offset = told.decode("ascii", "replace").partition(" ")
            if not hmac.compare_digest(known.encode(), signature.encode()):
                raise Unheard("it does not know the signature")
            began = perf_counter()
            if signer.is_over(permit):
                status = _say(line, HTTPStatus.FORBIDDEN)
            elif permit.method == "PUT" and file is not None and offset.isdecimal():
                status = _say(line, self._outcome(line, permit, file, int(offset)))
            else:
                status = self._sent(line, permit)
        took = round(1000 * (perf_counter() - began), 1)
        where = {"method": permit.method, "path": PATH + permit.key}
        log.info("request", **where, status=int(status), ms=took, same_machine=True)

    def _outcome(self, line: socket.socket, permit: Permit, file: int, offset: int) -> HTTPStatus:
        try:
            return self._stored(line, permit, file, offset)
        except Refused as error:
            return error.status
        except ForgeError as error:
            log.warning("file_not_copied", key=permit.key, error=error.message)
            return HTTPStatus.SERVICE_UNAVAILABLE

    def _stored(self, line: socket.socket, permit: Permit, file: int, offset: int) -> HTTPStatus:
        store = self._shared.store
        assert isinstance(store, FileStore)  # noqa: S101 - otherwise nothing listens
        if permit.if_absent and store.size(permit.key) is not None:
            return HTTPStatus.PRECONDITION_FAILED
        if permit.sha256 == UNREAD and not self._may_name(permit):
            return HTTPStatus.FORBIDDEN
        with self._unplaced, store.incoming(permit.key, if_absent=permit.if_absent) as incoming:
            upload, key = Upload(permit, incoming), permit.key
            with self._turns:
                upload.copy(file, offset)
            if permit.sha256 == UNREAD:
                if not _is_wanted(line, upload.sha256):
                    return HTTPStatus.NO_CONTENT
                key = key.removesuffix(UNREAD) + upload.sha256
            if permit.owner:
                self._shared.note_upload(permit.owner, permit.sha256)
            placed = incoming.place(key)
        return HTTPStatus.OK if placed else HTTPStatus.PRECONDITION_FAILED

    def _may_name(self, permit: Permit) -> bool:
        """Count a use of a permit without a SHA-256, and tell whether it is a fair one."""
        is_over = self._shared.own_signer("").is_over
        with self._lock:
            for over in [used for used in self._uses if is_over(used)]:
                del self._uses[over]
            self._uses[permit] += 1
            is_free = self._uses[permit] <= USES
        return is_free and fits(permit.key, UNREAD) and not permit.owner

    def _sent(self, line: socket.socket, permit: Permit) -> HTTPStatus:
        store = self._shared.store
        assert isinstance(store, FileStore)  # noqa: S101 - as above
        if permit.method != "GET" or in_chunks(permit.key):
            return _say(line, HTTPStatus.NOT_IMPLEMENTED)
        try:
            with store.open(permit.key) as file:
                send(line, str(int(HTTPStatus.OK)).encode(), [file])
        except StoreError:
            return _say(line, HTTPStatus.NOT_FOUND)
        return HTTPStatus.OK


def _is_wanted(line: socket.socket, sha256: str) -> bool:
    """Tell what the SHA-256 of a copy is, and return whether it is to be kept.

    It is not if the worker has gone or is slow: that is no fault of the store.
    """
    with suppress(OSError):
        send(line, sha256.encode())
        return line.recv(MOST) == KEEP
    return False


def _say(line: socket.socket, status: HTTPStatus) -> HTTPStatus:
    send(line, str(int(status)).encode())
    return status
