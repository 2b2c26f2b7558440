"""PgBouncer in transaction mode, as packaged by Debian."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from chaos.parts.member import Member
from support.database.postgres import _unprivileged
from support.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = """
[databases]
forge = host=127.0.0.1 port={target} dbname=forge user=postgres

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 400
default_pool_size = 20
server_login_retry = 1
server_connect_timeout = 5
query_wait_timeout = 15
log_connections = 0
log_disconnections = 0
log_pooler_errors = 0
"""


def pooler_is_here() -> bool:
    """Tell whether PgBouncer is installed."""
    return shutil.which("pgbouncer") is not None


class Pooler(Member):
    """PgBouncer in front of a port of this machine; `url` is its address."""

    def __init__(self, folder: Path, logs: Path, target: int) -> None:
        port = free_port()
        folder.mkdir(parents=True)
        settings = folder / "pgbouncer.ini"
        settings.write_text(SETTINGS.format(target=target, port=port), encoding="utf-8")
        command = ["pgbouncer", str(settings)]
        if os.geteuid() == 0:
            command[1:1] = ["-u", _unprivileged().pw_name]
        super().__init__("pooler", command, {}, logs)
        self.url = f"postgresql://postgres@127.0.0.1:{port}/forge"
