"""A shell inside a running job: what its caller, the server and its worker send each other.

A shell is one command, or a whole SSH connection, which also carries ports of the job. All three
speak over WebSockets. A binary message carries bytes, after a first byte that names their
stream; one without bytes ends the stream. Text messages are JSON: first the order, then from the
caller the new sizes of its terminal, and from the worker its SSH server's key and how it ended.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from forge_schema.model.fields import KnownFields, Text
from forge_schema.model.quantities import counted
from forge_schema.model.reading import SMALLINT
from forge_schema.proxies import proxy_of

if TYPE_CHECKING:
    import ssl

    from websockets.sync.client import ClientConnection

STDIN, STDOUT, STDERR = b"\0", b"\1", b"\2"
PIECE_BYTES = 32 << 10
# The largest message; a sender waits until the receiver has taken the ones before it.
MOST_BYTES = 64 << 10
MOST_CHARACTERS = 16_000
CALLER_PATH = "/api/v1/queue/shells"
WORKER_PATH = "/api/v1/workers/shells"
LEASE = "X-Forge-Lease"
# How long connecting, and then the order, may take.
OPEN_S, ORDER_S = 15.0, 10.0
Side = Annotated[int, Field(ge=1, le=10_000)]
# Lower ones are the system's.
Port = Annotated[int, Field(ge=1024, le=65_535)]
MOST_PORTS = 16


class Terminal(KnownFields):
    """The terminal of a caller."""

    rows: Side
    columns: Side
    term: Annotated[str, Field(pattern="^[A-Za-z0-9._+-]{1,64}$")] = "xterm"


class ShellWanted(KnownFields):
    """A command to run inside a rank of a job; without a terminal, with three streams.

    Instead of a command, `ssh` asks for an SSH server, and `ports` for one that does nothing but
    connect to these ports of the job.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["command"], "properties": {"command": {"minItems": 1}}},
                {"required": ["ssh"], "properties": {"ssh": {"const": True}}},
                {"required": ["ports"], "properties": {"ports": {"minItems": 1}}},
            ]
        }
    )

    command: Annotated[list[Text], Field(default_factory=list, max_length=1000)]
    rank: Annotated[int, Field(ge=0, le=SMALLINT)] = 0
    terminal: Terminal | None = None
    ssh: bool = False
    ports: Annotated[list[Port], Field(default_factory=list, max_length=MOST_PORTS)]

    @model_validator(mode="after")
    def _is_one_short_wish(self) -> Self:
        if sum(map(bool, (self.command, self.ssh, self.ports))) != 1:
            raise ValueError("one of command, ssh and ports is needed")
        if len(self.text) > MOST_CHARACTERS:
            raise ValueError(f"the command has more than {counted(MOST_CHARACTERS, 'character')}")
        return self

    @property
    def program(self) -> str:
        """What is shown of it in one word."""
        return self.command[0] if self.command else "ssh" if self.ssh else "port"

    @property
    def text(self) -> str:
        """The command as a shell takes it."""
        return shlex.join(self.command)


class ShellTicket(BaseModel, defer_build=True):
    """The right to open one shell, for a minute: show it, and send the order as it is."""

    ticket: str
    order: str
    worker: str


class ShellNews(BaseModel, defer_build=True):
    """The size of a terminal, or how a command ended: with a code, or not begun with an error.

    `host_key` is the public key of an SSH server, sent before its first byte.
    """

    terminal: Terminal | None = None
    host_key: str = ""
    exit_code: int | None = None
    code: str = ""
    message: str = ""
    hint: str = ""

    @property
    def text(self) -> str:
        return self.model_dump_json(exclude_defaults=True)


def connect(url: str, path: str, headers: dict[str, str], tls: ssl.SSLContext) -> ClientConnection:
    """Open a WebSocket to a server's path.

    Raises:
        OSError: the server, or the proxy in front of it, does not answer.
        websockets.InvalidHandshake: it refuses.
        ProxyUnusable: the environment's proxy cannot be used.
    """
    # Only for shells; it takes a while to import.
    from websockets.sync.client import connect as open_socket  # noqa: PLC0415

    proxy = proxy_of(url)
    scheme, _, place = url.partition("://")
    secure = scheme == "https"
    try:
        return open_socket(
            f"{'wss' if secure else 'ws'}://{place}{path}",
            ssl=tls if secure else None,
            additional_headers=headers,
            compression=None,
            max_size=MOST_BYTES,
            open_timeout=OPEN_S,
            # Who waits for a slow reader reads nothing, and answers no ping either.
            ping_timeout=None,
            proxy=proxy.url if proxy else None,
        )
    except OSError as error:
        raise OSError(f"{error}{f' (through the proxy {proxy})' if proxy else ''}") from error
