"""A machine that joins: its line's token, exchanged once, and the package that it gets."""

from __future__ import annotations

import csv
import hashlib
import io
import shutil
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from forge_functions.joining import package
from forge_schema.access.join_line import UrlUnusable, join_line
from forge_schema.access.worker_tokens import NameTaken
from forge_worker.commands import join as program
from forge_worker.commands.join import WorkerPlace, image_advice
from support.ports import free_port
from support.workers.pasted import paste

if TYPE_CHECKING:
    import httpx
    from support.http.api import Api

DAY = timedelta(days=1)
MINE, OTHERS = "a" * 64, "b" * 64
BOOT = {"boot_id": str(UUID(int=1)), "cpus": 1, "memory_mb": 1, "disk_mb": 1}


def join(api: Api, token: str, secret: str = MINE) -> httpx.Response:
    headers = {"X-Join-Token": token}
    return api.http.post("/api/v1/workers/join", headers=headers, json={"secret": secret})


def register(api: Api, token: str) -> int:
    headers = {"X-Worker-Token": token}
    return api.http.post("/api/v1/workers/register", headers=headers, json=BOOT).status_code


def test_a_token_is_exchanged_once_and_a_lost_answer_comes_again(api: Api) -> None:
    worker_id, token = api.workers.invite("gpu-1", labels={"zone": "eu"}, lasts=DAY)
    assert register(api, token) == 401
    assert register(api, token.replace("fgj_", "fgw_")) == 401
    joined = join(api, token).json()
    assert (joined["worker_id"], joined["name"]) == (worker_id, "gpu-1")
    assert join(api, token).json() == joined
    refused = join(api, token, OTHERS)
    assert (refused.status_code, refused.json()["code"]) == (401, "join_refused")
    assert "forge worker add" in refused.json()["hint"]
    assert register(api, joined["token"]) == 200
    noted = api.rig.rows("SELECT action FROM event WHERE worker_id = %s ORDER BY id", worker_id)
    assert [row["action"] for row in noted] == ["worker_created", "joined", "registered"]


def test_a_worker_waits_for_its_machine_until_the_line_expires(api: Api) -> None:
    worker_id, token = api.workers.invite("gpu-1", lasts=DAY)
    api.rig.clock.advance(86_399)
    api.rig.tick.run()
    assert api.rig.row("SELECT id FROM worker WHERE name = 'gpu-1'") == {"id": worker_id}
    api.rig.clock.advance(2)
    assert join(api, token).status_code == 401
    api.rig.tick.run()
    assert api.rig.rows("SELECT id FROM worker WHERE name = 'gpu-1'") == []


def test_a_machine_that_has_joined_may_take_its_time(api: Api) -> None:
    _, token = api.workers.invite("gpu-1", lasts=DAY)
    own = join(api, token).json()["token"]
    api.rig.clock.advance(3 * 86_400)
    api.rig.tick.run()
    assert register(api, own) == 200


def test_a_new_line_replaces_the_old_one_until_the_worker_has_connected(api: Api) -> None:
    first, old = api.workers.invite("gpu-1", lasts=DAY)
    second, new = api.workers.invite("gpu-1", labels={"zone": "eu"}, lasts=DAY)
    assert first == second
    assert join(api, old).status_code == 401
    assert register(api, join(api, new).json()["token"]) == 200
    row = api.rig.row("SELECT labels ->> 'zone' AS zone FROM worker WHERE id = %s", first)
    assert row == {"zone": "eu"}
    with pytest.raises(NameTaken, match="has connected"):
        api.workers.invite("gpu-1", lasts=DAY)


def test_the_package_is_a_whole_wheel_and_always_the_same(api: Api) -> None:
    sent = api.http.get("/api/v1/workers/package").content
    package.cache_clear()
    made = package()
    assert (sent, made.digest) == (made.content, hashlib.sha256(sent).hexdigest())
    with zipfile.ZipFile(io.BytesIO(sent)) as wheel:
        names = wheel.namelist()
        stem = made.name.removesuffix("-py3-none-any.whl")
        rows = csv.reader(io.StringIO(wheel.read(f"{stem}.dist-info/RECORD").decode()))
        assert {row[0] for row in rows} == set(names)
        assert b"Provides-Extra: worker" in wheel.read(f"{stem}.dist-info/METADATA")
    needed = (
        "commands/join.py",
        "commands/forge-worker.service",
        "commands/forge-metadata.service",
    )
    assert {f"forge_worker/{one}" for one in needed} < set(names)
    assert not [name for name in names if "__pycache__" in name or name.startswith("/")]


@pytest.mark.parametrize("url", ["https://x'; rm -rf y", 'https://a"b', "ftp://x", "https://a b"])
def test_a_url_that_a_shell_could_misread_is_refused(url: str) -> None:
    with pytest.raises(UrlUnusable):
        join_line(url, "fgj_1", "d")


def test_a_machine_without_a_default_image_is_told_to_have_one() -> None:
    file = Path("/etc/worker.env")
    assert "=python:3.11-slim to /etc/worker.env" in image_advice({}, file)
    assert image_advice({"FORGE_DEFAULT_IMAGE": "i"}, file) == ""
    assert image_advice({"FORGE_ALLOW_PROCESSES": "True"}, file) == ""


def test_a_bare_machine_gets_its_folders_before_the_token_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = WorkerPlace(
        tmp_path / "opt", tmp_path / "etc" / "forge" / "worker.env", tmp_path / "var", service=False
    )
    monkeypatch.setattr(program, "here", lambda: place)
    monkeypatch.setenv("FORGE_ALLOW_PROCESSES", "true")
    monkeypatch.setenv("FORGE_JOIN", "fgj_1_x")
    # It is set for what joins; set here first, it is taken back after the test.
    monkeypatch.setenv("FORGE_TLS_CA", "")
    monkeypatch.delenv("FORGE_TLS_CA")
    with pytest.raises(SystemExit, match="does not answer"):
        program.join("http://127.0.0.1:1", b"", "")
    place.done.update(token="fgw_1")  # noqa: S106 - of no worker
    program._keep_settings(place, "https://forge.lab", "PEM\n")
    assert f"FORGE_TLS_CA={place.settings.parent}/authority" in place.settings.read_text()
    monkeypatch.setenv("FORGE_JOIN", "")
    shutil.rmtree(tmp_path / "opt")
    (tmp_path / "opt").write_text("")
    with pytest.raises(SystemExit, match=r"/opt: File exists; mend that, then paste"):
        program.join("http://127.0.0.1:1", b"", "")


def test_a_line_that_cannot_work_says_what_to_do(api: Api, tmp_path: Path) -> None:
    url, digest = api.url, package().digest
    _, token = api.workers.invite("late", lasts=timedelta(0))
    allowed = {"FORGE_ALLOW_PROCESSES": "true"}
    cases = [
        (join_line(url, token, digest), allowed, "has expired"),
        (join_line(url, token, "0" * 64), {}, "another version"),
        (join_line(url, token, digest), {"PATH": str(tmp_path)}, "no Python 3.11"),
        (join_line(f"http://127.0.0.1:{free_port()}", token, digest), {}, "cannot be read"),
    ]
    for number, (line, env, said) in enumerate(cases):
        pasted = paste(line, tmp_path / str(number), **env)
        assert (pasted.returncode, said in pasted.stderr) == (1, True), pasted.stderr
        assert "Traceback" not in pasted.stderr
        assert not (tmp_path / str(number) / "worker" / "bin").exists()
