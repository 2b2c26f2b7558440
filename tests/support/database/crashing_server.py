"""A Postgres server of a test's own, which the test may crash."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from forge_schema.database.migrate import upgrade
from support.database import postgres
from support.services import require
from support.workers.worker import Bed, bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class CrashingServer:
    """Crashes and restarts with the installed programs."""

    def __init__(self, server: postgres.Server) -> None:
        self.server = server

    def control(self, *words: str) -> None:
        user = "postgres" if os.geteuid() == 0 else None
        program = str(postgres.DEBIAN / "pg_ctl")
        folder = self.server.socket_dir
        subprocess.run(
            [program, "-D", str(folder / "data"), *words],
            cwd=folder,
            user=user,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=True,
        )

    def crash(self) -> None:
        self.control("stop", "-m", "immediate")

    def start(self) -> None:
        folder = self.server.socket_dir
        self.control("start", "-w", "-l", str(folder / "again.log"), "-o", f"-k {folder}")


@contextmanager
def crashing_server() -> Iterator[CrashingServer]:
    """Run a server that can crash."""
    require(postgres.DEBIAN.is_dir(), postgres.DEBIANS)
    with postgres.running(postgres.DEBIAN) as server:
        yield CrashingServer(server)


@contextmanager
def bed_on(crashing: CrashingServer, root: Path) -> Iterator[Bed]:
    """Make a bed of `process` workers whose database is on such a server."""
    url = crashing.server.url()
    upgrade(url)
    with bed("process", root, url) as made:
        yield made
