"""Small jobs that share a container: one after another, and each for itself."""

from __future__ import annotations

import os
import subprocess
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.spec import Resources
from forge_schema.states import Reason
from support.worker import Bed, bed, containers_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.waiting import Eventually

TINY = Resources(cpus=0.5, memory_mb=96, disk_mb=500)
ALIKE: dict[str, Any] = {"share": True, "resources": TINY, "grace_s": 1}
HOST = "import socket; print('on', socket.gethostname(), flush=True); "
EATS = HOST + "a = [bytearray(1 << 20) for _ in range(4096)]"
STAYS = HOST + "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
LEAVES = HOST + "import subprocess; subprocess.Popen(['sleep', '600'])"
LITTERS = HOST + "open('/tmp/litter', 'w').close()"
KILLS = HOST + "import os, signal; os.kill(-1, signal.SIGKILL); signal.pause()"
SEES = HOST + (
    "import os, pathlib; "
    "print(sorted(p.name for p in pathlib.Path().iterdir()), os.environ.get('MINE'), flush=True); "
    "pathlib.Path('mark').touch(); pathlib.Path(os.environ['FORGE_OUTPUT_DIR'], 'o').touch(); "
    "pathlib.Path(os.environ['FORGE_RESULT_FILE']).write_text('{\"n\": 1}')"
)


@pytest.fixture
def docker(tmp_path: Path, database_url: str) -> Iterator[Bed]:
    with bed("docker", tmp_path, database_url) as made:
        yield made


def host_of(bed: Bed, job_id: int) -> str:
    """Return the host name that a job printed: its container."""
    words = bed.log(job_id).decode().split()
    return words[words.index("on") + 1]


def hosts(bed: Bed, job_ids: list[int]) -> list[str]:
    for job_id in job_ids:
        bed.ended(job_id)
    return [host_of(bed, job_id) for job_id in job_ids]


def test_ten_jobs_in_one_container_each_with_its_own_log_and_end(docker: Bed) -> None:
    sees = [docker.script(SEES, env={"MINE": str(n)}, **ALIKE) for n in range(8)]
    fails = docker.script(HOST + "raise SystemExit(3)", **ALIKE)
    absent = docker.submit("/no/such/program", **ALIKE)
    alone = docker.script(SEES, resources=TINY)
    others = docker.script(SEES, **{**ALIKE, "owner": "bob"})
    worker = docker.worker(max_jobs=1, share_s=60)
    ran_on = hosts(docker, [*sees, fails])
    assert len(set(ran_on)) == 1
    for number, job_id in enumerate(sees):
        docker.succeeds(job_id)
        assert docker.log(job_id).decode().splitlines()[-2:] == [f"on {ran_on[0]}", f"[] {number}"]
        assert docker.log(job_id).count(b"on forge") == 1
        assert list(docker.artifacts(job_id)) == ["o"]
        assert (docker.jobs.result(job_id) or {})["values"] == {"n": 1}
    assert docker.ended(fails)["exit_code"] == 3
    assert docker.ended(absent)["exit_code"] == 127
    assert b"not found" in docker.log(absent)
    assert ran_on[0] not in hosts(docker, [alone, others])
    assert len(containers_of(docker.token)) == 2
    assert list((worker.folder / "shares").glob("*/forge*")) == []
    assert worker.leave() == 0
    assert containers_of(docker.token) == []


def test_a_container_in_doubt_serves_nobody_any_more(docker: Bed, eventually: Eventually) -> None:
    ids = [docker.script(HOST, **ALIKE)]
    worker = docker.worker(max_jobs=1, share_s=60, heartbeat_s=0.2)
    docker.succeeds(ids[0])
    stays = docker.script(STAYS, **ALIKE)
    docker.says(stays, "on ")
    docker.queue.cancel(stays)
    assert docker.ended(stays)["state"] == "cancelled"
    eats, after = docker.script(EATS, **ALIKE), docker.script(HOST, **ALIKE)
    late = docker.script(STAYS, **{**ALIKE, "timeout_s": 1})
    leaves, litters = docker.script(LEAVES, **ALIKE), docker.script(LITTERS, **ALIKE)
    kills, last = docker.script(KILLS, **ALIKE), docker.script(HOST, **ALIKE)
    seen = hosts(docker, [ids[0], stays, eats, after, late, leaves, litters, kills, last])
    assert docker.reasons(eats) == [Reason.OOM]
    assert docker.reasons(late) == [Reason.TIMEOUT]
    # Whatever its code, others than the job may have chosen it.
    assert docker.reasons(kills) == [Reason.WORKER_LOST]
    for job_id in (after, leaves, litters, last):
        docker.succeeds(job_id)
    # A new one after the cancelled job, the one out of memory, the late one, and each that left
    # something; the same one in between.
    assert [a == b for a, b in pairwise(seen)] == [
        True, False, False, True, False, False, False, False,
    ]  # fmt: skip
    (kept,) = containers_of(docker.token)
    worker.kill()
    # A container that waits goes with its agent, before anybody clears up.
    state = ["docker", "inspect", "-f", "{{.State.Running}}", kept]
    eventually(lambda: subprocess.check_output(state, text=True).strip() == "false")
    docker.worker(share_s=0.5)
    assert containers_of(docker.token) == []
    assert os.listdir(worker.folder / "shares") == []  # noqa: PTH208  names alone
    # Nor does one wait for long.
    docker.succeeds(docker.script(HOST, **ALIKE))
    eventually(lambda: containers_of(docker.token) == [])
