"""A `forge up` in a folder and on a port of its own."""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from support.client.command import Command, command
from support.database.postgres import fast_folder
from support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def in_a_folder_of_its_own(home: Path, below: str | None = None) -> Iterator[Command]:
    """Give the command of a user whose `forge up` has a folder of its own.

    `below` is where the folder is made; without it, wherever that is fast.
    """
    # Not pytest's tmp_path: each run of pytest closes its parent folder to other users, and root
    # has to run Postgres as one of those.
    folder = tempfile.mkdtemp(prefix="forge-up-", dir=below or fast_folder())
    made = command(home, FORGE_DIR=folder, FORGE_RUNNER="process")
    # Any other process could take the default port while a server is down.
    kept = Path(folder, "server", "port")
    kept.parent.mkdir(mode=0o700)
    kept.write_text(str(free_port()))
    try:
        yield made
    finally:
        tell_logs(folder)
        shutil.rmtree(folder)


def tell_logs(folder: str) -> None:
    """Print its processes' logs, for failed tests."""
    for said in Path(folder).glob("logs/*"):
        sys.stderr.write(f"{said.name}:\n{said.read_text()}")
