"""The contract of both backends, directly and through a server, and the SDK on top of them."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from forge_client import Client, ClientError, JobFailed, as_completed
from forge_client.code import differences, fetch, uncommitted
from forge_client.project.bundle import pack
from forge_schema import zstd
from forge_schema.model.reading import BEGINNING
from forge_schema.model.states import Reason
from forge_schema.storage import open_store
from support.client.reaching import WAYS, reaching
from support.queue.holder import Holder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forge_client.backend import Backend
    from forge_schema.model.job import JobDetail
    from support.queue.rig import Rig

WHO = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")
POETRY = """
[[package]]
name = "wanted"
version = "{}"
groups = ["main"]
files = [{{file = "w.whl", hash = "sha256:00"}}]
"""
SPEC = {"name": "x", "owner": "ann", "command": ["ls"]}


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


@pytest.fixture(params=WAYS)
def client(request: pytest.FixtureRequest, rig: Rig, store_url: str) -> Iterator[Client]:
    with reaching(request.param, rig, store_url) as client:
        yield client


@pytest.fixture
def backend(client: Client) -> Backend:
    return client.backend


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n", encoding="utf-8")
    return folder


def refusal(code: str) -> pytest.RaisesExc[ClientError]:
    return pytest.RaisesExc(ClientError, check=lambda error: error.code == code)


def test_the_code_of_a_job_comes_back_and_is_submitted_again(
    client: Client, project: Path, tmp_path: Path, rig: Rig
) -> None:
    backend = client.backend
    (project / "notes.txt").write_bytes(b"one\r\n")
    for words in (["init", "-q"], ["add", "-A"], [*WHO, "commit", "-qm", "first"]):
        subprocess.run(["git", "-C", project, *words], check=True)
    (project / "train.py").write_text("print('changed')\n", encoding="utf-8")
    (project / "notes.txt").write_bytes(b"one\r\n\xe9\r\n")
    job = client.submit(project, ["python", "train.py"], gpus=2, parameters={"lr": 0.1})
    found = backend.job(job.id)
    assert found.spec["git"]["dirty"]
    patch = uncommitted(backend, found)
    assert b"+print('changed')\n" in patch
    # As it has to be for git to apply it.
    assert b" one\r\n+\xe9\r\n" in patch
    fetch(backend, found, tmp_path / "code")
    assert (tmp_path / "code" / "train.py").read_text() == "print('changed')\n"
    with refusal("folder_not_empty"):
        fetch(backend, found, tmp_path / "code")
    assert list(differences(backend, found, project)) == []
    (project / "train.py").unlink()
    (project / "weights").write_bytes(b"\xff")
    assert [
        line for line in differences(backend, found, project) if line[:3] in {"---", "Bin"}
    ] == [
        "--- a/train.py",
        "Binary file weights differs",
    ]
    (again,) = backend.submit([backend.request(job.id)])
    assert again != job.id
    second = backend.job(again)
    assert (second.spec, second.bundle_digest) == (found.spec, found.bundle_digest)
    with refusal("no_code"):
        fetch(backend, backend.job(rig.submit(owner="ann")), tmp_path / "none")
    with refusal("object_missing"):
        backend.fetch_code(job.id, "0" * 64, tmp_path / "none")


def test_the_diff_of_two_jobs_ends_with_the_versions_of_their_packages(
    client: Client, project: Path
) -> None:
    def submitted(version: str) -> JobDetail:
        (project / "poetry.lock").write_text(POETRY.format(version), encoding="utf-8")
        (project / "train.py").write_text(f"print({version})\n", encoding="utf-8")
        return client.submit(project, ["python", "train.py"]).status()

    lines = list(differences(client.backend, submitted("1"), submitted("2")))
    assert [line for line in lines if line[0] == "+"] == [
        *("+++ b/poetry.lock", '+version = "2"', "+++ b/train.py", "+print(2)"),
        *("+++ b/.forge-lock.txt", "+wanted==2"),
    ]


def test_a_commit_between_two_submits_with_one_key_changes_nothing(
    client: Client, project: Path
) -> None:
    first = client.submit(project, ["ls"], idempotency_key="once")
    for words in (["init", "-q"], ["add", "-A"], [*WHO, "commit", "-qm", "first"]):
        subprocess.run(["git", "-C", project, *words], check=True)
    assert client.submit(project, ["ls"], idempotency_key="once").id == first.id


def test_a_folder_is_uploaded_once_however_often_it_is_submitted(
    client: Client, project: Path, tmp_path: Path
) -> None:
    first = client.submit(project, ["python", "train.py"])
    (stored,) = (tmp_path / "store" / "bundles").iterdir()
    before = stored.stat()
    second = client.submit(project, "python other.py")
    assert stored.stat().st_mtime_ns == before.st_mtime_ns
    assert [path.name for path in (tmp_path / "store" / "bundles").iterdir()] == [stored.name]
    digests = {job.status().bundle_digest for job in (first, second)}
    assert digests == {stored.name.removesuffix(".tar.zst")}
    assert hashlib.sha256(stored.read_bytes()).hexdigest() in digests


def test_many_jobs_are_submitted_by_one_statement(client: Client, rig: Rig, project: Path) -> None:
    jobs = client.map(["echo", "{n}"], [{"n": n} for n in range(500)], folder=project, priority=3)
    assert [rig.jobs.job(job.id)["spec"]["command"][1] for job in jobs[:3]] == ["0", "1", "2"]
    assert rig.row("SELECT count(DISTINCT xmin::text) AS n FROM job")["n"] == 1
    assert {status.priority for status in client.jobs(count=500)} == {3}
    runs = client.runs(f"id:{jobs[0].id},{jobs[7].id}", sort="n", descending=True)
    assert [run.parameters for run in runs] == [{"n": 7}, {"n": 0}]


def test_one_wrong_job_among_many_keeps_all_of_them_out(
    client: Client, rig: Rig, project: Path, tmp_path: Path
) -> None:
    with refusal("spec_invalid"):
        client.submit_many([{"command": "ls"}, {"command": "ls", "cpus": -1}], folder=project)
    assert rig.count("job") == 0
    assert not (tmp_path / "store").exists()
    with refusal("spec_invalid"):
        client.submit(project, "ls", colour="red")  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["12", "@last", "@3"])
def test_a_name_that_would_mean_another_job_is_refused(
    client: Client, project: Path, name: str
) -> None:
    with refusal("spec_invalid"):
        client.submit(project, "ls", name=name)
    folder = project.rename(project.with_name(name))
    assert client.submit(folder, "ls").name == f"job-{name}"


def test_no_jobs_are_no_jobs(client: Client, backend: Backend, project: Path) -> None:
    assert client.submit_many([], folder=project) == []
    assert backend.submit([]) == []
    assert backend.statuses([]) == {}


def test_forge_toml_is_read_by_the_sdk_too(client: Client, project: Path) -> None:
    (project / "forge.toml").write_text('command = "ls"\nname = "toml"\n', encoding="utf-8")
    job = client.submit(project, labels={"zone": "eu"})
    detail = client.backend.job(job.id)
    assert (detail.name, detail.spec["command"]) == ("toml", ["ls"])


def test_a_job_goes_from_ready_to_its_result(
    client: Client, rig: Rig, store_url: str, project: Path, tmp_path: Path
) -> None:
    job = client.submit(project, "ls", name="digits")
    assert (job.status().state, job.done()) == ("queued", False)
    assert job.download(tmp_path / "nothing" / "yet") == []
    assert [*(tmp_path / "nothing" / "yet").iterdir()] == []
    holder = Holder(rig, store_url)
    assert (job.status().state, job.status().worker) == ("running", "w")
    holder.write(b"epoch 1\n")
    assert "".join(job.logs()) == "epoch 1\n"
    holder.write(b"epoch 2\n")
    holder.leave("models/a b.bin", b"\x00" * 10)
    holder.end()
    assert job.wait(timeout=120).state == "succeeded"
    assert job.result() is None
    assert "".join(job.logs(follow=True)) == "epoch 1\nepoch 2\n"
    assert [file.path for file in job.artifacts()] == ["models/a b.bin"]
    (path,) = job.download(tmp_path / "to")
    assert path == tmp_path / "to" / "models" / "a b.bin"
    assert path.read_bytes() == b"\x00" * 10
    (attempt,) = client.backend.attempts(job.id)
    assert (attempt.worker, attempt.reason, attempt.accepted) == ("w", "succeeded", True)
    assert [event.action for event in client.backend.events(job.id)] == ["submitted"]


def test_a_failed_job_raises_with_its_tail(
    client: Client, rig: Rig, store_url: str, project: Path
) -> None:
    job = client.submit(project, "ls", max_failures=0)
    holder = Holder(rig, store_url)
    holder.write(b"Traceback\nKeyError\n")
    holder.end(Reason.EXIT_CODE, 7)
    with pytest.raises(JobFailed, match="KeyError") as caught:
        job.result()
    assert caught.value.status.exit_code == 7


def test_the_log_of_all_attempts_is_one(
    client: Client, rig: Rig, store_url: str, project: Path
) -> None:
    job = client.submit(project, "ls")
    for worker, reason in (("w1", Reason.PREEMPTED), ("w2", Reason.SUCCEEDED)):
        holder = Holder(rig, store_url, worker)
        holder.write(f"on {worker}, ".encode())
        holder.end(reason)
    assert "".join(job.logs()) == "on w1, on w2, "
    assert [chunk.attempt for chunk in client.backend.log_chunks(job.id, attempt=2)] == [2]
    last = client.backend.log_chunks(job.id)[-1]
    assert client.backend.log_chunks(job.id, after=last.place) == []
    assert last.place > BEGINNING


@pytest.mark.parametrize("spoilt", [b"", b"no zstd", zstd.compress(b"same length!"),
                                    zstd.compress(b"much longer than it was")])  # fmt: skip
def test_an_altered_log_chunk_is_told_and_not_shown(
    client: Client, rig: Rig, store_url: str, project: Path, spoilt: bytes
) -> None:
    job = client.submit(project, "ls")
    key = Holder(rig, store_url).write(b"twelve bytes")
    open_store(store_url).put(key, spoilt)
    with refusal("object_corrupt"):
        list(job.logs())


def test_an_altered_artifact_is_not_written(
    client: Client, rig: Rig, store_url: str, project: Path, tmp_path: Path
) -> None:
    job = client.submit(project, "ls")
    holder = Holder(rig, store_url)
    key = holder.leave("model", b"good")
    holder.end()
    (tmp_path / "to").mkdir()
    open_store(store_url).put(key, b"evil")
    with refusal("object_corrupt"):
        job.download(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with refusal("object_corrupt"):
        job.download(tmp_path / "to")
    assert list((tmp_path / "to").iterdir()) == []
    open_store(store_url).delete(key)
    with refusal("object_missing"):
        job.download(tmp_path / "to")


def test_a_download_leaves_alone_what_is_there_and_replaces_what_differs(
    client: Client, rig: Rig, store_url: str, project: Path, tmp_path: Path
) -> None:
    job = client.submit(project, "ls")
    holder = Holder(rig, store_url)
    holder.leave("a", b"same")
    holder.leave("b", b"new!")
    holder.end()
    for name, data in (("a", b"same"), ("b", b"old!")):
        (tmp_path / name).write_bytes(data)
    before = (tmp_path / "a").stat().st_ino
    job.download(tmp_path)
    assert (tmp_path / "a").stat().st_ino == before
    assert (tmp_path / "b").read_bytes() == b"new!"


def test_a_link_in_the_folder_does_not_lead_a_download_out_of_it(
    client: Client, rig: Rig, store_url: str, project: Path, tmp_path: Path
) -> None:
    job = client.submit(project, "ls")
    holder = Holder(rig, store_url)
    holder.leave("sub/file", b"x")
    holder.end()
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "sub").symlink_to(tmp_path)
    with refusal("artifact_path_refused"):
        job.download(tmp_path / "to")
    assert not (tmp_path / "file").exists()


def test_jobs_are_waited_for_together(
    client: Client, rig: Rig, store_url: str, project: Path
) -> None:
    jobs = client.submit_many([{"command": "ls"}] * 3, folder=project)
    for _ in jobs:
        Holder(rig, store_url).end()
    assert {job.id for job in as_completed(jobs, timeout=120)} == {job.id for job in jobs}


def test_cancelling_tells_whether_it_came_in_time(
    client: Client, rig: Rig, store_url: str, project: Path
) -> None:
    waiting, running = client.submit_many([{"command": "ls"}] * 2, folder=project)
    assert waiting.cancel()
    assert waiting.status().state == "cancelled"
    holder = Holder(rig, store_url)
    assert running.cancel()
    assert running.status().asked == "cancelled"
    holder.end()
    assert not running.cancel() or running.status().state == "cancelled"


def test_a_running_job_is_preempted_and_a_dead_one_retried(
    client: Client, backend: Backend, rig: Rig, store_url: str, project: Path
) -> None:
    job = client.submit(project, "ls", max_failures=0)
    assert not backend.preempt(job.id)
    holder = Holder(rig, store_url)
    assert backend.preempt(job.id)
    assert job.status().asked == "preempted"
    holder.end(Reason.EXIT_CODE, 1)
    assert (job.status().state, job.status().exhausted) == ("failed", True)
    backend.retry(job.id)
    assert job.status().state == "queued"
    with refusal("not_retryable"):
        backend.retry(job.id)


def test_many_jobs_are_cancelled_and_retried_in_one_call(
    backend: Backend, rig: Rig, store_url: str
) -> None:
    failed, waiting = backend.submit([{**SPEC, "max_failures": 0}, SPEC])
    Holder(rig, store_url).end(Reason.EXIT_CODE, 1)
    both = [failed, waiting, 999]
    assert backend.cancel_all(both) == {"cancelled": 1, "running": 0, "over": 1, "absent": 1}
    assert backend.retry_all(both) == {"retried": 1, "unfinished": 0, "over": 1, "absent": 1}
    assert backend.retry_all(both) == {"retried": 0, "unfinished": 1, "over": 1, "absent": 1}


def test_workers_are_listed_and_drained(backend: Backend, rig: Rig) -> None:
    worker = rig.worker("gpu-1", labels={"zone": "eu"}, gpus=[{"name": "A100"}])
    (row,) = backend.workers()
    assert (row.name, row.labels["zone"], row.command) == ("gpu-1", "eu", None)
    backend.drain(worker.id)
    assert backend.workers()[0].command == "drain"
    backend.drain(worker.id, undo=True)
    assert backend.workers()[0].command is None
    with refusal("worker_not_found"):
        backend.drain(worker.id + 1)


def test_reports_are_the_views(backend: Backend, rig: Rig, store_url: str) -> None:
    (job,) = backend.submit([SPEC])
    Holder(rig, store_url).end()
    # As a client of 0.2 calls it.
    assert backend.report("job_status", count=9) == backend.report("jobs", count=9)
    assert {"attempt_history", "jobs"} <= set(backend.reports())
    (row,) = backend.report("attempt_history", count=10)
    assert (row["job_id"], row["reason"]) == (job, "succeeded")
    for name in ("nothing", "job", "jobs; DROP TABLE job"):
        with refusal("report_unknown"):
            backend.report(name, count=1)


def test_jobs_are_listed_by_owner_state_and_age(client: Client, backend: Backend) -> None:
    ids = backend.submit([SPEC, {**SPEC, "owner": "bob"}, {**SPEC, "delay_s": 60}])
    assert [status.job_id for status in client.jobs()] == ids[::-1]
    assert [status.job_id for status in client.jobs(owner="bob")] == [ids[1]]
    with pytest.raises(ClientError, match="'scheduled' is not a job state"):
        client.jobs(states=["scheduled"])
    assert [status.job_id for status in backend.jobs(before=ids[1])] == [ids[0]]
    assert [status.job_id for status in client.jobs(states=["queued"])] == ids[::-1]
    for query, found in (
        ("owner:me state:queued", [ids[2], ids[0]]),
        ("owner:bob,me since:1d", ids[::-1]),
        ("state:failed", []),
    ):
        assert [status.job_id for status in client.jobs(query)] == found
    assert client.jobs("state:queued", states=["failed"]) == []
    with refusal("state_unknown"):
        client.jobs(states=["lost"])
    with refusal("filter_invalid"):
        client.jobs("staet:failed")
    assert set(backend.statuses([*ids, 999])) == set(ids)


def test_uploading_tells_its_progress(backend: Backend, project: Path, tmp_path: Path) -> None:
    bundle = pack(project, tmp_path / "bundle", limit_bytes=1 << 20)
    assert not backend.has_bundle(bundle)
    moved: list[int] = []
    backend.upload_bundle(bundle, moved.append)
    assert sum(moved) == bundle.size
    assert backend.has_bundle(bundle)
