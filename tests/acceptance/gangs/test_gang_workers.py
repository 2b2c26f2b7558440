"""Real workers run one job together: directly and over HTTP, as processes and in containers."""

from __future__ import annotations

import json
import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil
import pytest
from forge_schema.model.states import Launcher
from forge_schema.model.worker import Speed
from forge_schema.queue.attempt_records import Records
from forge_worker.devices.inventory import Inventory
from forge_worker.machine import speed
from support.engine.engine_proxy import engine_proxy
from support.gangs.programs import MEET, RESUME, SHARDS, SHARE
from support.waiting import eventually
from support.workers.http_bed import http_bed
from support.workers.worker import bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workers.worker import Bed, Worker


@contextmanager
def members(
    way: str, kind: str, root: Path, database_url: str, count: int, **settings: object
) -> Iterator[Bed]:
    """Make a bed with some workers that take part in gangs, on the way `sql` or `http`."""
    open_bed = (
        http_bed(root, database_url, kind=kind) if way == "http" else bed(kind, root, database_url)
    )
    with open_bed as made:
        given = {"gang_network": "host", **settings}
        for rank in range(count):
            made.worker(f"m{rank}", **given)
        yield made


@pytest.mark.parametrize(("way", "kind", "nodes"), [("http", "process", 3), ("sql", "docker", 2)])
def test_all_ranks_run_together_and_all_is_stored(
    tmp_path: Path, database_url: str, way: str, kind: str, nodes: int
) -> None:
    with members(way, kind, tmp_path, database_url, nodes) as made:
        job = made.script(MEET, nodes=nodes)
        made.succeeds(job)
        total = sum(range(nodes))
        log = made.log(job).decode()
        for rank in range(nodes):
            assert f"rank {rank} of {nodes} gloo\nrank {rank} got {total}\n" in log
        assert made.reasons(job) == ["succeeded"] * nodes
        assert made.artifacts(job) == {
            "sum.txt" if rank == 0 else f"rank-{rank}/sum.txt": f"{rank} {total}".encode()
            for rank in range(nodes)
        }


def test_a_launcher_starts_a_job_on_one_machine_that_takes_no_part_in_gangs(
    tmp_path: Path, database_url: str
) -> None:
    (tmp_path / "bin").mkdir()
    torchrun = tmp_path / "bin" / "torchrun"
    torchrun.write_text(
        '#!/bin/sh\nfor word; do echo "given $word"; done\necho "size $WORLD_SIZE"\n'
    )
    torchrun.chmod(0o755)
    path = {"PATH": f"{torchrun.parent}:{os.environ['PATH']}"}
    with bed("process", tmp_path, database_url, environment=path) as made:
        made.worker("m0", gang_network="none")
        job = made.submit("train.py", "--lr", "1", launcher=Launcher.TORCHRUN)
        made.succeeds(job)
        lines = made.log(job).decode().splitlines()
    for given in ("--nnodes=1", "--nproc-per-node=1", "--master-addr=127.0.0.1", "train.py"):
        assert f"given {given}" in lines
    assert "size 1" in lines


def test_each_member_learns_its_share_by_measured_speed(tmp_path: Path, database_url: str) -> None:
    with bed("process", tmp_path, database_url) as made:
        for name, gflops in (("m0", 300.0), ("m1", 100.0)):
            (made.root / name).mkdir(parents=True)
            told = Speed("numpy", cpus=4, cpu={"fp32": gflops}).reported()
            kept = {"on": speed.hardware(Inventory(["none"])), "speed": told}
            (made.root / name / speed.FILE).write_text(json.dumps(kept), encoding="utf-8")
            made.worker(name, gpus="none")
        job = made.script(SHARE, nodes=2)
        made.succeeds(job)
        told_shares = {line for line in made.log(job).decode().splitlines() if "share" in line}
        assert told_shares == {
            f"{one.name} share {share} numpy"
            for one, share in zip(made.workers, (0.75, 0.25), strict=True)
        }


def test_containers_are_not_in_gangs_unless_the_operator_says_so(
    tmp_path: Path, database_url: str
) -> None:
    with bed("docker", tmp_path, database_url) as made:
        one = made.worker("one")
        two = made.worker("two", gang_network="host")
        with made.database.connection() as connection:
            rows = connection.execute("SELECT name, address FROM worker").fetchall()
        assert {row["name"]: row["address"] for row in rows} == {
            one.name: None,
            two.name: "127.0.0.1",
        }


def test_an_engine_that_refuses_one_member_ends_the_run_for_all(
    tmp_path: Path, database_url: str
) -> None:
    with bed("docker", tmp_path, database_url) as made:
        other = made.worker("other", gang_network="host")
        with engine_proxy(tmp_path / "engine.sock") as proxy:
            refused = made.worker("refused", gang_network="host")
            proxy.refuses = b"/containers/create"
            job = made.script("print('began')", nodes=2, max_failures=0)
            eventually(lambda: made.jobs.attempts(job))
            proxy.refuses = b""
            made.succeeds(job)
            rows = made.jobs.attempts(job)
            first = {row["worker"]: row["reason"] for row in rows if row["attempt"] == 1}
            assert first == {other.name: "run_ended", refused.name: "start_failed"}
            assert b"no space left on device" in made.log(job, attempt=1)
            assert made.log(job, made.job(job)["attempt"]).count(b"began") == 2
            for worker in made.workers:
                assert worker.leave() == 0


@dataclass
class Running:
    """A run of two members that has stored its first checkpoint, among three workers."""

    bed: Bed
    job: int
    source: str

    def worker(self, rank: int) -> Worker:
        """Return the worker that has a rank."""
        query = "SELECT name FROM lease JOIN worker ON worker.id = worker_id WHERE rank = %s"
        with self.bed.database.connection() as connection:
            (row,) = connection.execute(query, (rank,)).fetchall()
        return next(worker for worker in self.bed.workers if worker.name == row["name"])

    def program(self, rank: int) -> psutil.Process:
        """Return the process of a rank's program."""
        folder = str(self.worker(rank).folder)
        (found,) = (
            process
            for process in psutil.process_iter(["cwd", "cmdline"])
            if (process.info["cwd"] or "").startswith(folder)
            and self.source in (process.info["cmdline"] or [])
        )
        return found

    def ends_once(self, *first: str) -> None:
        """Check that the run resumed once, and that each rank ended once, first as given."""
        self.bed.succeeds(self.job)
        rows = self.bed.jobs.attempts(self.job)
        assert [(row["attempt"], row["rank"]) for row in rows] == [(1, 0), (1, 1), (2, 0), (2, 1)]
        assert [row["reason"] for row in rows] == [*first, "succeeded", "succeeded"]


@contextmanager
def run_of_two(way: str, root: Path, database_url: str, source: str = RESUME) -> Iterator[Running]:
    # The next run must not form with a worker that has just been killed.
    with members(way, "process", root, database_url, 3, offline_s=4) as made:
        job = made.script(source, nodes=2, max_preemptions=1, max_losses=1, max_failures=1)
        for rank in range(2):
            made.says(job, f"rank {rank} found []")
        records = Records(made.database)
        eventually(lambda: records.latest_checkpoint(job))
        with made.database.connection() as connection:
            # They begin with two minutes; from now on they last as long as a renewal says.
            connection.execute("UPDATE lease SET expires_at = now() + interval '8 s'")
        yield Running(made, job, source)


def starts(bed: Bed, job: int) -> list[str]:
    """Return what each rank found in its checkpoint folder, in all attempts."""
    return sorted(line for line in bed.log(job).decode().splitlines() if " found " in line)


def test_a_preempted_run_stores_its_last_checkpoint_and_all_ranks_resume_from_it(
    tmp_path: Path, database_url: str
) -> None:
    with run_of_two("http", tmp_path, database_url) as run:
        assert run.bed.queue.preempt(run.job)
        run.bed.succeeds(run.job)
        last = "found ['last', 'mine', 'state']"
        assert starts(run.bed, run.job) == [
            *(f"rank 0 {last}", "rank 0 found []"),
            *(f"rank 1 {last}", "rank 1 found []"),
        ]


def test_a_notice_to_one_worker_reaches_all_ranks(tmp_path: Path, database_url: str) -> None:
    with run_of_two("sql", tmp_path, database_url) as run:
        run.worker(1).send(signal.SIGTERM)
        run.worker(1).send(signal.SIGTERM)
        run.ends_once("run_ended", "preempted")
        assert "rank 0 found ['last', 'mine', 'state']" in starts(run.bed, run.job)


def test_a_killed_program_ends_the_run_for_all(tmp_path: Path, database_url: str) -> None:
    with run_of_two("sql", tmp_path, database_url) as run:
        other = run.program(0)
        run.program(1).kill()
        run.ends_once("run_ended", "exit_code")
        assert not other.is_running()
        said = run.bed.jobs.attempts(run.job)[1]
        assert said["exit_code"] == 137


def test_a_killed_agent_ends_the_run_for_all(tmp_path: Path, database_url: str) -> None:
    # Rank 1's is killed below.
    with run_of_two("sql", tmp_path, database_url) as run:
        killed = run.worker(0)
        killed.kill()
        run.ends_once("worker_lost", "run_ended")
        # It clears what its earlier agent left.
        run.bed.worker(killed.folder.name)


def test_a_frozen_worker_loses_its_rank_and_its_program(tmp_path: Path, database_url: str) -> None:
    with run_of_two("sql", tmp_path, database_url) as run:
        frozen, program = run.worker(1), run.program(1)
        frozen.freeze()
        run.ends_once("run_ended", "worker_lost")
        frozen.send(signal.SIGCONT)
        eventually(lambda: not program.is_running())


ROWS = """
    SELECT
        (SELECT max(number) FROM checkpoint WHERE job_id = %(job)s AND rank = 0 AND attempt = 1)
            AS newest,
        (
            SELECT max(number) FROM forge_complete_checkpoints(%(job)s) AS whole
            WHERE whole.attempt = 1
        ) AS whole
"""


def stored(run: Running) -> tuple[int, int]:
    """Return the numbers of the first run's newest checkpoint of rank 0, and newest whole one."""
    with run.bed.database.connection() as connection:
        row = connection.execute(ROWS, {"job": run.job}).fetchone()
    assert row is not None
    return row["newest"] or 0, row["whole"] or 0


def whole(run: Running) -> set[str]:
    """Return what the ranks of the second run found, without their numbers."""
    said = run.bed.log(run.job, attempt=2).decode().splitlines()
    return {line.partition(" found ")[2] for line in said if " found " in line}


@pytest.mark.parametrize(("way", "rank"), [("sql", 0), ("http", 1)])
def test_after_a_killed_program_every_rank_finds_all_shards_of_the_latest_step(
    tmp_path: Path, database_url: str, way: str, rank: int
) -> None:
    with run_of_two(way, tmp_path, database_url, SHARDS) as run:
        eventually(lambda: stored(run)[1] >= 2)
        run.program(rank).kill()
        run.bed.succeeds(run.job)
        (found,) = whole(run)
        assert " whole True " in found


def test_after_a_killed_agent_the_newest_whole_checkpoint_is_used(
    tmp_path: Path, database_url: str
) -> None:
    with run_of_two("sql", tmp_path, database_url, SHARDS) as run:
        eventually(lambda: stored(run)[1] >= 2)
        killed = run.worker(1)
        killed.kill()
        before = stored(run)[1]
        # Rank 0 stores something newer, which stays half.
        eventually(lambda: stored(run)[0] > stored(run)[1])
        run.bed.succeeds(run.job)
        assert stored(run)[0] > stored(run)[1] >= before
        (found,) = whole(run)
        assert found.endswith("whole True alone False")
        run.bed.worker(killed.folder.name)
