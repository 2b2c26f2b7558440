"""What is shown of a job's files: images, tables and text, of which nothing is trusted."""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from io import BytesIO
from threading import BoundedSemaphore
from typing import TYPE_CHECKING

import pytest
from forge_functions.dashboard import preview, rendering
from forge_functions.dashboard.rendering import Busy, indented, parquet_head
from forge_schema.model.attempt_records import ArtifactRecord, CheckpointRecord
from forge_schema.model.states import Role
from forge_schema.storage.keys import AttemptKeys
from forge_schema.storage.manifest import Entry, Manifest
from support.http.guest import Guest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.http.api import Api

EVIL = "<script>alert(1)</script>"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
SVG = f"<svg xmlns='http://www.w3.org/2000/svg'>{EVIL}</svg>".encode()
MANY = "step,loss\n" + "".join(f"{n},{n}.5\n" for n in range(90))


@cache
def parquet() -> bytes:
    # Both take a while to load, in each test process.
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    out = BytesIO()
    pq.write_table(pa.table({"x": list(range(70)), EVIL: [EVIL] * 70}), out)
    return out.getvalue()


FILES = {
    "plot.png": PNG,
    "evil.png": SVG,
    "page.html": f"<html>{EVIL}</html>".encode(),
    "a.svg": SVG,
    "loss.csv": MANY.encode(),
    "few.csv": f"a,b\n1,{EVIL}\n".encode(),
    "report.json": b'{"a": {"b": [1, 2]}}',
    "notes.md": f"# Notes\n{EVIL}".encode(),
    "model.bin": b"\x00\x01\x02",
    "broken.parquet": b"PAR1" + bytes(40),
}


LINKS = {
    "latest.png": "plot.png",
    "sub/again.png": "../latest.png",
    "gone": "nowhere",
    "out": "../../etc/passwd",
    "round": "about",
    "about": "round",
}


def files() -> dict[str, bytes]:
    return {**FILES, "table.parquet": parquet()}


@pytest.fixture
def ann(api: Api) -> Iterator[Guest]:
    guest = Guest(api).login("ann", Role.SUBMITTER)
    yield guest
    guest.close()


@pytest.fixture
def job(api: Api) -> int:
    """A job of ann's with each of the files, and a checkpoint of two."""
    job = api.rig.submit(owner="ann")
    grant = api.rig.worker().claim_one()
    keys = AttemptKeys(job, grant.attempt, grant.fence.token)
    rows = []
    for name, data in files().items():
        api.services.store.put(keys.artifact(name), data)
        rows.append(
            ArtifactRecord(name, keys.artifact(name), len(data), hashlib.sha256(data).hexdigest())
        )
    for name, target in LINKS.items():
        digest = hashlib.sha256(target.encode()).hexdigest()
        rows.append(ArtifactRecord(name, keys.artifact(name), len(target), digest, target=target))
    assert api.rig.records.add_artifacts(grant.fence, rows)
    parts = [Entry(f"{name}/weights.pt", 5, "a" * 64, f"jobs/{job}/x") for name in ("b", "a")]
    parts.append(Entry.link("last", "b"))
    manifest = keys.checkpoint_manifest(0)
    api.services.store.put(manifest, Manifest(tuple(parts)).dumped())
    assert api.rig.records.add_checkpoint(grant.fence, CheckpointRecord(0, manifest, 2, 10))
    return job


def test_files_are_shown_as_what_they_are_and_run_nothing(ann: Guest, job: int) -> None:
    shown = {name: ann.page(f"/jobs/{job}/file?path={name}") for name in files()}
    assert all(EVIL not in page for page in shown.values())
    assert f'<img src="/jobs/{job}/image?path=plot.png"' in shown["plot.png"]
    for name in ("evil.png", "page.html", "a.svg", "notes.md"):
        assert "<img" not in shown[name]
        assert "&lt;script&gt;alert(1)" in shown[name].partition("<pre")[2]
    assert shown["loss.csv"].count("<tr>") == 1 + preview.ROWS
    assert "This is its beginning" in shown["loss.csv"]
    assert "This is its beginning" not in shown["few.csv"]
    assert "&#34;b&#34;: [\n      1,\n" in shown["report.json"]
    assert shown["table.parquet"].count("<tr>") == 1 + preview.ROWS
    for name in ("model.bin", "broken.parquet"):
        assert "This kind of file has no preview" in shown[name]


def test_only_images_are_served_and_as_nothing_else(ann: Guest, job: int) -> None:
    answer = ann.http.get(f"/jobs/{job}/image?path=plot.png")
    assert (answer.status_code, answer.content) == (200, PNG)
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    for name in ("evil.png", "a.svg", "page.html", "none"):
        assert ann.http.get(f"/jobs/{job}/image?path={name}").status_code == 404


def test_a_link_shows_what_it_leads_to_in_the_job_s_own_files(ann: Guest, job: int) -> None:
    for name in ("latest.png", "sub/again.png"):
        assert ann.http.get(f"/jobs/{job}/image?path={name}").content == PNG
        assert f'src="/jobs/{job}/image?path=plot.png"' in ann.page(f"/jobs/{job}/file?path={name}")
    for name in ("gone", "out", "round"):
        for kind in ("file", "image", "artifact"):
            assert ann.http.get(f"/jobs/{job}/{kind}?path={name}").status_code == 404
    assert "latest.png</a> → plot.png" in ann.page(f"/jobs/{job}")


def test_what_is_read_is_bounded(ann: Guest, job: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "TEXT_BYTES", 100)
    monkeypatch.setattr(preview, "WHOLE_BYTES", 10)
    shown = ann.page(f"/jobs/{job}/file?path=loss.csv")
    assert "This is its beginning" in shown
    # The last row that was read is not whole.
    assert shown.count("<tr>") == len(MANY[:100].splitlines()) - 1
    for name in ("plot.png", "table.parquet"):
        assert "no preview" in ann.page(f"/jobs/{job}/file?path={name}")


def test_a_table_that_cannot_be_read_in_time_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "SECONDS", 0.01)
    assert parquet_head([parquet()], 10, 2) is None


@pytest.mark.parametrize(
    "text",
    [
        "[" * 900 + ",".join(["1"] * 100_000) + "]" * 900,
        "[" * 100_000,
        '{"a":' * 400 + "1" + "}" * 400 + " " * 200_000,
        "[" + ",".join(["[]"] * 80_000) + "]",
    ],
    ids=["deep", "endless", "objects", "wide"],
)
def test_a_json_text_that_grows_when_it_is_indented_is_shown_as_it_is(text: str) -> None:
    told = indented(text.encode(), preview.TEXT_BYTES)
    assert told is None or len(told) <= preview.TEXT_BYTES
    assert indented(b'{"a": [1]}', preview.TEXT_BYTES) == '{\n  "a": [\n    1\n  ]\n}'


def test_two_files_are_rendered_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "PATIENCE_S", 0.01)
    turns = BoundedSemaphore(2)
    monkeypatch.setattr(rendering, "_turns", turns)
    for _ in range(2):
        turns.acquire()
    with pytest.raises(Busy):
        indented(b"1", 10)
    turns.release()
    assert indented(b"1", 10) == "1"


def test_the_renderer_has_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_SERVER_SECRET", "secret")
    seen = rendering._output(
        [sys.executable, "-I", "-c", "import os; print(sorted(os.environ))"], []
    )
    assert b"FORGE" not in seen


def test_the_files_of_a_checkpoint_are_listed(ann: Guest, job: int) -> None:
    shown = ann.page(f"/jobs/{job}/checkpoint?attempt=1&number=0")
    assert shown.index("a/weights.pt") < shown.index("b/weights.pt")
    assert f"--from-checkpoint {job}:1.0" in shown
    assert "last → b<" in shown
    assert ann.http.get(f"/jobs/{job}/checkpoint?attempt=1&number=1").status_code == 404
