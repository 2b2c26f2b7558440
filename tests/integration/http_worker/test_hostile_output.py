"""What a worker's lies do to those who read its job: pages, answers and a laptop's files."""

from __future__ import annotations

import hashlib
import shutil
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
from forge_client import ClientError, tunnel
from forge_client.cli.show.waiting import exit_code
from forge_client.direct.backend import DirectBackend
from forge_client.downloads import download_all
from forge_client.errors import ExitCode
from forge_client.http import Server
from forge_client.http.backend import HttpBackend
from forge_client.plain.unpacking import OF_ONE_FILE
from forge_client.sdk.function_jobs import FunctionJob
from forge_client.sdk.job import Job
from forge_client.settings import QueueConnection
from forge_schema.model.states import Role
from forge_schema.storage.manifest import tree_digest
from support.client.reaching import key
from support.http.api import opened
from support.http.guest import Guest
from support.http.hostile_worker import DIGEST, HostileWorker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from forge_client.backend import Backend
    from support.queue.rig import Rig

MIB = 1 << 20


@pytest.fixture
def liar(rig: Rig, tmp_path: Path) -> Iterator[HostileWorker]:
    (tmp_path / "store").mkdir()
    with opened(rig, tmp_path / "store") as api:
        rig.submit(owner="ann")
        yield HostileWorker(api)


FAR = ["0002-01-01T00:00:00+14:00", "9998-12-31T23:59:59-14:00", "1969-12-31T23:59:59Z"]
NUMBERS = {
    "huge": 10**300,
    "long": 10**4000,
    "tiny": 1e-308,
    "most": 1.7e308,
    "deep": {"a": {"b": 1}},
    "text": "\x1b]0;x\x07<script>",
    "": 1,
    "\n": 1,
    "\u202e": 1,
    "k" * 5000: 1,
    "loss": "high",
    "list": [1, [2]],
    "null": None,
    "\U0010ffff": 1,
}
HOSTILE = "\x1b[2J\x1b]52;c;eA==\x07\r\n<script>alert(1)</script>\u202e"


def lie(liar: HostileWorker) -> None:
    """Say whatever the server takes, in every record."""
    for number, at in enumerate(FAR):
        liar.leave(f"at-{number}", b"x", modified_at=at)
    liar.leave("short", b"four", bytes=2**53 - 1)
    liar.leave("wrong", b"four", sha256=DIGEST)
    liar.leave("link", b"x", target="../../../etc/passwd")
    for name, entry in LISTS.items():
        liar.leave_list(f"list-{name}", entry, bytes=100, sha256=DIGEST)
    liar.put(liar.keys.chunked_artifact("list-none"), b"[" * 100_000)
    told = {"path": "list-none", "key": liar.keys.chunked_artifact("list-none"), "bytes": 5}
    assert liar.say("artifacts", artifacts=[{**told, "sha256": DIGEST}]).is_success
    for number, values in enumerate([NUMBERS, {"loss": 1.0}, {"loss": 10**300}]):
        line = {"number": number * 1000, "step": 1e308 * (-1) ** number, "values": values}
        assert liar.say("metrics", lines=[line], progress=1e308).is_success
        assert liar.say("samples", samples=[{k: line[k] for k in ("number", "values")}]).is_success
    sample = {"gpus": "x", "cpu_percent": "high", "memory_mb": [1], "disk_mb": 10**300}
    assert liar.say("samples", samples=[{"number": 9000, "values": sample}]).is_success
    liar.write(0, HOSTILE.encode(), start=2**52)
    liar.write(1, b"over", start=2**52 - 3)
    liar.write(2, b"lost", stored=b"no frame")
    liar.write(9, b"x" * 10, bytes=16 << 20)
    assert liar.say(
        "checkpoints",
        number=0,
        key=liar.keys.checkpoint_manifest(0),
        files=2**31 - 1,
        bytes=2**53 - 1,
        step=2**53 - 1,
        follows=2**31 - 1,
    ).is_success
    liar.put(liar.keys.checkpoint_manifest(0), b'{"version": 1, "files": [{"path": "../x"}]}')
    assert liar.say("checkpoints/begin", attempt=32767, number=999_999).is_success
    assert liar.say("result", values=NUMBERS).is_success
    test = {"number": 0, "suite": HOSTILE, "name": HOSTILE, "verdict": "failed", "seconds": 1e15}
    assert liar.say("tests", tests=[{**test, "message": HOSTILE}]).is_success
    assert liar.say("status", phase="running", progress=-1e308, devices=[HOSTILE]).is_success
    amounts = {"gpu_seconds": 1e15, "cost": 1e15, "energy_j": 1e15, "peak_memory_mb": 2**31 - 1}
    liar.end("exit_code", exit_code=256, detail=HOSTILE, usage=amounts)


LISTS: dict[str, dict[str, Any]] = {
    "empty": {},
    "negative": {"size": -5, "key": "x"},
    "text": {"size": "many", "key": "x"},
    "float": {"size": 1.5, "key": "x"},
    "huge": {"size": 2**70, "chunk_bytes": MIB, "chunks": ["x"]},
    "others": {"size": 5, "chunk_bytes": 5, "chunks": ["jobs/2/1-1-a/chunks/" + DIGEST]},
    "number": {"size": 5, "chunk_bytes": 5, "chunks": [5]},
    "bytes": {"size": 5, "chunk_bytes": True, "chunks": ["x"] * 5},
    "whole": {"size": 5, "key": "bundles/" + DIGEST + ".tar.zst"},
}


def test_no_page_and_no_answer_about_the_job_fails(liar: HostileWorker, rig: Rig) -> None:
    lie(liar)
    rig.tick.run()
    ann, guest = liar.api.key("ann", Role.ADMIN), Guest(liar.api).login("ann", Role.ADMIN)
    wrong = []
    for path in paths(liar):
        answer = ann.call("GET", path) if path.startswith("/api") else guest.http.get(path)
        if answer.is_server_error:
            wrong.append((path, answer.status_code, answer.text[:300]))
        if "html" in answer.headers.get("content-type", ""):
            assert "<script>alert" not in answer.text
    guest.close()
    assert wrong == [], "\n".join(map(str, wrong))


def backends(liar: HostileWorker) -> list[Backend]:
    url = liar.api.services.settings.store_url
    direct = DirectBackend(
        QueueConnection(database_url=liar.api.rig.url, store_url=url), owner="ann"
    )
    return [direct, HttpBackend(Server(liar.api.url, key(liar.api.rig)))]


def tree(folder: Path) -> dict[str, object]:
    """Return all that is in a folder: contents, links and times."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mtime_ns,
            path.readlink() if path.is_symlink() else path.is_file() and path.read_bytes(),
        )
        for path in folder.rglob("*")
    }


# The server keeps none of these names; one before it may have.
NAMES = [
    "/CANARY/passwd",
    "../passwd",
    "x/../../passwd",
    "..",
    ".",
    "",
    "a//b",
    "x/",
    "a\0b",
    "n" * 300,
    "/".join(["d" * 250] * 20),
    "GOOD/../../x",
]


def test_each_lie_about_a_file_is_one_error_and_the_others_are_there(
    liar: HostileWorker, tmp_path: Path
) -> None:
    canary = tmp_path / "home"
    (canary / "CANARY").mkdir(parents=True)
    (canary / "passwd").write_text("mine")
    (canary / "CANARY" / "passwd").write_text("mine")
    whole = bytes(range(256)) * 10 + bytes(range(255, -1, -1)) * 10
    chunks = [liar.chunk(whole[:2560]), liar.chunk(whole[2560:])]
    digest = tree_digest(key[-64:] for key in chunks)
    liar.leave_list(
        "whole.bin",
        {"size": 5120, "sha256": digest, "chunks": chunks, "chunk_bytes": 2560},
        sha256=hashlib.sha256(whole).hexdigest(),
    )
    liar.leave("good", b"good")
    entry = {"size": 5120, "sha256": digest, "chunks": chunks, "chunk_bytes": 2560}
    wrong = [
        entry | {"chunks": chunks[::-1]},
        entry | {"size": 5121},
        entry | {"size": 10},
        entry | {"chunks": [chunks[0]] * 2},
        entry | {"chunks": [chunks[0], liar.keys.chunk(DIGEST)]},
    ]
    for number, one in enumerate([*wrong, *LISTS.values()]):
        liar.leave_list(f"list-{number}", one, bytes=5120, sha256=hashlib.sha256(whole).hexdigest())
    liar.leave_list("longer", entry, bytes=2**53 - 1, sha256=hashlib.sha256(whole).hexdigest())
    liar.leave_list("shorter", entry, bytes=2560, sha256=hashlib.sha256(whole[:2560]).hexdigest())
    liar.leave("long", b"four", bytes=2**53 - 1)
    liar.leave("short", b"four", bytes=3)
    liar.leave("none", b"four", bytes=0, sha256=hashlib.sha256(b"").hexdigest())
    liar.leave("wrong", b"four", sha256=DIGEST)
    liar.leave("lost", b"four")
    liar.api.services.store.delete(liar.keys.artifact("lost"))
    liar.leave("up", b"x", target="../passwd")
    liar.leave("out", b"x", target=str(canary / "passwd"))
    liar.leave("through", b"x", target="../x/../passwd")
    liar.end()
    for backend in backends(liar):
        with backend:
            found = {one.path: one for one in backend.artifacts(liar.job_id)}
            good = [found.pop("good"), found.pop("whole.bin")]
            names = [name.replace("/CANARY", str(canary / "CANARY")) for name in NAMES]
            lies = [good[0].model_copy(update={"path": name}) for name in names]
            for file in [*found.values(), *lies]:
                before, folder = tree(canary), canary / "to"
                with pytest.raises(ClientError) as refused:
                    download_all(backend, [file, *good], folder)
                assert refused.value.code in OF_ONE_FILE, (file.path, str(refused.value))
                files = {
                    path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()
                }
                assert files == {"good": b"good", "whole.bin": whole}, file.path
                shutil.rmtree(folder)
                assert tree(canary) == before, file.path


PAGES = [
    *("/", "/jobs", "/jobs/{job_id}", "/jobs/{job_id}/log", "/jobs/{job_id}/log.txt"),
    *("/jobs/{job_id}/series", "/jobs/{job_id}/checkpoint?name=1.0", "/runs", "/runs?sort=huge"),
    *("/runs?metric=loss", "/runs.csv", "/compare?jobs={job_id}", "/events", "/workers"),
    *("/workers/{worker_id}", "/reports", "/queues"),
]
OF_A_FILE = [
    *("/jobs/{job_id}/file?path=", "/jobs/{job_id}/artifact?path="),
    "/api/v1/queue/jobs/{job_id}/artifacts/chunks?after=-1&file=",
]


def paths(liar: HostileWorker) -> list[str]:
    """Return every path that is read, with this job, its files and its worker in it."""
    documented = liar.api.app.openapi()["paths"].items()
    found = [path for path, verbs in documented if "get" in verbs and "{path" not in path]
    files = [row["path"] for row in liar.api.rig.rows("SELECT path FROM artifact")]
    found += [*PAGES, *(f"{of}{path}" for of in OF_A_FILE for path in files)]
    names = {"job_id": liar.job_id, "worker_id": liar.worker.id, "name": liar.worker.name}
    names |= dict.fromkeys(("key", "digest", "report", "delivery_id", "template"), "x")
    return [path.format(**names) for path in found]


def test_a_log_is_read_up_to_its_end_past_what_is_damaged(liar: HostileWorker) -> None:
    liar.write(0, b"one\n")
    liar.write(1, b"lost\n", start=4, stored=b"no frame")
    liar.write(2, b"over\n", start=2)
    liar.write(3, b"long\n", start=7, bytes=16 << 20)
    liar.write(4, b"far\n", start=2**52)
    liar.api.services.store.delete(liar.keys.log_chunk(5))
    liar.write(5, b"last\n", start=2**52 + 4)
    liar.end()
    for backend in backends(liar):
        with backend:
            job = Job(backend, liar.job_id)
            read: list[str] = []
            with pytest.raises(ClientError, match="is not what was stored"):
                deque(map(read.append, job.logs()))
            assert "".join(read) == "one\nover\nfar\nlast\n"
            assert "".join(job.logs(follow=True)) == "one\nover\nfar\nlast\n"
            assert job.tail(2) == "far\nlast"


RESULTS: list[tuple[dict[str, Any], str]] = [
    ({"pickled": 5}, "result_unreadable"),
    ({"pickled": "%%"}, "result_unreadable"),
    ({"pickled": "eHg="}, "result_unreadable"),
    ({"stored": {"sha256": DIGEST}}, "no_result"),
    ({"stored": {"sha256": [DIGEST]}}, "no_result"),
]


@pytest.mark.parametrize(("said", "code"), RESULTS)
def test_a_result_that_is_a_lie_is_one_error(
    liar: HostileWorker, said: dict[str, Any], code: str
) -> None:
    assert liar.say("result", values=said).is_success
    liar.end()
    for backend in backends(liar):
        with backend:
            with pytest.raises(ClientError) as refused:
                FunctionJob[object](backend, liar.job_id).result()
            assert refused.value.code == "result_pickled"
            with pytest.raises(ClientError) as refused:
                FunctionJob[object](backend, liar.job_id, pickled=True).result()
            assert refused.value.code == code


def test_a_failure_is_never_a_success_to_a_shell(liar: HostileWorker) -> None:
    liar.end("exit_code", exit_code=256)
    (backend, other) = backends(liar)
    with backend, other:
        assert exit_code(backend.job(liar.job_id)) == ExitCode.NO_RESULT


@pytest.mark.parametrize("key", ["", "ssh-ed25519 AAAA", f"ssh-ed25519 {'A' * 68}\njob-8 x"])
def test_a_key_for_ssh_is_one_key_of_one_host(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(ClientError, match="no key of an SSH server"):
        tunnel.pin("job-7", key)
    assert list(tmp_path.rglob("*")) == []
