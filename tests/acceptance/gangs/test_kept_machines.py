"""A user's job on three machines loses one, and goes on before what else waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.client.command import command
from support.waiting import eventually
from support.workers.http_bed import http_bed

if TYPE_CHECKING:
    from pathlib import Path

SIZE = ("--cpus", "2", "--memory", "64MiB", "--disk", "64MiB")
# Its first run goes on until it is stopped.
PROGRAM = 'echo "rank $RANK of run $FORGE_ATTEMPT"; [ "$FORGE_ATTEMPT" != 1 ] || sleep 600'


def test_a_job_that_lost_a_machine_keeps_the_others_and_goes_first(
    tmp_path: Path, database_url: str
) -> None:
    (tmp_path / "bed").mkdir()
    with http_bed(tmp_path / "bed", database_url) as made:
        settings = {"gang_network": "host", "cpus": 2, "offline_s": 4}
        workers = [made.worker(f"m{n}", **settings) for n in range(3)]
        reach = {"FORGE_DATABASE_URL": database_url, "FORGE_STORE_URL": made.store.url}
        forge = command(tmp_path, **reach)
        job = forge("submit", *SIZE, "--nodes", "3", ".", "--", "sh", "-c", PROGRAM).stdout.strip()
        for rank in range(3):
            made.says(int(job), f"rank {rank} of run 1")
        singles = [forge("submit", *SIZE, ".", "--", "true").stdout.strip() for _ in range(4)]
        workers[1].kill()
        with made.database.connection() as connection:
            # They begin with two minutes; from now on they last as long as a renewal says.
            connection.execute("UPDATE lease SET expires_at = now() + interval '5 s'")
        eventually(lambda: "2 machines kept" in forge("ps").stdout)
        why = forge("explain", job).stdout
        assert "only 2 of the 3 machines that it needs" in why
        assert "2 workers keep room for it" in " ".join(why.split())
        assert forge("worker", "list").stdout.count(f"keeps room for job {job}") == 2
        assert {made.job(int(single))["state"] for single in singles} == {"ready"}
        made.worker("m1", **settings)
        made.succeeds(int(job))
        for rank in range(3):
            made.says(int(job), f"rank {rank} of run 2")
        for single in singles:
            made.succeeds(int(single))
        started = [row["token"] for row in made.jobs.attempts(int(job)) if row["attempt"] == 2]
        assert max(started) < min(made.jobs.attempts(int(one))[0]["token"] for one in singles)
