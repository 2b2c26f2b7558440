"""A user submits jobs that mind the price and spot machines, and asks why one waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.client.command import command
from support.waiting import eventually
from support.workers.worker import bed

if TYPE_CHECKING:
    from pathlib import Path

    from support.client.command import Command
    from support.workers.worker import Bed

SMALL = ("--cpus", "1", "--memory", "64MiB", "--disk", "64MiB")


def asleep(made: Bed) -> int:
    with made.database.connection() as connection:
        return len(connection.execute("SELECT worker_id FROM idle").fetchall())


def ran_on(forge: Command, made: Bed, *wishes: str) -> str:
    """Submit a job with some wishes, wait for its end, and return its worker.

    Who is woken first is a choice among idle workers, so both must be idle by then.
    """
    eventually(lambda: asleep(made) == 2)
    job = int(forge("submit", *SMALL, *wishes, ".", "--", "true").stdout)
    made.succeeds(job)
    return str(made.jobs.attempts(job)[0]["worker"]).partition("-")[0]


def test_a_job_goes_to_the_machine_that_its_price_and_its_wish_allow(
    tmp_path: Path, database_url: str
) -> None:
    (tmp_path / "bed").mkdir()
    with bed("process", tmp_path / "bed", database_url) as made:
        made.worker("dear", price_per_hour=3600, poll_s=600)
        made.worker("spot", price_per_hour=900, spot_machine="yes", poll_s=600)
        reach = {"FORGE_DATABASE_URL": database_url, "FORGE_STORE_URL": made.store.url}
        forge = command(tmp_path, **reach)
        assert ran_on(forge, made) == "spot"
        assert ran_on(forge, made, "--spot", "never") == "dear"
        assert ran_on(forge, made, "--spot", "prefer") == "spot"
        assert ran_on(forge, made, "--max-price", "1000") == "spot"
        waits = forge("submit", *SMALL, "--spot", "never", "--max-price", "1000", ".", "--", "true")
        assert "no online worker can run it" in waits.stderr
        said = forge("explain").stdout
        assert "all that fit cost more than 1000 an hour: the cheapest costs 3600" in said
        assert "drop --spot: then spot" in said
        assert "request --max-price 3600 instead of 1000: then dear" in said
        forge("change", "5", "--max-price", "4000")
        made.succeeds(5)
        shown = forge("show", "5").stdout
        assert "spot machines: never, at most 4000 an hour" in shown
        assert float(shown.split("\ncost ")[1].split()[0]) > 0
