"""A job with a range of machines on real workers: one is killed, and comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge_schema.sweeper.tick import TURN
from support.waiting import eventually
from support.workers.http_bed import http_bed

if TYPE_CHECKING:
    from datetime import timedelta
    from pathlib import Path

    from support.workers.worker import Bed

# Rank 0 keeps the number of machines of each run; the third run succeeds.
SIZES = """
import os, pathlib, signal, sys
rank, folder = int(os.environ["RANK"]), pathlib.Path(os.environ["FORGE_CHECKPOINT_DIR"])
file = folder / "sizes"
sizes = [*(file.read_text().split() if file.exists() else []), os.environ["WORLD_SIZE"]]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
print(f"rank {rank} has seen {sizes}", flush=True)
if len(sizes) == 3:
    sys.exit(0)
if rank == 0:
    (folder / "new").write_text(" ".join(sizes))
    (folder / "new").replace(file)
while True:
    signal.pause()
"""


def counted(made: Bed, query: str, *params: int) -> int:
    with made.database.connection() as connection:
        row = connection.execute(query.encode(), params).fetchone()
    assert row is not None
    found: int = row["found"]
    return found


def stored(made: Bed, job: int, attempt: int) -> bool:
    """Tell whether all ranks of a run have stored a checkpoint."""
    return any(one["attempt"] == attempt for one in made.jobs.checkpoints(job))


def grown(made: Bed, at_once: timedelta) -> bool:
    rows = made.database.rows("grow", computed=at_once, waited=at_once, turn=TURN, actor="sweeper")
    return bool(rows[0]["grown"])


def test_a_run_goes_on_without_a_killed_worker_and_with_it_when_it_is_back(
    tmp_path: Path, database_url: str
) -> None:
    with http_bed(tmp_path, database_url) as made:
        workers = [made.worker(f"m{n}", gang_network="host", offline_s=4) for n in range(3)]
        eventually(lambda: counted(made, "SELECT count(*) AS found FROM idle") == 3)
        job = made.script(SIZES, nodes=2, max_nodes=4, max_losses=1, max_failures=0)
        eventually(lambda: stored(made, job, 1))
        for rank in range(3):
            made.says(job, f"rank {rank} has seen ['3']")
        with made.database.connection() as connection:
            # They begin with two minutes; from now on they last as long as a renewal says.
            connection.execute("UPDATE lease SET expires_at = now() + interval '8 s'")
        workers[1].kill()
        for rank in range(2):
            made.says(job, f"rank {rank} has seen ['3', '2']")
        eventually(lambda: stored(made, job, 2))
        made.worker("m1", gang_network="host", offline_s=4)
        eventually(lambda: grown(made, TURN * 0))
        made.succeeds(job)
        rows = made.jobs.attempts(job)
        places = [(row["attempt"], row["rank"]) for row in rows]
        assert places == [(n, r) for n, size in ((1, 3), (2, 2), (3, 3)) for r in range(size)]
        reasons = [row["reason"] for row in rows]
        assert sorted(reasons[:3]) == ["run_ended", "run_ended", "worker_lost"]
        assert reasons[3:] == ["run_ended"] * 2 + ["succeeded"] * 3
        assert {row["detail"] for row in rows[3:5]} == {"to continue with 3 machines instead of 2"}
        assert len({row["worker"] for row in rows[5:]}) == 3
        assert made.job(job)["attempt"] == 3
