"""A checkpoint's manifest: what it may say about files and links."""

import json

import pytest
from forge_schema.model.bundles import destination, stays_inside
from forge_schema.storage.manifest import CheckpointUnsound, Entry, Manifest

DIGEST = "a" * 64
KEY = f"jobs/7/1-1-x/checkpoints/files/000000-{DIGEST}"


@pytest.mark.parametrize(
    ("path", "target", "leads_to"),
    [
        ("last.ckpt", "step=40.ckpt", "step=40.ckpt"),
        ("last", "./checkpoint-10/", "checkpoint-10"),
        ("a/b/last", "../../top", "top"),
        ("a/b/last", "../..", ""),
        ("a/last", "x//y", "a/x/y"),
        ("self", "self", "self"),
        ("here", ".", ""),
        (".forge-work/run/last", "../snapshot.pt", ".forge-work/snapshot.pt"),
    ],
)
def test_links_that_stay_in_their_folder_may_be_stored(
    path: str, target: str, leads_to: str
) -> None:
    assert stays_inside(path, target)
    assert destination(path, target) == leads_to
    manifest = Manifest((Entry.link(path, target),))
    assert Manifest.loaded(manifest.dumped(), job_id=7) == manifest


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("last", ""),
        ("last", "/etc/passwd"),
        ("last", "//etc"),
        ("last", ".."),
        ("last", "../ckpt/x"),
        ("a/last", "../../x"),
        ("a/last", "../b/../../x"),
        # Below another link, it could lead out.
        ("last", "dir/.."),
        ("last", "x\0y"),
        ("last", "x" * 4096),
        (".forge-work/last", "../x"),
    ],
)
def test_links_that_could_leave_their_folder_are_refused(path: str, target: str) -> None:
    assert not stays_inside(path, target)
    with pytest.raises(CheckpointUnsound):
        Manifest.loaded(Manifest((Entry.link(path, target),)).dumped(), job_id=7)


def file(path: str, **more: object) -> dict[str, object]:
    return {"path": path, "size": 1, "sha256": DIGEST, "key": KEY, **more}


@pytest.mark.parametrize(
    ("files", "links"),
    [
        ([file("a/x")], [{"path": "a", "target": "b"}]),
        ([file("a/x")], [{"path": "./a", "target": "b"}]),
        ([file("a/b/c/x")], [{"path": "a/b", "target": "c"}]),
        ([file("a")], [{"path": "a", "target": "b"}]),
        ([], [{"path": "a", "target": "b"}, {"path": "a/x", "target": "y"}]),
        ([], [{"path": "../a", "target": "b"}]),
        ([], [{"path": "a", "target": 7}]),
        ([], [{"path": "a"}]),
        ([], ["a"]),
        ([], 7),
        ([file("a", target="../../x", sha256="")], []),
        ([file("a", mtime_ns="now")], []),
        ([file("a", mtime_ns=1 << 70)], []),
        ([file("../a")], []),
    ],
)
def test_a_hostile_manifest_is_refused(files: list[object], links: object) -> None:
    told = json.dumps({"version": 1, "files": files, "links": links})
    with pytest.raises(CheckpointUnsound):
        Manifest.loaded(told.encode(), job_id=7)


@pytest.mark.parametrize(
    ("size", "at", "pack", "bytes_"),
    [(3, 7, 0, 9), (3, -1, 0, 9), (-3, 6, 0, 9), (3, 6, 1, 9), (3, "6", 0, 9), (3, 0, 0, 1 << 40)],
)
def test_a_file_that_is_not_in_its_pack_is_refused(
    size: int, at: object, pack: int, bytes_: int
) -> None:
    fields = {"path": "a", "size": size, "sha256": DIGEST, "pack": pack, "at": at}
    told = {"version": 3, "files": [fields], "packs": [{"key": KEY, "bytes": bytes_}]}
    with pytest.raises(CheckpointUnsound):
        Manifest.loaded(json.dumps(told).encode(), job_id=7)


def test_times_and_links_come_back_and_are_not_counted_as_files() -> None:
    files = (
        Entry("step=1", 1, DIGEST, KEY, mtime_ns=-5),
        Entry.in_chunks("step=2", 2, [KEY], 2, mtime_ns=1_700_000_000_123_456_789),
        # Of a disk that keeps later times than any reader takes.
        Entry("old", 1, DIGEST, KEY, mtime_ns=15_000_000_000_000_000_000),
        Entry("packed", 3, DIGEST, KEY, pack_bytes=9, at=6),
        Entry.link("last", "step=2"),
    )
    manifest = Manifest.loaded(Manifest(files).dumped(), job_id=7)
    assert manifest.files == files
    assert [entry.mtime_ns for entry in manifest.files] == [
        *(-5, 1_700_000_000_123_456_789),
        *(None, None, None),
    ]
    assert (manifest.count, manifest.size) == (4, 7)
    assert [key for entry in manifest.files for key in entry.objects] == [KEY] * 4
    # A time alone makes no new checkpoint.
    assert Entry("old", 1, DIGEST, KEY, mtime_ns=9) == files[2]
