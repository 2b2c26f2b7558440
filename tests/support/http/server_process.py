"""`forge-server` as its own process, which a test may kill and restart."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

import httpx
import psutil
from support.ports import free_port
from support.waiting import eventually
from support.warm.process import started

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping
    from pathlib import Path

LEAVE_S = 60.0


@dataclass
class ServerProcess:
    """A server with its own port, which it keeps across restarts."""

    root: Path
    environment: Mapping[str, str]
    port: int
    process: subprocess.Popen[bytes] | None = None
    starts: int = field(default=0)
    program: str = "forge_functions.server"

    @property
    def url(self) -> str:
        scheme = "https" if "FORGE_TLS_CERT" in self.environment else "http"
        return f"{scheme}://127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def output(self) -> str:
        return "".join(
            path.read_text(errors="replace") for path in self.root.glob(f"server-{self.port}-*.log")
        )

    @property
    def memory_bytes(self) -> int:
        """The process's resident memory now."""
        assert self.process is not None
        rss: int = psutil.Process(self.process.pid).memory_info().rss
        return rss

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        said = self.root / f"server-{self.port}-{self.starts}.log"
        self.starts += 1
        with said.open("wb") as log:
            self.process = started(
                self.program,
                ["--port", str(self.port)],
                {**os.environ, **self.environment},
                log,
            )
        eventually(lambda: self._answers() or not self.running)
        assert self.running, self.output

    def kill(self) -> None:
        """Kill the server as a power cut would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(LEAVE_S)

    def leave(self) -> int:
        """Stop the server gracefully, and return its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(LEAVE_S)

    def _answers(self) -> bool:
        # An unknown path: the answer is cheaper than the document.
        with suppress(httpx.TransportError):
            answer = httpx.get(f"{self.url}/none", verify=False)  # noqa: S501  any certificate
            return answer.status_code == HTTPStatus.NOT_FOUND
        return False


@contextmanager
def server_process(
    root: Path,
    database_url: str,
    store_url: str,
    program: str = "forge_functions.server",
    /,
    **settings: object,
) -> Iterator[ServerProcess]:
    """Run a server until the block ends; settings as in FORGE_*, in lower case."""
    given = {f"FORGE_{name.upper()}": str(value) for name, value in settings.items()}
    environment = {
        "FORGE_DATABASE_URL": database_url,
        "FORGE_STORE_URL": store_url,
        "FORGE_SERVER_SECRET": secrets.token_hex(32),
        "FORGE_HEARTBEAT_S": "0.5",
        "FORGE_LEASE_TTL_S": "8",
        "FORGE_LONG_POLL_S": "5",
        **given,
    }
    server = ServerProcess(root, environment, free_port(), program=program)
    try:
        server.start()
        yield server
        if server.running:
            assert server.leave() == 0, server.output
    finally:
        if server.running:
            server.kill()
