"""One database with a history for all processes of a test run; the first to need it creates it."""

from __future__ import annotations

import fcntl
import json
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from support.database import postgres
from support.locked import locked
from support.past.history import Past, fill

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "forge_past"


@contextmanager
def shared_past(folder: Path, attempts: int, binaries: Path | None) -> Iterator[tuple[str, Past]]:
    """Yield the database's URL and counts; the last process to leave stops the server.

    Callers may add a little, but must not change anything that others could see.
    """
    told = folder / "past.json"
    with ExitStack() as stack:
        with locked(folder / "past.lock"):
            if told.exists():
                known = json.loads(told.read_text(encoding="utf-8"))
            else:
                known = _made(stack, told, attempts, binaries)
            # Released when this process exits, however it ends; the server's creator waits for it.
            stack.enter_context(locked(folder / "past.users", fcntl.LOCK_SH))
        yield known["url"], Past(**known["past"])


def _made(stack: ExitStack, told: Path, attempts: int, binaries: Path | None) -> dict[str, object]:
    from forge_schema.database.migrate import upgrade  # noqa: PLC0415  only where a database is wanted

    server = stack.enter_context(postgres.running(binaries))
    stack.enter_context(_last_one_out(told))
    url = server.create_template(NAME)
    upgrade(url)
    known: dict[str, object] = {"url": url, "past": asdict(fill(url, attempts))}
    told.write_text(json.dumps(known), encoding="utf-8")
    return known


@contextmanager
def _last_one_out(told: Path) -> Iterator[None]:
    try:
        yield
    finally:
        with locked(told.with_suffix(".lock")):
            told.unlink(missing_ok=True)
        with locked(told.with_suffix(".users")):
            pass
