"""`forge backup` and `forge restore`: what is stored comes back, and the lost time is void."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
import pytest
from forge_client import Client, ClientError
from forge_client.direct import migration
from forge_client.direct.backup import backup, restore
from forge_client.settings import QueueConnection
from forge_schema.database.hold import is_held
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.read.audit import Audit
from forge_schema.read.overview import remember_store
from forge_schema.storage import open_store
from support.queue.holder import Holder
from support.queue.live import live
from support.store.odd_s3 import SEAWEEDFS, odd_s3
from support.store.storage import use_credentials

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def source(database_url: str, tmp_path: Path) -> QueueConnection:
    store = tmp_path / "source"
    store.mkdir()
    return QueueConnection(database_url, store.as_uri())


@pytest.fixture
def target(empty_database_url: str, tmp_path: Path) -> QueueConnection:
    return QueueConnection(empty_database_url, (tmp_path / "target").as_uri())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "backups"


def test_what_was_handed_out_after_the_backup_is_void_and_the_rest_goes_on(
    source: QueueConnection, target: QueueConnection, folder: Path
) -> None:
    with live(source.database_url) as queue:
        running = queue.submit()
        held = Holder(queue, source.store())
        held.write(b"epoch 1\n")
        held.leave("model.bin", b"weights")
        waiting = queue.submit()
        backup(source, folder, print)
        late = queue.worker("late").claim_one()
        late_job = queue.submit()
    assert late.fence.job_id == waiting

    done = restore(target, folder, print)

    assert done.missing == 0
    with live(target.database_url) as queue:
        assert not queue.finish(late).accepted
        again = queue.worker("again").claim_one()
        assert again.fence.job_id == waiting
        assert again.fence.token > late.fence.token
        assert queue.submit() > late_job
        assert queue.finish(held.grant).accepted
        (told,) = [e for e in Audit(queue.database).events() if e["action"] == "restored"]
        assert told["detail"]["dump"] == done.dump
    with Client(database_url=target.database_url, store_url=target.store_url) as client:
        assert "".join(client.job(running).logs()) == "epoch 1\n"
        client.job(running).download(folder / "results")
    assert (folder / "results" / "model.bin").read_bytes() == b"weights"


def test_a_second_backup_copies_what_is_new_and_the_newest_is_restored(
    source: QueueConnection, target: QueueConnection, folder: Path
) -> None:
    said: list[str] = []
    with live(source.database_url) as queue:
        queue.submit()
        held = Holder(queue, source.store())
        held.write(b"one\n")
        first = backup(source, folder, said.append)
        held.write(b"two\n")
        second = backup(source, folder, said.append)
    assert "1 object; 1 of them" in said[1]
    assert "2 objects; 1 of them" in said[3]
    assert first.name < second.name
    restore(target, folder, said.append)
    with Client(database_url=target.database_url, store_url=target.store_url) as client:
        assert "".join(client.job(held.grant.fence.job_id).logs()) == "one\ntwo\n"


def test_the_store_of_another_queue_is_not_backed_up_in_its_place(
    source: QueueConnection, folder: Path, tmp_path: Path
) -> None:
    with live(source.database_url) as queue:
        queue.submit()
        key = Holder(queue, source.store()).write(b"one\n")
        store = open_store(source.store())
        assert not remember_store(queue.database, store.url, store.size)
        (tmp_path / "empty").mkdir()
        wrong = QueueConnection(source.database_url, (tmp_path / "empty").as_uri())
        with pytest.raises(ClientError, match=f"its objects in {store.url}, not in") as told:
            backup(wrong, folder, print)
        assert (told.value.code, [*folder.iterdir()]) == ("store_elsewhere", [])
        open_store(wrong.store()).put(key, b"one\n")
        assert backup(wrong, folder, print).exists()


def test_a_restore_says_how_many_objects_are_gone(
    source: QueueConnection, target: QueueConnection, folder: Path
) -> None:
    with live(source.database_url) as queue:
        queue.submit()
        held = Holder(queue, source.store())
        kept, gone = held.write(b"one\n"), held.write(b"two\n")
    open_store(source.store()).delete(gone)
    backup(source, folder, print)
    assert restore(target, folder, print).missing == 1
    assert open_store(target.store()).size(kept)


def test_a_store_that_lists_in_another_order_loses_and_repeats_nothing(
    database_url: str, target: QueueConnection, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_credentials(monkeypatch)
    said: list[str] = []
    with odd_s3(SEAWEEDFS) as odd, live(database_url) as queue:
        source = QueueConnection(database_url, odd.url)
        queue.submit()
        held = Holder(queue, odd.url)
        for name in ("model/w.bin", "model-best/w", "model.json"):
            held.leave(name, b"weights")
        open_store(odd.url).put("probe/of/another", b"")
        for _ in range(2):
            backup(source, folder, said.append)
        assert "3 objects; 0 of them new" in said[3]
        with odd_s3(SEAWEEDFS) as other:
            back = QueueConnection(target.database_url, other.url)
            assert restore(back, folder, said.append).missing == 0
            assert len(other.objects) == 3


def test_an_interrupted_restore_stays_closed_and_is_begun_again(
    source: QueueConnection,
    target: QueueConnection,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backup(source, folder, print)
    fill = migration.fill

    def killed(url: str, dump: Path) -> None:
        fill(url, dump)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(migration, "fill", killed)
        with pytest.raises(KeyboardInterrupt):
            restore(target, folder, print)
    with (
        pytest.raises(DatabaseUnreachable, match="takes no writes"),
        live(target.database_url) as early,
    ):
        early.submit()
    restore(target, folder, print)
    assert not is_held(target.database_url)
    with live(target.database_url) as queue:
        assert queue.submit() > 1000


def test_a_database_in_use_and_a_folder_without_a_backup_are_refused(
    source: QueueConnection, target: QueueConnection, folder: Path
) -> None:
    with pytest.raises(ClientError, match="no backup"):
        restore(target, folder, print)
    backup(source, folder, print)
    nowhere = QueueConnection(
        urlsplit(target.database_url)._replace(path="/nosuch").geturl(), target.store_url
    )
    with pytest.raises(ClientError, match=r'does not answer.*"nosuch" does not exist'):
        restore(nowhere, folder, print)
    with pytest.raises(ClientError, match="not empty") as refused:
        restore(source, folder, print)
    assert "createdb" in refused.value.hint
    assert not is_held(source.database_url)


def test_a_failed_dump_leaves_the_folder_as_it_was(source: QueueConnection, folder: Path) -> None:
    backup(source, folder, print)
    kept = sorted(folder.iterdir())
    with psycopg.connect(source.database_url, autocommit=True) as connection:
        connection.execute("CREATE ROLE blind LOGIN")
        try:
            blind = QueueConnection(f"{source.database_url}&user=blind", source.store_url)
            with pytest.raises(ClientError, match=r"pg_dump failed: .*permission denied"):
                backup(blind, folder, print)
        finally:
            connection.execute("DROP ROLE blind")
    assert sorted(folder.iterdir()) == kept
