"""PgBouncer in transaction mode, supervised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.parts.member import Member
from support.database import pooler
from support.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

# Its own, since Forge's settings are stored on it; the checker reads as `postgres`.
ROLE = "pooled"
DATABASE = f"forge = host=127.0.0.1 port={{target}} dbname=forge user={ROLE}"


def pooler_is_here() -> bool:
    """Tell whether PgBouncer is installed."""
    return pooler.is_here()


class Pooler(Member):
    """PgBouncer in front of a port of this machine; `url` is its address."""

    def __init__(self, folder: Path, logs: Path, target: int) -> None:
        port = free_port()
        folder.mkdir(parents=True)
        settings = folder / "pgbouncer.ini"
        text = pooler.SETTINGS.format(databases=DATABASE.format(target=target), port=port, size=20)
        settings.write_text(text, encoding="utf-8")
        super().__init__("pooler", pooler.command(settings), {}, logs)
        self.url = f"postgresql://postgres@127.0.0.1:{port}/forge"
