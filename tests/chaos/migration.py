"""Migrate the database, under running workers of the release before where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from chaos.clients.job_mix import MARK, SMALL
from chaos.evidence.witness import install
from chaos.parts.fleet import Worker, worker
from forge_schema.database.migrate import upgrade
from support.waiting import eventually

if TYPE_CHECKING:
    from chaos.bed import Bed

# New workers for each old one.
FOR_EACH = 8
JOBS = 6
UNDER_WAY_S = 60.0


def migrated(made: Bed) -> None:
    """Migrate the bed's empty database to this version, while older workers keep running."""
    if made.old is None:
        upgrade(made.url)
        install(made.url)
        return
    made.old.migrate(made.url)
    install(made.url)
    made.workers += [_old_worker(made, n) for n in range(1 + made.options.workers // FOR_EACH)]
    for one in made.workers:
        one.start()
    made.early = made.old.submit(made.url, [_spec(n) for n in range(JOBS)])
    for job_id in made.early:
        made.history.note("submitted", job_id=job_id, writes=["mark"])
    eventually(lambda: _running(made.url), UNDER_WAY_S, 0.1)
    upgrade(made.url)


def _old_worker(made: Bed, number: int) -> Worker:
    assert made.old is not None
    name = f"old{number}"
    url, store = made.through("db-a"), made.store.ways[0].url
    settings = {"database_url": url, "store_url": store, "sweep": False}
    one = worker(name, "old", f"{name}-{made.token}", made.options.folder, **settings)
    one.environment |= made.old.environment
    made.history.note("folder", path=str(one.place))
    return one


def _spec(number: int) -> dict[str, object]:
    return {
        "name": "early",
        "owner": "ann",
        "command": ["sh", "-c", f"sleep {2 + number % 3}; {MARK}"],
        "idempotency_key": f"early-{number}",
        "resources": SMALL,
        "labels": {"place": "process"},
        "max_losses": 10,
        "backoff_s": 1,
    }


def _running(database_url: str) -> bool:
    with psycopg.connect(database_url) as connection:
        return connection.execute("SELECT FROM lease LIMIT 1").fetchone() is not None
