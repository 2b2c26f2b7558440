"""The preflight: before the program starts, the master and each member connect to each other.

A firewall, an address translation or a wrong address then stops the gang within seconds and with a
message, instead of a hang in the training library. Each connection carries 1 MiB, which does not
pass where only small packets do.
"""

import errno
import hashlib
import hmac
import os
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread

from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import duration_text

from forge_worker.gang.address import is_for_containers, to_open
from forge_worker.gang.members import Gang, Peer

TRANSFER = 1 << 20
CONNECT_S, TRANSFER_S = 10.0, 20.0
AT_ONCE = 32
# The most failures that a message names.
NAMED = 3

# The words of the system. A firewall that rejects often answers that there is no route.
NO_ROUTE = os.strerror(errno.EHOSTUNREACH).lower()
NO_NETWORK = os.strerror(errno.ENETUNREACH).lower()
REFUSED = "the connection was refused"
FOR_NO_CONTAINER = "a container on a bridge cannot connect to such an address"
TIMED_OUT = f"the connection timed out after {duration_text(CONNECT_S)}"
STRANGER = "the connection was accepted, but not by this gang: another program or machine answers"
STUCK = (
    "the connection was accepted, but 1 MiB did not pass in"
    f" {duration_text(TRANSFER_S)} (try a smaller MTU)"
)


@dataclass(frozen=True, slots=True)
class Unreached:
    """A member that another one cannot reach, and why."""

    peer: Peer
    port: int
    why: str


class PreflightFailed(ForgeError):
    """A member cannot reach others of its gang: the `ranks`."""

    def __init__(self, own: Peer, unreached: list[Unreached]) -> None:
        super().__init__(_words(own, unreached), hint=_advice(own, unreached[0]))
        self.ranks = sorted({failure.peer.rank for failure in unreached})


class PreflightAnswers:
    """Answers the preflight of the others on this member's sockets, until it is closed."""

    def __init__(self, nonce: str, sockets: Iterable[socket.socket]) -> None:
        self._servers = [_Server(nonce, listening) for listening in sockets]
        for server in self._servers:
            Thread(target=server.serve_forever, args=(0.1,), name="preflight", daemon=True).start()

    def close(self) -> None:
        """Stop answering, and close the sockets."""
        for server in self._servers:
            server.shutdown()
            server.server_close()


class _Server(ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, nonce: str, listening: socket.socket) -> None:
        self.nonce = bytes.fromhex(nonce)
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a connection that broke: the other side reports it."""


class _Handler(BaseRequestHandler):
    server: _Server
    request: socket.socket

    def handle(self) -> None:
        self.request.settimeout(TRANSFER_S)
        if hmac.compare_digest(_received(self.request, len(self.server.nonce)), self.server.nonce):
            sent = _received(self.request, TRANSFER)
            self.request.sendall(_answer(self.server.nonce, sent))
            # The other side closes first: the port would otherwise stay busy for a minute.
            self.request.recv(1)


def check(gang: Gang) -> None:
    """Connect from the master to every member, or from a member to the master.

    Raises:
        PreflightFailed: at least one cannot be reached.
    """
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="preflight") as threads:
        failures = threads.map(lambda target: _tried(gang.own, *target), _targets(gang))
        unreached = [failure for failure in failures if failure is not None]
    if unreached:
        raise PreflightFailed(gang.own, unreached)


def _targets(gang: Gang) -> list[tuple[Peer, int]]:
    if gang.rank == 0:
        return [(peer, peer.port) for peer in gang.peers[1:]]
    return [(gang.master, port) for port in dict.fromkeys((gang.master_port, gang.master.port))]


def _tried(own: Peer, peer: Peer, port: int) -> Unreached | None:
    # This process is not in the container.
    if own.publishes and not is_for_containers(peer.address):
        return Unreached(peer, port, FOR_NO_CONTAINER)
    return probe(peer, port)


def probe(peer: Peer, port: int) -> Unreached | None:
    """Send 1 MiB to a member; return why it did not arrive, or None if it did."""
    try:
        connection = socket.create_connection((peer.address, port), timeout=CONNECT_S)
    except ConnectionRefusedError:
        return Unreached(peer, port, REFUSED)
    except TimeoutError:
        return Unreached(peer, port, TIMED_OUT)
    except OSError as error:
        return Unreached(peer, port, (error.strerror or str(error)).lower())
    with connection:
        why = _exchanged(connection, bytes.fromhex(peer.nonce))
    return Unreached(peer, port, why) if why else None


def _exchanged(connection: socket.socket, nonce: bytes) -> str:
    connection.settimeout(TRANSFER_S)
    sent, answer = os.urandom(TRANSFER), b""
    with suppress(ConnectionError):
        try:
            connection.sendall(nonce + sent)
            answer = _received(connection, hashlib.sha256().digest_size)
        except TimeoutError:
            return STUCK
    return "" if hmac.compare_digest(answer, _answer(nonce, sent)) else STRANGER


def _answer(nonce: bytes, sent: bytes) -> bytes:
    return hashlib.sha256(nonce + sent).digest()


def _received(connection: socket.socket, count: int) -> bytes:
    """Return `count` bytes, or fewer if the other side closes before."""
    got = bytearray()
    while len(got) < count and (piece := connection.recv(count - len(got))):
        got += piece
    return bytes(got)


def _words(own: Peer, unreached: list[Unreached]) -> str:
    failures = [
        f"{failure.peer}, port {failure.port}: {failure.why}" for failure in unreached[:NAMED]
    ]
    more = [f"and {len(unreached) - NAMED} more"] if len(unreached) > NAMED else []
    return f"{own} cannot reach {'; '.join([*failures, *more])}"


def _advice(own: Peer, first: Unreached) -> str:
    there, address = first.peer.worker, first.peer.address
    if first.why in {REFUSED, STRANGER}:
        return (
            f"check that {address} is an address of {there} (--advertise-address), and that no"
            f" firewall there rejects {own.address}"
        )
    if first.why == FOR_NO_CONTAINER:
        return (
            f"have {there} advertise an IPv4 address that {own.worker} can reach"
            " (--advertise-address)"
        )
    if first.why == NO_NETWORK:
        return (
            f"{own.worker} has no route to {address}: have {there} advertise an address in a"
            " network that both machines are in (--advertise-address)"
        )
    if first.why == NO_ROUTE:
        return (
            f"check that {address} is an address of {there} that {own.worker} can reach"
            f" (--advertise-address), that {there} is up, and that no firewall there rejects"
            f" {own.address}: firewalld, for one, answers like this"
        )
    if first.peer.publishes:
        return (
            f"open {to_open(publishes=True)} from {own.address} to {address}, which publishes only"
            " ports of this range (--gang-network ports)"
        )
    return (
        f"open all {to_open(publishes=False)} from {own.address} to {address} and back: training"
        " libraries listen on ports of their own choice"
    )
