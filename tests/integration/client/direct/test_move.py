"""`forge db move`: to another database and another kind of store, without a loss."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from forge_client import Client, ClientError
from forge_client.direct import migration
from forge_client.direct.move import Move
from forge_client.settings import QueueConnection
from forge_schema.access.worker_tokens import WorkerTokens
from forge_schema.database import hold
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.storage import open_store
from support.queue.holder import Holder
from support.queue.live import Live, live
from support.store.storage import CREDENTIALS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.store.storage import Bucket


@pytest.fixture
def source(database_url: str, tmp_path: Path) -> QueueConnection:
    store = tmp_path / "source"
    store.mkdir()
    return QueueConnection(database_url, store.as_uri())


@pytest.fixture
def target(
    empty_database_url: str, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> QueueConnection:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return QueueConnection(empty_database_url, bucket.url())


@pytest.fixture
def queue(source: QueueConnection) -> Iterator[Live]:
    with live(source.database_url) as queue:
        yield queue


@pytest.fixture
def move(
    source: QueueConnection, target: QueueConnection, tmp_path: Path
) -> Callable[..., list[str]]:
    def moved(heard: Callable[[str], None] = print) -> list[str]:
        said: list[str] = []

        def say(line: str) -> None:
            said.append(line)
            heard(line)

        Move(source, target, say).run(tmp_path)
        return said

    return moved


@pytest.fixture
def held(queue: Live, source: QueueConnection) -> Holder:
    """A worker behind a server, with a job."""
    queue.submit()
    held = Holder(queue, source.store())
    worker_id = queue.registry.named("w")
    WorkerTokens(queue.database, actor="user:root").rotate(worker_id)
    return held


def test_history_logs_and_artifacts_move_and_what_runs_behind_a_server_goes_on(
    queue: Live,
    held: Holder,
    source: QueueConnection,
    target: QueueConnection,
    move: Callable[..., list[str]],
) -> None:
    job = held.grant.fence.job_id
    held.write(b"epoch 1\n")
    held.leave("model.bin", b"weights")
    said = move()
    assert any("rows in" in line and "the same in both" in line for line in said)
    with pytest.raises(DatabaseUnreachable, match="takes no writes"):
        queue.submit()
    with live(target.database_url) as there:
        assert there.finish(held.grant).accepted
    with Client(database_url=target.database_url, store_url=target.store_url) as client:
        assert client.job(job).status().state == "succeeded"
        assert [one.worker for one in client.job(job).attempts()] == ["w"]
        assert "".join(client.job(job).logs()) == "epoch 1\n"
        assert [file.path for file in client.job(job).artifacts()] == ["model.bin"]
    # A worker had begun to store it before the servers used the new place.
    open_store(source.store()).put("jobs/1/late", b"late")
    assert move() == ["3 objects; copied 1, 4 B"]
    assert open_store(target.store()).get("jobs/1/late") == b"late"


def test_a_worker_that_reaches_the_database_itself_drains_first(
    queue: Live, source: QueueConnection, target: QueueConnection, move: Callable[..., list[str]]
) -> None:
    job = queue.submit()
    worker = queue.worker("direct")
    grant = worker.claim_one()
    heard: list[str] = []

    def hear(line: str) -> None:
        heard.append(line)
        if "asked to drain" in line:
            assert queue.registry.worker(worker.id)["command"] == "drain"
            assert not hold.is_held(source.database_url)
            queue.finish(grant)

    said = move(hear)
    assert "worker direct was asked to drain" in said
    with live(target.database_url) as there:
        assert there.registry.worker(worker.id)["command"] is None
    with Client(database_url=target.database_url, store_url=target.store_url) as client:
        assert client.job(job).status().state == "succeeded"


def test_a_failure_lets_the_old_queue_go_on(
    queue: Live,
    held: Holder,
    source: QueueConnection,
    move: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise ClientError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(migration, "fill", fails)
        with pytest.raises(ClientError, match="disk is full"):
            move()
    assert not hold.is_held(source.database_url)
    assert queue.finish(held.grant).accepted
    move()


def test_a_move_that_was_killed_is_continued_or_given_up(
    queue: Live,
    source: QueueConnection,
    target: QueueConnection,
    move: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    migration.begin_filling(target.database_url)
    hold.hold(source.database_url)
    with pytest.raises(DatabaseUnreachable):
        queue.submit()
    Move(source, target, print).cancel()
    job = queue.submit()
    hold.hold(source.database_url)

    def killed(_: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(migration, "end_filling", killed)
        with pytest.raises(KeyboardInterrupt):
            move()
    assert hold.is_held(target.database_url)
    with pytest.raises(ClientError, match="already moved"):
        Move(source, target, print).cancel()
    move()
    with live(target.database_url) as there:
        assert there.submit() > job


def test_a_target_in_use_is_refused(queue: Live, source: QueueConnection) -> None:
    with pytest.raises(ClientError, match="not empty"):
        Move(source, source, print).run(Path())
    assert queue.submit()
