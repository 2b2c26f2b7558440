"""Real workers run programs that use MPI, with Debian's Open MPI and without ssh."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import psutil
import pytest
from forge_worker.inside import mpi
from support.gangs.programs import MPI, RESUME_MPI
from support.services import require
from support.waiting import eventually
from support.workers.worker import bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workers.worker import Bed, Worker


@pytest.fixture
def machines(tmp_path: Path, database_url: str) -> Iterator[Bed]:
    """Return a bed with three workers."""
    require(shutil.which("mpirun"), "mpirun (openmpi-bin)")
    with bed("process", tmp_path, database_url) as made:
        for rank in range(3):
            made.worker(f"m{rank}")
        yield made


@pytest.fixture(scope="module")
def _connected() -> None:
    """Skip where Open MPI connects no two members of one machine."""
    require(shutil.which("mpirun"), "mpirun (openmpi-bin)")
    version = subprocess.run(["mpirun", "--version"], stdout=subprocess.PIPE, check=False).stdout
    one_machine = json.dumps({"members": [{"rank": rank, "address": "::1"} for rank in (0, 1)]})
    if warning := mpi.strangers(version, one_machine):
        pytest.skip(warning)


@pytest.mark.usefixtures("_connected")
@pytest.mark.parametrize("nodes", [2, 3])
def test_each_rank_computes_with_all_others_in_its_own_folders(machines: Bed, nodes: int) -> None:
    job = machines.script(MPI, nodes=nodes, launcher="mpirun")
    machines.succeeds(job)
    total = sum(range(nodes))
    lines = machines.log(job).decode().splitlines()
    # mpirun warns when its child was faster than itself.
    said = sorted(line for line in lines if "setpgid" not in line)
    assert said == [f"{rank} of {nodes} got {total} True True False" for rank in range(nodes)]
    assert machines.reasons(job) == ["succeeded"] * nodes
    assert machines.artifacts(job) == {
        "sum.txt" if rank == 0 else f"rank-{rank}/sum.txt": f"{rank} {total}".encode()
        for rank in range(nodes)
    }


def programs(worker: Worker, source: str) -> list[psutil.Process]:
    """Return the job's processes on a worker, below mpirun's daemon."""
    return [
        process
        for process in psutil.process_iter(["cwd", "cmdline"])
        if (process.info["cwd"] or "").startswith(str(worker.folder))
        and (process.info["cmdline"] or [])[1:3] == ["-c", source]
    ]


@pytest.mark.usefixtures("_connected")
def test_a_killed_rank_ends_the_run_for_all(machines: Bed) -> None:
    job = machines.script(MPI, "wait", nodes=3, launcher="mpirun")
    for rank in range(3):
        machines.says(job, f"{rank} of 3 got 3")
    running = [process for worker in machines.workers for process in programs(worker, MPI)]
    assert len(running) == 3
    victim = next(one for one in running if one.environ()["NODE_RANK"] == "2")
    victim.kill()
    row = machines.ended(job)
    assert (row["state"], row["reason"], row["exit_code"]) == ("dead", "exit_code", 137)
    assert machines.reasons(job) == ["exit_code", "run_ended", "run_ended"]
    assert not any(process.is_running() for process in running)


def test_a_stopped_run_reaches_every_process_and_resumes(machines: Bed) -> None:
    job = machines.script(RESUME_MPI, nodes=2, launcher="mpirun", max_preemptions=1)
    for rank in range(2):
        machines.says(job, f"rank {rank} found []")
    assert machines.queue.preempt(job)
    machines.succeeds(job)
    said = sorted(line for line in machines.log(job).decode().splitlines() if " found " in line)
    last = "found ['last', 'mine', 'state']"
    assert said == [
        *(f"rank 0 {last}", "rank 0 found []"),
        *(f"rank 1 {last}", "rank 1 found []"),
    ]


def test_a_program_that_fails_decides_the_exit_code(machines: Bed) -> None:
    script = '[ "$RANK" = 1 ] && exit 7; exec sleep 600'
    job = machines.submit("sh", "-c", script, nodes=2, launcher="mpirun")
    row = machines.ended(job)
    assert (row["reason"], row["exit_code"]) == ("exit_code", 7)
    eventually(lambda: machines.leases() == 0)
