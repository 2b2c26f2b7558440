"""Inputs from S3: what is read with whose rights, interrupted, changed and refused."""

from __future__ import annotations

from functools import partial
from threading import Event
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.spec.inputs import source_of
from forge_schema.storage import StoreUnreachable
from forge_worker.prepare.cache import LruFolders
from forge_worker.prepare.inputs.cache import InputCache
from forge_worker.prepare.inputs.s3 import S3Files
from forge_worker.prepare.inputs.source import InputUnusable
from support.store.storage import CREDENTIALS, answer, proxy
from support.waiting import eventually
from support.workers.attempts import attempt_of, some_grant
from support.workers.worker import bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

    from support.store.storage import Bucket, Proxy

LARGE = bytes(range(1, 251)) * ((33 << 20) // 250)
SMALL = {f"set/{n}": b"%d" % n for n in range(30)}


@pytest.fixture
def way(bucket: Bucket) -> Iterator[Proxy]:
    """The way to a bucket with a set."""
    bucket.client.put_object(Bucket=bucket.name, Key="set/large", Body=LARGE)
    bucket.client.put_object(Bucket=bucket.name, Key="set/folder/", Body=b"")
    bucket.client.put_object(Bucket=bucket.name, Key="set/folder/empty", Body=b"")
    bucket.client.put_object(Bucket=bucket.name, Key="settled", Body=b"no part of it")
    for key, body in SMALL.items():
        bucket.client.put_object(Bucket=bucket.name, Key=key, Body=body)
    with proxy(bucket.endpoint) as way:
        yield way


def files(source: str, way: Proxy, **secrets: str) -> S3Files:
    known = {**CREDENTIALS, "AWS_ENDPOINT_URL": way.url, **secrets}
    return S3Files(source_of(source), known.get)


def secrets_in(root: Path, way: Proxy) -> Path:
    folder = root / "secrets" / "ann"
    folder.mkdir(parents=True)
    for name, text in {**CREDENTIALS, "AWS_ENDPOINT_URL": way.url}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    return folder.parent


def test_objects_below_a_path_are_fetched_and_a_change_is_another_input(
    bucket: Bucket, way: Proxy, tmp_path: Path
) -> None:
    cache = InputCache(LruFolders(tmp_path / "inputs", tmp_path / "jobs", 1 << 30), 0)
    attempt = attempt_of(some_grant(), tmp_path / "jobs" / "7")
    fetch = partial(cache.fetch, text="s3", attempt=attempt, name="x")
    place, found = fetch(files(f"s3://{bucket.name}/set/", way))
    assert (place / "large").read_bytes() == LARGE
    assert {f"set/{p.name}": p.read_bytes() for p in place.glob("[0-9]*")} == SMALL
    assert (place / "folder" / "empty").read_bytes() == b""
    assert found.files == len(SMALL) + 2
    single, _ = fetch(files(f"s3://{bucket.name}/set/7", way))
    assert [(p.name, p.read_bytes()) for p in single.iterdir()] == [("7", b"7")]

    # One that changes while it is fetched is not mixed.
    source = files(f"s3://{bucket.name}/set/8", way)
    (changing,) = source.listing().files
    bucket.client.put_object(Bucket=bucket.name, Key="set/8", Body=b"new")
    with pytest.raises(StoreUnreachable, match="changed while it was fetched"):
        list(source.read(changing.extents[0]))
    again, now = fetch(files(f"s3://{bucket.name}/set", way))
    assert (again / "8").read_bytes() == b"new"
    assert (place / "8").read_bytes() == b"8"
    assert now.digest != found.digest


def test_a_slash_at_the_end_means_a_folder_and_no_two_objects_become_one_file(
    bucket: Bucket, way: Proxy
) -> None:
    for key in ("both", "both/x", "twice/x", "twice//x", "once//x"):
        bucket.client.put_object(Bucket=bucket.name, Key=key, Body=key.encode())

    def paths(place: str) -> list[str]:
        return [file.path for file in files(f"s3://{bucket.name}/{place}", way).listing().files]

    assert (paths("both"), paths("both/")) == (["both"], ["x"])
    # As programs write that join a folder and a name by a slash too many.
    assert paths("once") == ["x"]
    with pytest.raises(InputUnusable, match="two objects would be the file 'x'"):
        paths("twice")


def test_the_next_job_of_an_owner_has_the_same_connections_and_no_others(
    bucket: Bucket, way: Proxy
) -> None:
    name = f"s3://{bucket.name}"
    first = files(name, way)
    assert files(f"{name}/set", way)._client is first._client
    assert files(name, way, AWS_ACCESS_KEY_ID="another")._client is not first._client


def test_what_cannot_be_read_is_said_and_not_tried_again(
    bucket: Bucket, way: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The worker's own rights are not used, whatever they are.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the worker")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the worker")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    shown: list[str | None] = []

    def denies(request: BaseHTTPRequestHandler, _: bytes) -> bool:
        shown.append(request.headers.get("Authorization"))
        return answer(request, 403, b"<Error><Code>AccessDenied</Code></Error>")

    with pytest.raises(InputUnusable, match=r"there is nothing at s3://.*/nowhere"):
        files(f"s3://{bucket.name}/nowhere", way).listing()
    with pytest.raises(InputUnusable, match="a bucket that does not exist"):
        files("s3://no-such-bucket", way).listing()
    way.fault = denies
    with pytest.raises(InputUnusable, match=r"denies access .* \(without credentials\)") as caught:
        S3Files(source_of(f"s3://{bucket.name}"), {"AWS_ENDPOINT_URL": way.url}.get).listing()
    assert set(shown) == {None}
    assert "AWS_ACCESS_KEY_ID" in caught.value.hint
    way.fault = lambda request, _: answer(request, 503)
    with pytest.raises(StoreUnreachable):
        files(f"s3://{bucket.name}", way).listing()


def test_a_worker_that_is_killed_in_the_middle_of_a_fetch_goes_on_with_the_rest(
    bucket: Bucket, way: Proxy, tmp_path: Path, database_url: str
) -> None:
    held, let_go = Event(), Event()

    def holds(request: BaseHTTPRequestHandler, _: bytes) -> bool:
        if request.command == "GET" and request.path.endswith("/set/large"):
            held.set()
            let_go.wait(60)
        return False

    way.fault = holds
    secrets = secrets_in(tmp_path, way)
    with bed("process", tmp_path, database_url) as made:
        worker = made.worker(secrets_dir=secrets)
        inputs = {"set": f"s3://{bucket.name}/set"}
        command = "test $(ls $FORGE_INPUT_SET | wc -l) = 32"
        job = made.submit("sh", "-c", command, inputs=inputs, max_losses=5)
        assert held.wait(60)
        (folder,) = (worker.folder / "inputs").glob("[0-9a-f]*")
        journal = folder / "journal"
        eventually(lambda: journal.exists() and journal.read_text().count("\n") > len(SMALL))
        worker.kill()
        let_go.set()
        way.seen.clear()
        made.worker(secrets_dir=secrets)
        made.succeeds(job)
        asked = {path.split("/", 1)[1] for path in way.seen if path.startswith("GET ")}
        assert f"{bucket.name}/set/large" in asked
        assert not {f"{bucket.name}/{key}" for key in SMALL} & asked
        assert made.reasons(job) == ["worker_lost", "succeeded"]
