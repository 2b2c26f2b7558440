"""One try to send: only to public or allowed addresses, how it fails, and how long it may take."""

import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from threading import Timer
from typing import TypeAlias

from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import duration_text

Network: TypeAlias = IPv4Network | IPv6Network
Address: TypeAlias = IPv4Address | IPv6Address
# Link-local ones, where clouds give credentials to anyone on a machine, and the others where they
# do: Azure, Oracle, Alibaba, AWS and Google. And those that are no single machine's.
NEVER: tuple[Network, ...] = (
    *map(IPv4Network, ("169.254.0.0/16", "168.63.129.16", "192.0.0.0/24", "100.100.100.200")),
    *map(IPv6Network, ("fe80::/10", "fd00:ec2::254", "fd20:ce::254")),
    *map(IPv4Network, ("0.0.0.0/8", "224.0.0.0/4")),
    *map(IPv6Network, ("::", "ff00::/8")),
)
# Python takes the site-local ones, which were given up, for global.
OWN: tuple[Network, ...] = (IPv6Network("fec0::/10"),)
# Addresses of IPv6 that lead to one of IPv4, their last 32 bits: NAT64, mapped, translated (SIIT),
# and the compatible ones, which were given up.
BEFORE_THE_LAST_32 = tuple(
    map(IPv6Network, ("64:ff9b::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "::/96"))
)
LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
# The upper half of an interface's identifier that contains an address of IPv4.
ISATAP = (0x5EFE, 0x0200_5EFE)
LAST_32 = 0xFFFF_FFFF
# For connecting, and for the whole of a try afterwards, however slowly the receiver speaks.
DEADLINE_S = 10.0
# A mail server looks into a letter before it answers. RFC 5321 allows more; a claim outlasts it.
LETTER_S = 60.0
LONGEST_WHY = 300
# Those of smtplib are among the first.
FAILURES = (OSError, HTTPException, ValueError)


class AddressRefused(OSError):
    """None of a host's addresses may be reached."""


def networks(texts: Iterable[str]) -> list[Network]:
    """Parse networks that are to be allowed.

    Raises:
        ValueError: one is none, or nothing in it is ever reached.
    """
    allowed = [ip_network(text) for text in texts]
    if refused := next((address for address in allowed if _is_within(address, NEVER)), None):
        raise ValueError(f"{refused} is never reached: clouds give credentials there")
    return allowed


def may_reach(address: str, allow: Iterable[Network]) -> bool:
    """Tell whether an address is one of the public internet, or of a network that is allowed."""
    places = _places(ip_address(address.partition("%")[0]))
    own = list(allow)
    return all(_may_reach(place, own) for place in places)


def _may_reach(place: Address, allow: Iterable[Network]) -> bool:
    if any(place in network for network in NEVER):
        return False
    public = place.is_global and not any(place in network for network in OWN)
    return public or any(place in network for network in allow)


def connect(host: str, port: int, timeout_s: float, *, allow: Iterable[str]) -> socket.socket:
    """Connect to the first address of a host that answers, of those that may be reached.

    The address that was checked is the one connected to: the name is resolved once.

    Args:
        host: a name or an address.
        port: the port.
        timeout_s: how long to wait for each address, and for each answer.
        allow: networks that may be reached although they are not public.

    Raises:
        AddressRefused: all are refused.
        OSError: the name is unknown, or nobody answers.
    """
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    own = networks(allow)
    allowed = [address for address in addresses if may_reach(str(address[4][0]), own)]
    if not allowed:
        raise AddressRefused(
            f"{host} has no public address, and none that an admin has allowed:"
            " `forge notification setup --allow NETWORK` does so"
        )
    failed: OSError | None = None
    for family, kind, protocol, _, address in allowed:
        try:
            return _connected(socket.socket(family, kind, protocol), address, timeout_s)
        except OSError as error:
            failed = error
    assert failed is not None  # noqa: S101 - there was an address, and no answer
    raise failed


def _is_within(network: Network, others: Iterable[Network]) -> bool:
    return any(
        network.network_address in other and network.broadcast_address in other for other in others
    )


def _connected(sock: socket.socket, address: object, timeout_s: float) -> socket.socket:
    try:
        sock.settimeout(timeout_s)
        sock.connect(address)  # type: ignore[arg-type]  # as the resolver returned it
    except OSError:
        sock.close()
        raise
    return sock


def _places(address: Address) -> tuple[Address, ...]:
    """Return the addresses that one may stand for: those of IPv4 in one of IPv6, or itself."""
    if isinstance(address, IPv4Address) or address.is_loopback or address.is_unspecified:
        return (address,)
    number = int(address)
    if any(address in network for network in BEFORE_THE_LAST_32):
        return (IPv4Address(number & LAST_32),)
    if address in LOCAL_NAT64:
        # With a prefix of 48 bits, or of 96: see RFC 6052, section 2.2.
        parted = (number >> 64 & 0xFFFF) << 16 | number >> 40 & 0xFFFF
        return IPv4Address(parted), IPv4Address(number & LAST_32)
    if number >> 32 & 0xFFFF_FFFF in ISATAP:
        return address, IPv4Address(number & LAST_32)
    if address.teredo:
        return address.teredo
    return (address.sixtofour or address,)


class NotSent(ForgeError):
    """A try to send failed; the receiver may ask for a pause of at least `least_s` seconds."""

    def __init__(self, message: str, *, least_s: int = 0) -> None:
        super().__init__(message)
        self.least_s = least_s


@contextmanager
def deadline(seconds: float, sock: Callable[[], socket.socket | None]) -> Iterator[None]:
    """End what a connection does after a time; a receiver that trickles has no end of its own.

    Raises:
        TimeoutError: it was ended.
    """
    late: list[bool] = []

    def end() -> None:
        late.append(True)
        if (opened := sock()) is not None:
            with suppress(OSError):
                # Not a TLS socket's own, which also changes what the other thread reads from.
                socket.socket.shutdown(opened, socket.SHUT_RDWR)

    timer = Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except FAILURES as error:
        if late:
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()


@contextmanager
def saying_why(seconds: float = DEADLINE_S) -> Iterator[None]:
    """Say of a try that may take some time why it failed; `NotSent` if it failed."""
    try:
        yield
    except FAILURES as error:
        raise NotSent(_why(error, seconds)) from error


def _why(error: Exception, seconds: float) -> str:
    """Return why a try failed, for the owner of a notification: no address that is not theirs."""
    from smtplib import SMTPRecipientsRefused, SMTPResponseException  # noqa: PLC0415 - only for this

    # smtplib says of its own time-out that the connection was closed.
    if TimeoutError in {type(error), type(error.__context__)}:
        return f"the receiver did not answer within {duration_text(seconds)}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the receiver's certificate is not trusted: {error.verify_message}"
    if isinstance(error, SMTPRecipientsRefused):
        code, text = next(iter(error.recipients.values()))
        return _mail_answer(code, text)
    if isinstance(error, SMTPResponseException):
        return _mail_answer(error.smtp_code, error.smtp_error)
    message = (
        str(error) if not isinstance(error, OSError) or error.errno is None else error.strerror
    )
    return (message or type(error).__name__)[:LONGEST_WHY]


def _mail_answer(code: int, text: bytes | str) -> str:
    answer = text.decode(errors="replace") if isinstance(text, bytes) else text
    return f"the mail server answered {code} {answer}"[:LONGEST_WHY]
