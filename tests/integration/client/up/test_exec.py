"""`forge exec`: inside a running job, with a terminal and without, and where there is no way in."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from forge_schema.model.states import Phase
from support.client.command import FORGE
from support.client.entering import WAITS, enter_in_a_terminal
from support.gangs.runs import running
from support.services import require
from support.waiting import eventually
from support.warm.process import Warm
from support.workers.attempts import desk
from support.workers.worker import Bed, bed

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from support.queue.rig import Rig

LOOKS = 'echo "$(id -u) $(pwd) $MINE $FORGE_JOB_ID $(cat)"; exit 7'


def words(
    url: str, job: int, *command: str, rank: int | None = None, verb: str = "exec"
) -> list[str]:
    place = ["--database-url", url, "--store-url", "file:///nowhere"]
    chosen = [] if rank is None else ["--rank", str(rank)]
    return [str(FORGE), *place, verb, *chosen, str(job), *(["--", *command] if command else [])]


def run(
    url: str,
    job: int,
    *command: str,
    typed: str = "",
    rank: int | None = None,
    verb: str = "exec",
) -> subprocess.CompletedProcess[str]:
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    env = {**os.environ, "FORGE_OWNER": "ann"}
    given = words(url, job, *command, rank=rank, verb=verb)
    with Warm("forge_client.main", given, env=env, text=True, **pipes) as process:
        out, err = process.communicate(typed, timeout=60)
    return subprocess.CompletedProcess(given, process.returncode, out, err)


def test_a_running_job_is_entered(
    both: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(shutil.which("ssh"), "OpenSSH's client")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    both.worker()
    url = both.database.url
    job = both.script(WAITS, env={"MINE": "my own"})
    uid, folder = both.told(job, "ready")

    looked = run(url, job, "sh", "-c", LOOKS, typed="typed")
    assert (looked.returncode, looked.stdout) == (7, f"{uid} {folder} my own {job} typed\n")
    inside = run(url, job, "-T", LOOKS, typed="by ssh", verb="ssh")
    assert (inside.returncode, inside.stdout) == (7, f"{uid} {folder} my own {job} by ssh\n")
    # Some engines say that it cannot be executed.
    assert run(url, job, "no-such-program").returncode in {126, 127}
    entered = [e for e in both.jobs.events(job) if e["action"] == "entered"]
    assert [(e["actor"], e["detail"]["program"]) for e in entered] == [
        ("user:ann", "sh"),
        ("user:ann", "ssh"),
        ("user:ann", "no-such-program"),
    ]
    enter_in_a_terminal(words(url, job), os.environ)

    assert run(url, job, "touch", "go").returncode == 0
    both.succeeds(job)
    late = run(url, job, "ls")
    assert (late.returncode, "is not running: it has succeeded" in late.stderr) == (4, True)


def test_each_rank_of_a_job_is_entered_on_its_worker(tmp_path: Path, database_url: str) -> None:
    with bed("process", tmp_path, database_url) as made:
        for name in ("one", "two"):
            made.worker(name)
        job = made.script(f"{WAITS}print('gone', os.environ['RANK'])", nodes=2)
        for rank in (1, 0):
            eventually_entered(database_url, job, rank)
        unknown = run(database_url, job, "ls", rank=2)
        assert (unknown.returncode, f"job {job} has no rank 2" in unknown.stderr) == (3, True)
        assert run(database_url, job, "touch", "go", rank=1).returncode == 0
        made.says(job, "gone 1")
        assert run(database_url, job, "touch", "go").returncode == 0
        made.succeeds(job)


def eventually_entered(url: str, job: int, rank: int) -> None:
    """Check that the variables of a rank are seen, once its program runs."""
    eventually(lambda: run(url, job, "true", rank=rank).returncode == 0)
    assert run(url, job, "sh", "-c", "echo $RANK", rank=rank).stdout == f"{rank}\n"


def test_a_rank_elsewhere_or_over_is_told(rig: Rig) -> None:
    started = running(rig, nodes=2)
    early = run(rig.url, started.job_id, rank=1)
    assert "rank 1 of job 1 is being prepared on worker gpu-1, and has not" in early.stderr
    started.start()
    refused = run(rig.url, started.job_id, rank=1)
    assert refused.returncode == 4
    assert "rank 1 of job 1 runs on worker gpu-1, which is not on this machine" in refused.stderr
    assert "`forge exec 1 --rank 1`" in refused.stderr
    started.end(1)
    over = run(rig.url, started.job_id, rank=1)
    assert over.returncode == 4
    assert "rank 1 of job 1 has ended on worker gpu-1" in over.stderr


def test_a_job_elsewhere_names_its_worker(tmp_path: Path, database_url: str) -> None:
    with desk(database_url, tmp_path) as made:
        attempt = made.attempt()
        job = attempt.fence.job_id
        early = run(database_url, job)
        assert (early.returncode, "being prepared on worker desk" in early.stderr) == (4, True)
        made.gateway.report(attempt.fence, Phase.RUNNING)
        refused = run(database_url, job, "ls")
        assert refused.returncode == 4
        assert "runs on worker desk, which is not on this machine" in refused.stderr
        assert "ssh" in refused.stderr
