"""Links, times and what cannot be stored in the checkpoint folder, from attempt to attempt."""

from __future__ import annotations

import json
import os
import socket
import threading
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest
from forge_worker.job_io import checkpoints
from forge_worker.job_io.checkpoints import CheckpointSync
from support.gangs.ranks import Ranks
from support.workers.attempts import Desk, desk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from forge_worker.attempt import LiveAttempt
    from support.queue.rig import Rig

LIMIT_MB = 10


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[Desk]:
    with desk(database_url, tmp_path) as made:
        yield made


def sync_of(here: Desk, attempt: LiveAttempt) -> CheckpointSync:
    return CheckpointSync(attempt, here.store, here.gateway, LIMIT_MB)


def write(folder: Path, **links: str) -> None:
    """Make two files and links, as `os.symlink` does it."""
    for name in ("step=1", "runs/a/step=2"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    for path, target in links.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).symlink_to(target)


def links(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_symlink())
    return {str(path.relative_to(folder)): os.readlink(path) for path in found}  # noqa: PTH115  as it is


def end(sync: CheckpointSync) -> None:
    """Store what there is when the job has ended."""
    sync.program.over = True
    sync.step()


def resumed(here: Desk, attempt: LiveAttempt) -> tuple[LiveAttempt, CheckpointSync]:
    """Give the job back, claim it again and restore its checkpoint."""
    here.gateway.queue.release(attempt.fence)
    following = here.attempt()
    assert following.fence.job_id == attempt.fence.job_id
    sync = sync_of(here, following)
    sync.restore()
    return following, sync


def again(here: Desk, attempt: LiveAttempt) -> LiveAttempt:
    return resumed(here, attempt)[0]


def log(attempt: LiveAttempt) -> list[str]:
    return attempt.folders.log.read_text().splitlines()


def newest(here: Desk, attempt: LiveAttempt) -> dict[str, Any]:
    row = here.database.row("latest_checkpoint", job_id=attempt.fence.job_id)
    assert row is not None
    manifest: dict[str, Any] = json.loads(here.store.get(row["key"]))
    return manifest | {"counted": row["files"]}


def test_links_that_stay_in_the_folder_come_back(here: Desk) -> None:
    attempt = here.attempt()
    folder = attempt.folders.checkpoint
    relative = {
        "last.ckpt": "step=1",
        "best": "runs/a",
        "runs/latest": "a/step=2",
        "runs/a/first": "../../step=1",
        "runs/up": "../",
        "chain": "last.ckpt",
        "dangling": "step=99",
        "self": "self",
        "odd \udcff\n": "./step=1",
    }
    absolute = {
        "inside": f"{folder}/step=1",
        "top": f"{folder}/",
        "runs/a/container": "/forge/checkpoint/runs/a/step=2",
        "runs/detour": f"{folder}/runs/../step=1",
        "around": "runs/../step=1",
    }
    write(folder, **relative, **absolute)
    end(sync_of(here, attempt))
    assert newest(here, attempt)["counted"] == 2
    following = again(here, attempt)
    assert links(following.folders.checkpoint) == relative | {
        "inside": "step=1",
        "top": ".",
        "runs/a/container": "step=2",
        "runs/detour": "../step=1",
        "around": "step=1",
    }
    assert (following.folders.checkpoint / "best" / "step=2").read_text() == "runs/a/step=2"
    assert log(attempt) == []
    # A checkpoint that equals the previous one is not stored.
    here.store.given.clear()
    _, later = resumed(here, following)
    later.step()
    assert here.store.given == []


def test_a_link_alone_is_a_change(here: Desk) -> None:
    attempt = here.attempt()
    folder, sync = attempt.folders.checkpoint, sync_of(here, attempt)
    write(folder, last="step=1")
    sync.step()
    (folder / "new").symlink_to("runs/a/step=2")
    (folder / "new").rename(folder / "last")
    here.store.given.clear()
    sync.step()
    assert [key.rsplit("/", 1)[1] for key in here.store.given] == ["000001.json"]
    (folder / "last").unlink()
    sync.step()
    assert "links" not in newest(here, attempt)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("out", "/etc/passwd"),
        ("out", "../output/x"),
        ("runs/out", "../../.."),
        ("out", "runs/a/../../../x"),
        ("out", "twice/../.."),
    ],
)
def test_any_other_link_is_named_once(here: Desk, path: str, target: str) -> None:
    attempt = here.attempt()
    sync = sync_of(here, attempt)
    write(attempt.folders.checkpoint, **{"twice": "runs/a", path: target})
    sync.step()
    (attempt.folders.checkpoint / "new").write_text("x")
    end(sync)
    why = f"is a link to {target!r}, which leads out of its folder"
    assert log(attempt) == [f"forge: not stored in checkpoints: {path!r} {why}"]
    assert links(again(here, attempt).folders.checkpoint) == {"twice": "runs/a"}


def test_special_files_and_folders_too_deep_are_named_once_and_not_without_end(here: Desk) -> None:
    attempt = here.attempt()
    folder, sync = attempt.folders.checkpoint, sync_of(here, attempt)
    write(folder)
    os.mkfifo(folder / "a-pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "a-socket"))
    for number in range(30):
        (folder / f"link-{number:02}").symlink_to("/nowhere")
    sync.step()
    end(sync)
    said = log(attempt)
    assert said[:2] == [
        "forge: not stored in checkpoints: 'a-pipe' is a named pipe",
        "forge: not stored in checkpoints: 'a-socket' is a socket",
    ]
    assert len(said) == 21
    assert "more links and special files" in said[-1]


@pytest.mark.parametrize(
    ("path", "target"),
    [
        (".#train.py", "ann@host.1234:1700000000"),
        ("lock", "127.0.1.1:+1234"),
        ("SingletonLock", "host-1234"),
        ("study.log.lock", "study.log"),
        ("study.lock", "/elsewhere/study.log"),
        ("my-lock", "1234"),
    ],
)
def test_locks_are_not_brought_back(here: Desk, path: str, target: str) -> None:
    attempt = here.attempt()
    write(attempt.folders.checkpoint, **{path: target, "latest": "1234"})
    (attempt.folders.checkpoint / "study.log").write_text("")
    end(sync_of(here, attempt))
    assert links(again(here, attempt).folders.checkpoint) == {"latest": "1234"}
    assert log(attempt) == []


def test_a_link_to_what_is_being_written_keeps_its_last_stored_target(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "PAUSE_S", 0.0)
    attempt = here.attempt()
    folder, sync = attempt.folders.checkpoint, sync_of(here, attempt)
    write(folder, last="step=1", other="step=3")
    sync.step()
    with (folder / "step=3").open("wb") as unfinished:
        unfinished.write(b"\0half")
        unfinished.flush()
        (folder / "last").unlink()
        (folder / "last").symlink_to("step=3")
        (folder / "more").write_text("x")
        (folder / "first").symlink_to("step=3")
        sync.step()
        sync.step()
        stored = newest(here, attempt)
    assert [row["path"] for row in stored["files"]] == ["more", "runs/a/step=2", "step=1"]
    # What has never led to anything stored is not there at all.
    assert stored["links"] == [{"path": "last", "target": "step=1"}]
    end(sync)
    assert {row["path"]: row["target"] for row in newest(here, attempt)["links"]} == {
        **dict.fromkeys(("last", "other", "first"), "step=3")
    }


def test_each_rank_stores_its_own_links_and_is_given_all(rig: Rig, tmp_path: Path) -> None:
    ranks = Ranks(rig, tmp_path)
    first, second = ranks.begin(2)
    first.attempt.folders.checkpoint.joinpath("latest").symlink_to("step-1")
    first.store(model="m")
    second.attempt.folders.checkpoint.joinpath("mine").symlink_to("part")
    second.attempt.folders.checkpoint.joinpath("latest").symlink_to("step-2")
    second.store(part="p")
    first.end()
    second.end()
    later = ranks.begin(2)
    for one, latest in zip(later, ("step-1", "step-2"), strict=True):
        found = links(one.attempt.folders.checkpoint)
        assert found == {"latest": latest, "mine": "part"}
    later[0].store(more="x")
    later[1].end()
    stored = [
        json.loads(ranks.store.get(row["key"])).get("links", [])
        for row in rig.rows("SELECT key FROM checkpoint WHERE attempt = 2 ORDER BY rank")
    ]
    # A rank does not store what it was only given.
    assert [[link["path"] for link in one] for one in stored][:1] == [["latest"]]


def test_times_come_back_and_files_changed_in_their_order(here: Desk) -> None:
    attempt = here.attempt()
    folder = attempt.folders.checkpoint
    names = [f"step-{number}" for number in range(1, 17)]
    begin = 1_700_000_000_123_456_789
    for number, name in enumerate(names):
        (folder / name).mkdir()
        (folder / name / "model.bin").write_text(name)
        at = begin + number * 1_000_000
        os.utime(folder / name / "model.bin", ns=(at, at))
    os.utime(folder / "step-3" / "model.bin", ns=(-5, -5))
    end(sync_of(here, attempt))
    following = again(here, attempt)
    found = sorted(following.folders.checkpoint.rglob("model.bin"))
    by_name = {path.parent.name: path.stat() for path in found}
    assert by_name["step-16"].st_mtime_ns == begin + 15 * 1_000_000
    assert by_name["step-3"].st_mtime_ns == -5
    expected = ["step-3", *(name for name in names if name != "step-3")]
    assert sorted(names, key=lambda name: by_name[name].st_mtime_ns) == expected
    assert sorted(names, key=lambda name: by_name[name].st_ctime_ns) == expected
    assert max(found, key=lambda path: path.stat().st_ctime_ns).parent.name == "step-16"
    # A folder is as old as the newest file in it.
    folders = sorted(following.folders.checkpoint.iterdir(), key=lambda path: path.stat().st_mtime)
    assert [path.name for path in folders] == expected
    # Nothing that did not change is read or stored again.
    here.store.given.clear()
    _, sync = resumed(here, following)
    sync.step()
    assert here.store.given == []


def test_a_folder_that_the_program_removes_is_empty(here: Desk) -> None:
    attempt = here.attempt()
    folder, sync = attempt.folders.checkpoint, sync_of(here, attempt)
    write(folder)
    sync.step()
    (folder / "runs" / "a" / "step=2").unlink()
    (folder / "step=1").unlink()
    for name in ("runs/a", "runs", "."):
        (folder / name).rmdir() if name != "." else folder.rmdir()
    assert sync.idle()
    sync.step()
    sync.finish()
    assert log(attempt) == []
    # It may be made again.
    folder.mkdir()
    write(folder)
    sync.step()
    assert len(newest(here, attempt)["files"]) == 2


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_folder_that_the_program_replaces_is_named_once(
    here: Desk, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    attempt = here.attempt()
    folder, sync = attempt.folders.checkpoint, sync_of(here, attempt)
    folder.rmdir()
    folder.symlink_to(tmp_path / "outside") if kind == "link" else folder.touch()
    assert not sync.idle()
    sync.step()
    end(sync)
    assert log(attempt) == [
        f"forge: the checkpoint folder was replaced by a {kind}, so nothing in it is stored"
    ]
    assert here.store.given == []


def test_what_an_interrupted_save_left_is_restored_once(here: Desk) -> None:
    attempt = here.attempt()
    (attempt.folders.checkpoint / "model").write_text("one")
    (attempt.folders.checkpoint / ".tmpAbC123").write_text("half")
    end(sync_of(here, attempt))
    second, sync = resumed(here, attempt)
    assert sorted(os.listdir(second.folders.checkpoint)) == [".tmpAbC123", "model"]  # noqa: PTH208
    assert log(second) == [
        (
            "forge: '.tmpAbC123' may be what interrupted saves left: not restored again if nothing"
            " changes them"
        )
    ]
    (second.folders.checkpoint / "model").write_text("two")
    end(sync)
    third, sync = resumed(here, second)
    assert os.listdir(third.folders.checkpoint) == ["model"]  # noqa: PTH208  names
    assert log(third) == [
        (
            "forge: not restored: '.tmpAbC123', 4 B, which interrupted saves left, and the attempt"
            " before did not touch"
        )
    ]
    (third.folders.checkpoint / "model").write_text("three")
    end(sync)
    assert log(resumed(here, third)[0]) == []


def test_a_link_that_is_renamed_all_the_time_is_stored_with_what_it_leads_to(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "PAUSE_S", 0.0)
    attempt = here.attempt()
    folder, sync = attempt.folders.checkpoint, sync_of(here, attempt)
    write(folder, last="step=1")
    over = threading.Event()

    def turn() -> None:
        for target in cycle(("runs/a/step=2", "step=1")):
            if over.is_set():
                return
            (folder / ".new").symlink_to(target)
            (folder / ".new").rename(folder / "last")

    turning = threading.Thread(target=turn, daemon=True)
    turning.start()
    try:
        for number in range(3):
            (folder / f"other-{number}").write_text("x")
            sync.step()
    finally:
        over.set()
        turning.join()
    assert newest(here, attempt)["counted"] == 5
    found = {row["path"]: row["target"] for row in newest(here, attempt)["links"]}
    assert found["last"] in {"step=1", "runs/a/step=2"}
