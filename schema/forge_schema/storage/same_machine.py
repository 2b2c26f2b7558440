"""How a worker and a server on the same machine hand each other open files instead of bytes.

A server listens on a socket with a name and no file, which only its machine's network namespace
has. It proves first that it signed the URL: after its end, anybody could take the name. The worker
then shows the signature; it sends the file to store, or gets the file that it wants.

Of what it has not read yet, the worker does not know the SHA-256: it has `UNREAD` signed instead.
The server copies the file, and tells the SHA-256 of its copy, which is the object if the worker
then says so. Nobody reads the file twice.
"""

import hmac
import os
import secrets
import socket
import sys
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field

from forge_schema.model.stored import SignedUrl
from forge_schema.storage.signed import PATH, Permit

# No message is larger: a key has at most 900 bytes.
MOST = 16 << 10
PURPOSE = b"forge same machine 1"
HEX = "^[0-9a-f]{64}$"
# Nothing that could be stored has it, so that such a permit is worth nothing over HTTP.
UNREAD = "0" * 64
KEEP, DROP = b"keep", b"drop"


class FileRequest(BaseModel):
    """All that is signed, but not the signature, which is still secret."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    permit: Permit
    nonce: str = Field(pattern=HEX)

    @classmethod
    def by(cls, signed: SignedUrl) -> tuple["FileRequest", str]:
        """Return the request for which a server made its own URL, and its signature."""
        parts = urlsplit(signed.url)
        asked = dict(parse_qsl(parts.query))
        signature = asked.pop("signature")
        key = unquote(parts.path.partition(PATH)[2])
        permit = {**asked, "method": signed.method, "key": key}
        return cls.model_validate({"permit": permit, "nonce": secrets.token_hex(32)}), signature


class Unheard(OSError):
    """The other side has gone, or did not send what it should."""


def new_name() -> str:
    """Return a name for a server's socket that nobody can guess; empty where there are none."""
    return f"forge-objects-{secrets.token_hex(16)}" if sys.platform == "linux" else ""


def new_socket() -> socket.socket:
    """Return a socket that keeps messages apart."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def address(name: str) -> bytes:
    """Return the address of a name."""
    return b"\0" + name.encode()


def proof(name: str, signature: str, nonce: str) -> bytes:
    """Return what only one who can make the signature, or was told it, answers to a nonce.

    It is worth nothing under another name: who took that of a server that ended could have had a
    running one answer.
    """
    return hmac.digest(signature.encode(), PURPOSE + f"{nonce} {name}".encode(), "sha256")


def send(line: socket.socket, message: bytes, files: Sequence[BinaryIO] = ()) -> None:
    """Send a message, with open files."""
    socket.send_fds(line, [message], [file.fileno() for file in files])


@contextmanager
def received(line: socket.socket) -> Iterator[tuple[bytes, int | None]]:
    """Receive a message, and the file that came with it, which is open for the block.

    Raises:
        Unheard: the other side has gone, or its file could not be opened here as well.
    """
    files = array("i")
    # Programs that are started meanwhile must not inherit it; `socket.recv_fds` drops its flags.
    room = socket.CMSG_LEN(files.itemsize)
    message, told, flags, _ = line.recvmsg(MOST, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in told:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(content[: len(content) - len(content) % files.itemsize])
    try:
        if not message or flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC):
            raise Unheard("the message is not whole")
        yield message, files[0] if files else None
    finally:
        for file in files:
            with suppress(OSError):
                os.close(file)
