"""A `forge-server` of its own on loopback."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

END_S = 30


@dataclass
class Server:
    """A server that keeps its port and its secret; the store is a folder unless given.

    `words` come before its command, such as `taskset`.
    """

    url: str
    root: Path
    store_url: str = ""
    words: Sequence[str] = ()
    base: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None

    def __post_init__(self) -> None:
        store = self.root / "store"
        store.mkdir(exist_ok=True)
        self.environment = {
            "FORGE_DATABASE_URL": self.url,
            "FORGE_STORE_URL": self.store_url or store.as_uri(),
            "FORGE_SERVER_SECRET": secrets.token_hex(32),
            "FORGE_PORT": "0",
        }

    def start(self) -> None:
        """Start it, and wait until it listens."""
        code = "from forge_functions.server import main; main()"
        with (self.root / "server.log").open("ab") as said:
            self.process = subprocess.Popen(
                [*self.words, sys.executable, "-c", code],
                env={**os.environ, **self.environment},
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("listening on "), (self.root / "server.log").read_text()[-2000:]
        self.base = line.removeprefix("listening on ").strip()
        self.environment["FORGE_PORT"] = self.base.rpartition(":")[2]

    def kill(self) -> None:
        """End it as a power cut would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it in order; nothing happens if it has ended."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def seen(self) -> psutil.Process:
        """The process as psutil sees it."""
        assert self.process is not None
        return psutil.Process(self.process.pid)


@contextmanager
def forge_server(
    url: str,
    root: Path,
    store_url: str = "",
    words: Sequence[str] = (),
    more: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Run a server while the block runs; `more` is environment variables besides."""
    server = Server(url, root, store_url, words)
    server.environment |= more or {}
    try:
        server.start()
        yield server
    finally:
        server.stop()
