"""Example jobs for a site: one in each state, so that every page has content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from browser.site import Teller
from forge_schema.schedules.schedules import Schedules
from support.waiting import eventually

if TYPE_CHECKING:
    from browser.site import Site

# More than there is.
HUGE = {"resources": {"cpus": 0.5, "memory_mb": 256, "disk_mb": 500, "gpus": 8}}


@dataclass
class Scene:
    """What can be looked at: ids of jobs by what became of them, and of a worker."""

    site: Site
    worker: int
    jobs: dict[str, int]

    @property
    def pages(self) -> list[str]:
        """The address of every page."""
        jobs = [f"/jobs/{job}" for job in self.jobs.values()]
        return [
            "/",
            "/jobs",
            "/jobs?q=state:sleeping",
            f"/jobs/confirm?act=cancel&job={self.jobs['waiting']}&job={self.jobs['running']}",
            *jobs,
            "/jobs/99999",
            "/submit",
            "/workers",
            "/workers/new",
            f"/workers/{self.worker}",
            "/queues",
            "/schedules",
            "/reports",
            "/reports/failures",
            "/events",
        ]


def small_life(site: Site, teller: Teller) -> Scene:
    """Have a job end well, one badly, one run until `teller` ends it, and one wait for ever."""
    bed = site.bed
    worker = bed.make()
    bed.worker()
    ends = {
        "succeeded": bed.submit(bed.python, "-c", "print('well')", name="resnet-50"),
        "failed": bed.submit(bed.python, "-c", "raise SystemExit(3)", name="vit-large"),
    }
    waiting = waits(site, name="llama-7b")
    running = bed.submit(*teller.command(bed.python), name="digits")
    teller.say("epoch 1 loss 0.71")
    for job in ends.values():
        bed.ended(job)
    eventually(lambda: b"epoch 1" in bed.log(running))
    keep_schedules(site, last=ends["failed"])
    return Scene(site, worker, {**ends, "waiting": waiting, "running": running})


def keep_schedules(site: Site, *, last: int) -> None:
    """Keep a schedule that has submitted a job, one that could not, and one that is paused."""
    database, spec = site.bed.database, {"name": "eval", "command": ["true"]}
    kept = Schedules(database, owner="ann", actor="user:ann")
    for name, cron, timezone in (
        ("nightly-evaluation", "0 3 * * 1-5", "Europe/Berlin"),
        ("hourly", "*/15 8-18 * * 1-5", "America/Argentina/Buenos_Aires"),
        ("weekly", "0 6 * * 0", "UTC"),
    ):
        kept.keep(name, cron, spec, timezone=timezone, overlap=name != "hourly")
    kept.pause("weekly", paused=True)
    with database.connection() as connection:
        connection.execute(
            "UPDATE schedule SET last_due_at = next_at - interval '1 day', last_job_id = %s,"
            " error = CASE WHEN NOT overlap THEN %s END WHERE NOT paused",
            [last, f"skipped: job {last} had not ended (--no-overlap)"],
        )


def waits(site: Site, **fields: Any) -> int:  # noqa: ANN401  fields of all types
    """Submit a job that no worker here can run."""
    return site.bed.submit("true", **{**HUGE, **fields})
