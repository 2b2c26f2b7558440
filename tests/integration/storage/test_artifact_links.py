"""Artifacts that are links, on the machine of somebody who does not trust the worker."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from forge_client import ClientError
from support.client.reaching import WAYS, reaching
from support.queue.holder import Holder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forge_client import Client
    from forge_client.sdk.job import Job
    from support.queue.rig import Rig


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


@pytest.fixture(params=WAYS)
def client(request: pytest.FixtureRequest, rig: Rig, store_url: str) -> Iterator[Client]:
    with reaching(request.param, rig, store_url) as client:
        yield client


class Worker:
    """Leaves files and links for a job, whatever their names are."""

    def __init__(self, client: Client, rig: Rig, store_url: str, folder: Path) -> None:
        self._made = client, rig, store_url
        self._folder = folder
        folder.mkdir()
        (folder / "train.py").touch()

    def job(self, files: dict[str, str], links: dict[str, str]) -> Job:
        client, rig, store_url = self._made
        job = client.submit(self._folder, "ls")
        holder = Holder(rig, store_url)
        at = datetime(2020, 1, 1, tzinfo=UTC)
        # No key can hold some of these names.
        for number, (path, content) in enumerate(files.items()):
            holder.leave(path, content.encode(), stored_as=f"f{number}", modified_at=at)
        for number, (path, target) in enumerate(links.items()):
            holder.leave(path, target.encode(), stored_as=f"l{number}", target=target)
        holder.end()
        return job


@pytest.fixture
def worker(client: Client, rig: Rig, store_url: str, tmp_path: Path) -> Worker:
    return Worker(client, rig, store_url, tmp_path / "project")


def seen(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): (
            f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
        )
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def test_links_and_times_arrive(worker: Worker, tmp_path: Path) -> None:
    files = {"model-2.bin": "two", "runs/1/model": "one"}
    links = {"model.bin": "model-2.bin", "runs/best": "1", "runs/1/top": "../../model.bin"}
    job = worker.job(files, links | {"gone": "nowhere"})
    expected = files | {path: f"-> {target}" for path, target in links.items()}
    expected |= {"gone": "-> nowhere"}
    to = tmp_path / "to"
    for _ in range(2):
        paths = job.download(to)
        assert seen(to) == expected
        assert sorted(paths) == sorted(to / name for name in expected)
    assert (to / "runs" / "1" / "top").read_text() == "two"
    assert (to / "model-2.bin").stat().st_mtime_ns == 1_577_836_800_000_000_000
    assert {one.path: one.target for one in job.artifacts()}["model.bin"] == "model-2.bin"
    # What has taken a link's place is replaced, and nothing is written through it.
    (to / "model.bin").unlink()
    (to / "model.bin").write_text("mine")
    (to / "runs" / "1" / "model").unlink()
    (to / "runs" / "1" / "model").symlink_to("../../model-2.bin")
    job.download(to)
    assert seen(to) == expected


@pytest.mark.parametrize(
    ("files", "links"),
    [
        ([], {"out": "/etc/passwd"}),
        ([], {"out": ".."}),
        ([], {"a/out": "../../x"}),
        ([], {"out": "a/../../x"}),
        ([], {"a/../../out": "x"}),
        ([], {"../out": "x"}),
        (["../file", "..", "/file", "a/../../file"], {}),
        # Each alone stays inside.
        ([], {"a/b/up": "../..", "out": "a/b/up/.."}),
        (["up/x"], {"up": "a"}),
        (["a/x/y"], {"a/x": "../b"}),
        ([], {"up": "a", "up/x": "y"}),
    ],
)
def test_a_hostile_worker_writes_nothing_outside(
    worker: Worker, tmp_path: Path, files: list[str], links: dict[str, str]
) -> None:
    job = worker.job(dict.fromkeys(["good", *files], "x"), links)
    for there in (True, False):
        to = tmp_path / f"to-{there}" / "in"
        to.mkdir(parents=True) if there else to.parent.mkdir()
        with pytest.raises(ClientError) as caught:
            job.download(to)
        assert caught.value.code == "artifact_path_refused"
        outside = [path for path in to.parent.iterdir() if not path.name.startswith("in")]
        assert outside == []
        assert (to / "good").read_text() == "x"
        here = to.parent.resolve()
        assert all(path.resolve().is_relative_to(here) for path in to.parent.rglob("*"))


def test_no_file_is_written_through_a_link_of_an_earlier_download(
    worker: Worker, tmp_path: Path
) -> None:
    to = tmp_path / "to"
    worker.job({"runs/1/model": "one"}, {"best": "runs/1"}).download(to)
    with pytest.raises(ClientError, match="through a link"):
        worker.job({"best/model": "evil"}, {}).download(to)
    assert (to / "runs" / "1" / "model").read_text() == "one"
    # A file in place of a link replaces the link, and not what it led to.
    worker.job({"best": "a file"}, {}).download(to)
    assert seen(to) == {"runs/1/model": "one", "best": "a file"}
    assert os.listdir(to / "runs") == ["1"]  # noqa: PTH208  names
