"""A `forge-server` of its own on loopback."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

END_S = 30


@contextmanager
def forge_server(
    url: str, root: Path, store_url: str | None = None, more: Mapping[str, str] | None = None
) -> Iterator[tuple[str, psutil.Process]]:
    """Start it, and yield its address and its process; the store is a folder unless given.

    `more` is environment variables besides.
    """
    store = root / "store"
    store.mkdir(exist_ok=True)
    environment = {
        "FORGE_DATABASE_URL": url,
        "FORGE_STORE_URL": store_url or store.as_uri(),
        "FORGE_SERVER_SECRET": secrets.token_hex(32),
        "FORGE_PORT": "0",
    }
    command = [sys.executable, "-c", "from forge_functions.server import main; main()"]
    with (
        (root / "server.log").open("ab") as said,
        subprocess.Popen(
            command,
            env={**os.environ, **environment, **(more or {})},
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("listening on "), (root / "server.log").read_text()[-2000:]
            yield line.removeprefix("listening on ").strip(), psutil.Process(process.pid)
        finally:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
