"""Commands on a worker's folder: status, recovery, reset; and broken state."""

from __future__ import annotations

import json
import os
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest
from forge_worker.commands.doctor import lacking
from forge_worker.commands.recovery import recover
from forge_worker.commands.status import look, words
from forge_worker.loop import Bell
from forge_worker.machine.watched import WatchedMachine
from forge_worker.runners.process.runner import ProcessRunner
from forge_worker.settings.settings import WorkerSettings
from support.workers.asked import asked
from support.workers.runners import make_spec
from support.workers.worker import Bed, containers_of, sandboxes_of

if TYPE_CHECKING:
    from pathlib import Path

    from support.waiting import Eventually

WAITS = """
import threading
print("up", flush=True)
threading.Event().wait()
"""


def settings(made: Bed, **given: Any) -> WorkerSettings:  # noqa: ANN401  settings of all types
    own = {name.removeprefix("FORGE_").lower(): v for name, v in made.settings("one").items()}
    return WorkerSettings(**{**own, "status": True, **given})


def status(made: Bed, **given: Any) -> dict[str, Any]:  # noqa: ANN401  as above
    told = look(settings(made, **given))
    # It is printed as JSON, unchanged.
    return cast("dict[str, Any]", json.loads(json.dumps(told)))


def test_status_while_an_agent_runs(process: Bed, eventually: Eventually) -> None:
    assert status(process)["running"] is False
    worker = process.worker()
    job = process.script(WAITS)
    eventually(lambda: [j["phase"] for j in status(process)["does"]["jobs"]] == ["running"])
    told = json.loads(asked(process, "--status", "--json").stdout)
    assert (told["running"], told["pid"], told["worker"]) == (True, worker.process.pid, worker.name)
    (shown,) = told["does"]["jobs"]
    assert (shown["job"], shown["attempt"], shown["cpus"], shown["memory_mb"]) == (job, 1, 0.5, 256)
    assert told["leases"] == {str(job): "held"}
    said = words(told)
    assert f"job {job} (job), attempt 1: running for" in said
    assert "an agent is running" in said
    away = status(process, database_url="postgresql://postgres@127.0.0.1:1/x")
    assert "does not answer" in away["leases"]["unknown"]
    assert "is unknown" in words(away)
    refused = asked(process, "--recover", code=1).stderr
    assert f"another worker uses {worker.folder} (process {worker.process.pid})" in refused
    assert f"stop process {worker.process.pid} first" in refused
    process.queue.cancel(job)
    assert process.ended(job)["state"] == "cancelled"


def test_status_shows_the_policy_of_the_agent(process: Bed) -> None:
    worker = process.worker(max_jobs=2, default_image="busybox", memory_mb=1024)
    told = status(process, max_jobs=9)
    policy = told["policy"]
    assert (policy["max_jobs"], policy["default_image"], policy["memory_mb"]) == (
        2,
        "busybox",
        1024,
    )
    # Only what this command was given and the agent was not.
    assert told["differs"] == {"default_image": "", "max_jobs": 9, "memory_mb": 4096}
    said = words(told)
    assert "policy of the running agent:" in said
    assert "1 GiB of memory" in said
    assert "at most 2 jobs at once" in said
    assert "another --max-jobs, which is not in force: 9" in said
    assert worker.leave() == 0
    told = status(process, max_jobs=9)
    assert (told["policy"]["max_jobs"], told["differs"]) == (9, {})
    assert "policy of this command's settings:" in words(told)


def test_recovery_after_a_kill(both: Bed) -> None:
    # No sweeper looks for lost jobs: this one is given back by hand.
    worker = both.worker(sweep=False, lease_ttl_s=600)
    job = both.script(WAITS, max_losses=1)
    both.says(job, "up")
    worker.kill()
    said = asked(both, "--status", code=3).stdout
    assert "no agent is running" in said
    assert f"left behind: job {job} in jobs/{job}-1-" in said
    assert "lease held; --recover removes it" in said
    said = asked(both, "--recover").stdout
    assert f"the lease of job {job} was given back" in said
    assert (both.kind == "docker") == ("which was still running (docker)" in said)
    assert both.job(job)["state"] in ("ready", "scheduled")
    assert both.reasons(job) == ["worker_lost"]
    assert both.left_behind() == []
    # A second time, there is nothing to do.
    assert list(recover(settings(both))) == ["recovered: nothing is left of an earlier agent"]


def test_recovery_finds_containers_by_the_folder_whatever_the_workers_name(
    docker: Bed, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    worker = docker.worker(sweep=False, lease_ttl_s=600, sandboxes=1)
    eventually(lambda: sandboxes_of(worker.folder))
    jobs = [docker.script(WAITS, max_losses=1) for _ in range(2)]
    for job in jobs:
        docker.says(job, "up")
    worker.kill()
    with monkeypatch.context() as away:
        away.setenv("DOCKER_HOST", "unix:///no/such/socket")
        for ask in ("--recover", "--reset-state"):
            refused = asked(docker, ask, "--worker-name=", code=1)
            assert "recovery is incomplete" in refused.stderr
            assert "nothing is left of an earlier agent" not in refused.stdout
    assert len(list((worker.folder / "jobs").iterdir())) == 2
    assert len(containers_of(docker.token)) == 2
    # A worker with another folder leaves them alone.
    elsewhere = f"--worker-dir={docker.root / 'two'}"
    said = asked(docker, "--recover", "--worker-name=", elsewhere).stdout
    assert said == "recovered: nothing is left of an earlier agent\n"
    assert len(containers_of(docker.token)) == 2
    # They are found even if the worker is to run no containers now, and no record names the
    # container.
    (record,) = worker.folder.glob(f"jobs/{jobs[1]}-*/lease.json")
    kept = json.loads(record.read_text())
    record.write_text(json.dumps({name: kept[name] for name in ("job_id", "token", "nonce")}))
    said = asked(docker, "--recover", "--worker-name=", "--runner=process").stdout
    assert said.count("which was still running (docker)") == 2
    assert all(f"the lease of job {job} was given back" in said for job in jobs)
    assert docker.left_behind() == []
    assert not {"name", "state.json"} & {path.name for path in worker.folder.iterdir()}


def test_start_under_another_name_clears_what_the_folder_records(
    both: Bed, eventually: Eventually
) -> None:
    first = both.worker(sweep=False, lease_ttl_s=600)
    job = both.script(WAITS, max_losses=1)
    both.says(job, "up")
    first.kill()
    before = set(containers_of(both.token))
    second = both.worker(worker_name=f"other-{both.token}", sweep=False)
    assert "adopted" not in second.output
    assert not before & set(containers_of(both.token))
    eventually(lambda: both.log(job).count(b"up\n") == 2)
    assert both.reasons(job)[0] == "worker_lost"
    both.queue.cancel(job)
    assert both.ended(job)["state"] == "cancelled"


def test_recovery_leaves_a_job_of_the_same_number_that_another_queue_has_here(
    process: Bed, tmp_path: Path
) -> None:
    (process.root / "one/jobs/1-1-1").mkdir(parents=True)
    spec = make_spec(tmp_path / "other", ("sleep", "600"), name="forge-1-1-1-0123456789ab")
    handle = ProcessRunner().start(spec)
    try:
        assert "recovered" in asked(process, "--recover").stdout
        assert handle.wait(0.2) is None
    finally:
        handle.remove()


def test_reset_says_what_it_removes_and_leaves_what_is_not_its_own(process: Bed) -> None:
    folder = process.root / "one"
    for place in ("bundles/ab", "caches/x", "jobs/1-1-1"):
        (folder / place).mkdir(parents=True)
    (folder / "name").write_text("old\n")
    (folder / "precious").write_text("mine")
    said = asked(process, "--reset-state").stdout
    removed = [line for line in said.splitlines() if line.startswith("to be removed")]
    assert len(removed) == 3
    assert said.index("to be removed") < said.index("recovered")
    assert f"kept, because no worker created it: {folder / 'precious'}" in said
    assert {path.name for path in folder.iterdir()} == {"lock", "jobs", "precious"}
    assert list((folder / "jobs").iterdir()) == []


def test_broken_state_is_put_aside_and_said(process: Bed, eventually: Eventually) -> None:
    folder = process.root / "one"
    for place in ("jobs/7-1-9", "quarantine.json", "envs"):
        (folder / place).mkdir(parents=True)
    broken = b"\xff{]\x00"
    for place in (
        "jobs/7-1-9/lease.json", "jobs/stray", "name", "state.json", "lock", "bundles",
        "envs/broken", "caches",
    ):  # fmt: skip
        (folder / place).write_bytes(broken)
    assert status(process, worker_name="")["worker"] == ""
    worker = process.worker(worker_name="")
    process.succeeds(process.script("print('fine')"))
    assert "name_file_broken" in worker.output
    aside = {path.name.partition(".broken-")[0] for path in folder.glob("*.broken-*")}
    assert aside == {"bundles", "caches", "quarantine.json"}
    assert worker.output.count("foreign_file_moved_aside") == len(aside)
    assert "Traceback" not in worker.output
    # A job's end is reported before its folder is removed.
    eventually(lambda: list((folder / "jobs").iterdir()) == [])
    told = status(process, worker_name="")
    assert told["running"]
    assert told["worker"] == (folder / "name").read_text().strip()
    (folder / "state.json").write_bytes(broken)
    assert status(process, worker_name="")["running"]
    assert worker.leave() == 0
    (folder / "name").write_bytes(broken)
    assert list(recover(settings(process, worker_name="")))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"runner": "docker"}, "there is no container engine at"),
        ({"runner": "process", "allow_processes": "False"}, "processes are not allowed"),
    ],
)
def test_what_is_missing_is_named_with_what_to_do(
    process: Bed, given: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if given["runner"] == "docker":
        monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/socket")
    told = status(process, **given)
    assert said in told["lacks"][0]["what"]
    assert told["lacks"][0]["do"]
    worker = process.begin(**given)
    assert worker.process.wait(120) == 1
    assert said in worker.output


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="no tmpfs")  # noqa: S108 - asked
def test_a_folder_in_memory_is_named_with_what_to_do(process: Bed, tmp_path: Path) -> None:
    in_memory, on_disk = (
        [lack for lack in lacking(settings(process, worker_dir=str(place))) if "memory" in lack.so]
        for place in ("/dev/shm", tmp_path)  # noqa: S108 - only looked at
    )
    assert [lack.what for lack in in_memory] == [
        "the worker's folder /dev/shm is in memory, not on a disk"
    ]
    assert "FORGE_WORKER_DIR" in in_memory[0].do
    with TemporaryDirectory(dir="/dev/shm") as place:
        there = settings(process, worker_dir=place)
        machine = WatchedMachine(
            there, None, attempts=list, preparing=int, changed=Bell(), engine_changed=Bell()
        )
    assert machine.condition.in_memory
    assert on_disk == []


def test_a_folder_without_programs_is_named(
    process: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.statvfs", lambda _: Mock(f_flag=os.ST_NOEXEC | os.ST_NOSUID))
    told = [lack.what for lack in lacking(settings(process, worker_dir=str(tmp_path)))]
    assert f"the worker's folder {tmp_path} is mounted noexec" in told
