"""Example jobs for a site: one in each state, so that every page has content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from browser.site import Teller
from forge_schema.model.admin import TeamChanges
from forge_schema.model.notifications import NotificationRequest
from forge_schema.notifications.rules import Notifications
from forge_schema.queue.cancel_retry import JobActs
from forge_schema.queue.limits import Limits
from forge_schema.schedules import Schedules
from support.waiting import eventually

if TYPE_CHECKING:
    from browser.site import Site

MESSAGES = """
INSERT INTO delivery (notification_id, event, subject, at, state, tries, next_at, settled_at, error)
SELECT
    n.id, CASE WHEN n.name = 'ann' THEN 'test' ELSE 'failed' END, %(failed)s,
    forge_now() - age * interval '90 seconds', said.state, said.tries,
    forge_now() + interval '1 hour',
    CASE WHEN said.state <> 'waiting' THEN forge_now() END, said.error
FROM (VALUES
    ('on-call', 1, 'sent', 1, NULL),
    ('ann', 2, 'sent', 2, NULL),
    ('pipeline', 3, 'waiting', 3, 'the receiver answered 503'),
    ('pipeline', 4, 'failed', 8, 'ci.example: the name could not be resolved within 10 s')
) AS said (name, age, state, tries, error)
JOIN notification AS n USING (name)
"""
# With names that do not break, as others here have.
REPORTS = """
import json, os
open(os.environ["FORGE_RESULT_FILE"], "w").write(json.dumps({"accuracy" * 9: 0.5}))
"""
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
            "/teams?owner=ann",
            "/teams/vision",
            "/schedules",
            "/notifications",
            "/inputs",
            "/runs",
            f"/compare?job={self.jobs['succeeded']}&job={self.jobs['failed']}",
            "/keys",
            "/reports",
            "/reports/failures",
            "/events",
        ]


def small_life(site: Site, teller: Teller) -> Scene:
    """Have a job end well, one badly, one run until `teller` ends it, and one wait for ever."""
    bed = site.bed
    Limits(bed.database, actor="user:root").set_team("vision", TeamChanges(join=["ann"]))
    worker = bed.make()
    bed.worker()
    ends = {
        "succeeded": bed.script(REPORTS, name="resnet-" + "50" * 28),
        # Its command is one that scrolls.
        "failed": bed.submit(
            bed.python, "-c", "raise SystemExit(3)", *["--rate=0.001"] * 40, name="vit-large"
        ),
    }
    waiting = waits(site, name="llama-" + "7b" * 29, queue="q" * 64, owner="o" * 64)
    running = bed.submit(*teller.command(bed.python), name="digits")
    teller.say("epoch 1 loss 0.71")
    for job in ends.values():
        bed.ended(job)
    eventually(lambda: b"epoch 1" in bed.log(running))
    kept = JobActs(bed.database, owner=None, actor="user:ann")
    kept.annotate(
        [ends["succeeded"]],
        note="the baseline for the paper\nseeds 1 to 3",
        add=["paper", "figure-2"],
        remove=[],
        archived=None,
    )
    keep_schedules(site, last=ends["failed"])
    keep_notifications(site, failed=ends["failed"])
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


def keep_notifications(site: Site, *, failed: int) -> None:
    """Keep notifications that have sent messages, have some waiting, and gave some up."""
    database = site.bed.database
    kept = Notifications(database, owner="ann", scope=["ann"], actor="user:ann")
    for name, kind, target, query, events in (
        ("on-call", "slack", "https://hooks.example/T0/B0/x", "", ["failed", "worker_offline"]),
        ("pipeline", "webhook", "https://ci.example/forge", "experiment:resnet* queue:gpu", None),
        ("ann", "email", "ann@research.example", "", ["succeeded", "cancelled"]),
    ):
        wanted = {"kind": kind, "target": target, "query": query, "events": events or ["failed"]}
        kept.keep(name, NotificationRequest.model_validate(wanted), server=None)
    with database.connection() as connection:
        connection.execute(MESSAGES, {"failed": failed})
        connection.execute(
            "UPDATE notification SET paused_until = forge_now() + interval '1 hour', error ="
            " 'the receiver answered 503' WHERE name = 'pipeline'"
        )


def waits(site: Site, **fields: Any) -> int:  # noqa: ANN401  fields of all types
    """Submit a job that no worker here can run."""
    return site.bed.submit("true", **{**HUGE, **fields})
