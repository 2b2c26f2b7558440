"""Objects of a server on this machine: open files change hands, and no byte crosses a socket."""

import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from time import monotonic
from typing import BinaryIO, TypeVar

from forge_schema.model.stored import SignedUrl
from forge_schema.storage import Taken
from forge_schema.storage.keys import is_digest
from forge_schema.storage.same_machine import (
    DROP,
    KEEP,
    MOST,
    FileRequest,
    Unheard,
    address,
    new_socket,
    proof,
    received,
    send,
)

T = TypeVar("T")

# Seconds for a message, and for a copy: so many, and one for so many bytes.
PATIENCE_S, COPIED_S, BYTES_PER_S = 5.0, 60.0, 16 << 20
# Seconds without another try after one that failed: a machine may be too busy.
PAUSE_S = 60.0
# The answer for a URL that is over, or has stored as much as one may.
USED_UP = str(int(HTTPStatus.FORBIDDEN))


class SameMachine:
    """The servers of this machine, as long as they answer. Thread-safe."""

    def __init__(self) -> None:
        self._again_at: dict[str, float] = {}
        # By the names of their sockets, which they change when they start.
        self._takes_unread: dict[str, bool] = {}

    def takes_unread(self, name: str) -> bool:
        """Tell whether `put_unread` is worth a URL: elsewhere it would be one more for nothing."""
        if not self._may_ask(name):
            return False
        if (takes := self._takes_unread.get(name)) is None:
            takes = self._takes_unread[name] = _listens(name)
        return takes

    def put(self, signed: SignedUrl, file: BinaryIO, offset: int, size: int) -> bool:
        """Have a part of a file stored; False if that must be sent, or is not to be stored."""

        def asking(line: socket.socket, signature: str) -> bool:
            send(line, f"{signature} {offset}".encode(), [file])
            line.settimeout(COPIED_S + size / BYTES_PER_S)
            return int(line.recv(MOST) or 0) == HTTPStatus.OK

        return self._asked(signed, asking) or False

    def put_unread(
        self,
        signed: SignedUrl,
        file: BinaryIO,
        offset: int,
        size: int,
        wanted: Callable[[str], bool],
    ) -> Taken | None:
        """Have a part of a file copied and hashed, and kept if it is wanted; None as `put`."""

        def asking(line: socket.socket, signature: str) -> Taken | None:
            send(line, f"{signature} {offset}".encode(), [file])
            line.settimeout(COPIED_S + size / BYTES_PER_S)
            if not is_digest(sha256 := line.recv(MOST).decode("ascii", "replace")):
                # With another URL it may; a server that cannot would copy each in vain.
                self._takes_unread[signed.same_machine or ""] = sha256 == USED_UP
                return None
            send(line, KEEP if (kept := wanted(sha256)) else DROP)
            done = HTTPStatus.OK if kept else HTTPStatus.NO_CONTENT
            return Taken(sha256, kept) if int(line.recv(MOST) or 0) == done else None

        return self._asked(signed, asking)

    def get(self, signed: SignedUrl) -> BinaryIO | None:
        """Return an object, open for reading; None if it must be fetched, or is missing."""

        def asking(line: socket.socket, signature: str) -> BinaryIO | None:
            send(line, signature.encode())
            with received(line) as (_, file):
                return None if file is None else os.fdopen(os.dup(file), "rb", buffering=0)

        return self._asked(signed, asking)

    def _asked(self, signed: SignedUrl, asking: Callable[[socket.socket, str], T]) -> T | None:
        """Ask the server that signed a URL; None if it is not here, or does not answer."""
        name = signed.same_machine or ""
        if not self._may_ask(name):
            return None
        try:
            request, signature = FileRequest.by(signed)
            with new_socket() as line:
                line.settimeout(PATIENCE_S)
                line.connect(address(name))
                send(line, request.model_dump_json().encode())
                if line.recv(MOST) != proof(name, signature, request.nonce):
                    raise Unheard("it did not sign the URL")
                return asking(line, signature)
        except (OSError, ValueError, LookupError) as error:
            self._again_at = {name: monotonic() + PAUSE_S}
            if isinstance(error, ConnectionRefusedError):
                self._takes_unread[name] = False
            return None

    def _may_ask(self, name: str) -> bool:
        is_paused = monotonic() < self._again_at.get(name, 0.0)
        return bool(name) and sys.platform == "linux" and not is_paused


def _listens(name: str) -> bool:
    with new_socket() as line, suppress(OSError):
        line.settimeout(PATIENCE_S)
        line.connect(address(name))
        return True
    return False
