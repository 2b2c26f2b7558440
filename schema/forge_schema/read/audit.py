"""Read the audit trail, which every action writes with its own transaction."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Self

from psycopg.types.json import Jsonb

from forge_schema.database.pool import Database, DatabaseUser, Row, run
from forge_schema.model.reading import LARGEST

PAGE = 1000
LAST_DAY = timedelta(days=1)
FIRST_WINDOW = timedelta(hours=1)
LAST = datetime.max.replace(tzinfo=UTC)
# What the trail records, as the documentation explains it.
ACTIONS: Mapping[str, str] = {
    # Jobs
    "submitted": "A job was submitted.",
    "dispatched": "An attempt began on a worker; `detail` has its number and its rank.",
    "ended": "An attempt ended; `detail` has its reason and exit code.",
    "promoted": "A delayed or retried job was queued.",
    "released": "A held job was queued.",
    "asked for approval": "A job exceeds what its owner may spend without approval.",
    "approved": "An admin approved a job.",
    "dependency failed": "A job was cancelled because one that it waits for failed.",
    "retried": "A failed or cancelled job was queued again, with all its retries.",
    "changed": "A waiting job was changed; `detail` has the old and the new values.",
    "annotated": "The note or the tags of a job were changed, or it was archived or brought back.",
    "deleted": "An ended job was deleted with all that it stored.",
    "asked to cancel": "A running job was asked to end.",
    "asked to preempt": "A running job was asked to leave its worker and resume elsewhere.",
    "displaced": "A running job was asked to leave for one of a higher priority, or whose GPUs are"
    " guaranteed, which `detail` names.",
    "asked to time out": "A running job reached its time limit.",
    "asked to grow": "A job on several machines was asked to restart on more of them.",
    "inputs given": "An attempt began with inputs. `detail` has each one's version and digest.",
    "agent replaced": "A worker's agent was restarted during a job. `detail` names the worker and"
    " the job's phase.",
    "cancelled": "A job that was not running was cancelled.",
    "entered": "A user opened a shell, ssh or ports of a running job.",
    "set aside": "The sweeper left a damaged row alone; `detail` has the error.",
    "sweep parallel set": "The number of jobs of a sweep that run at once was changed.",
    "jobs removed": "Jobs past their age were removed, with everything they stored.",
    "refused": "A known caller was refused an act; `detail` has its method, path and status.",
    "restored": "The queue was restored from a backup; `detail` has its name.",
    # Workers
    "worker_created": "An admin created a worker and its token.",
    "token_rotated": "A worker got a new token.",
    "joined": "A machine exchanged the token of its line for a token of its own.",
    "worker_deleted": "A worker was deleted.",
    "registered": "A worker connected for the first time since it started.",
    "registration_refused": "A worker was refused; `detail` says why.",
    "status_changed": "A worker's status changed; `detail` has the old and the new one.",
    "disconnected": "A worker disconnected; `detail` says why if it left by itself.",
    "offline": "A worker was silent for too long.",
    "suspected": "A worker rests: jobs failed on it and succeeded elsewhere; `detail` says more.",
    "trusted": "A suspected worker ran a job with success.",
    "reaped": "An ephemeral worker, or one that never connected, was removed.",
    "drain": "A worker was asked to take no new jobs.",
    "stop": "A worker was asked to stop.",
    "undrain": "A worker may take jobs again.",
    # Queues, owners, plans
    "queue set": "A queue was paused or resumed, or its limits were changed.",
    "queue removed": "A queue that no job was in was removed.",
    "owner quota set": "The limits, weight, approvals or budget of an owner were changed.",
    "team set": "Owners joined or left a team.",
    "team removed": "A team was removed.",
    "budget spent": "What an owner may use in a month is used up.",
    "budget renewed": "An owner has a budget again, in a new month or by an admin.",
    "input_kept": "The source of an input was registered. `detail` has its name and the source.",
    "input_removed": "A registered input was removed.",
    "template_kept": "A template was saved.",
    "template_removed": "A template was removed.",
    "schedule_kept": "A schedule was saved.",
    "schedule_paused": "A schedule was paused.",
    "schedule_resumed": "A schedule was resumed.",
    "schedule_removed": "A schedule was removed.",
    "notification_kept": "A notification was saved.",
    "notification_paused": "A notification was paused: its maker may not see the jobs any more.",
    "notification_resumed": "A notification was resumed: its maker may see the jobs again.",
    "notification_removed": "A notification was removed.",
    "notifier_set": "The mail server, its sender or the reach of notifications was changed.",
    # Access
    "key_created": "An API key was created.",
    "key_rotated": "An API key got a new secret.",
    "invitation_accepted": "An invited person replaced the secret of the invitation.",
    "key_revoked": "An API key was revoked.",
    "login": "A user logged in to the dashboard.",
    "login_refused": "A login to the dashboard was refused.",
    "logout": "A user logged out.",
}

TRAIL_PAGE = 100
# Maximum number of actions examined for one page.
REACH = 5000


class Audit(DatabaseUser):
    """Reads the trail, and records attempts that were refused and so changed nothing."""

    def note(
        self,
        actor: str,
        action: str,
        detail: dict[str, object],
        *,
        worker_id: int | None = None,
        job_id: int | None = None,
    ) -> None:
        """Record an action that changed no row. A retry after a lost answer may appear twice."""
        params = {"actor": actor, "action": action, "worker_id": worker_id, "job_id": job_id}
        self._database.row("note", again=True, detail=Jsonb(detail), **params)

    def events(
        self,
        *,
        after: datetime | None = None,
        since: timedelta = LAST_DAY,
        job_id: int | None = None,
        worker_id: int | None = None,
        actor: str | None = None,
        action: str | None = None,
        count: int = PAGE,
    ) -> list[Row]:
        """Return a page of the trail, oldest first, including starts and ends of attempts.

        Args:
            after: the time of the last event seen; None begins at `since`.
            since: how long ago to begin.
            job_id: only events about this job.
            worker_id: only events about this worker.
            actor: only actions of this actor, such as `user:ann` or `worker:7`.
            action: only actions of this kind.
            count: maximum number of events.
        """
        params: dict[str, object] = {
            "job_id": job_id,
            "worker_id": worker_id,
            "actor": actor,
            "action": action,
            "count": min(count, PAGE),
        }
        # Times are parameters, so that the planner sees them.
        with self._database.reporting() as connection:
            (health,) = run(connection, "health", {})
            began = after or health["now"] - since
            for until in _windows(began, health["now"], whole=job_id is not None):
                rows = run(connection, "audit", {**params, "after": began, "until": until})
                if len(rows) >= min(count, PAGE):
                    break
        return rows


def _windows(began: datetime, now: datetime, *, whole: bool) -> Iterator[datetime]:
    """Yield later and later bounds: a page of a long trail is filled near its beginning.

    The last bound is in the future, to include events that happen meanwhile.
    """
    window = FIRST_WINDOW
    while not whole and now - began > window:
        yield began + window
        window *= 8
    yield LAST


class AuditPlace(NamedTuple):
    """Where a page begins: after this event, and after the submit of this job."""

    event: int = LARGEST
    job: int = LARGEST

    @classmethod
    def read(cls, text: str) -> Self:
        event, _, job = text.partition(".")
        return cls(int(event), int(job))

    def __str__(self) -> str:
        return f"{self.event}.{self.job}"

    def after(self, acts: Iterable[Row]) -> "AuditPlace":
        """Return the place after these actions, which follow this one."""
        place = self
        for act in acts:
            if act["submitted"] is None:
                place = place._replace(event=act["id"])
            else:
                place = place._replace(job=act["submitted"])
        return place


NEWEST = AuditPlace()


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """A filter of actions: parts of who acted and of what was done, a job, a worker."""

    actor: str | None = None
    action: str | None = None
    job_id: int | None = None
    worker_id: int | None = None
    before: AuditPlace = NEWEST


@dataclass(frozen=True, slots=True)
class Page:
    """A page of actions; `before` is where the next page begins, None if this is the last.

    `reached` is how far back the search went, if its limit ended the page.
    """

    acts: list[Row]
    before: AuditPlace | None
    reached: datetime | None = None


def page(database: Database, wanted: AuditFilter, *, count: int = 50) -> Page:
    """Return up to `count` of the newest matching actions before a given one."""
    count = min(count, TRAIL_PAGE)
    params = {
        "actor": wanted.actor,
        "action": wanted.action,
        "worker_id": wanted.worker_id,
        "before": wanted.before.event,
        "before_job": wanted.before.job,
        "count": count + 1,
    }
    if wanted.job_id is not None:
        rows = database.rows("page_job_trail", again=True, job_id=wanted.job_id, **params)
    else:
        rows = database.rows("page_trail", again=True, reach=REACH, **params)
    return _page(rows, wanted.before, count)


def _page(rows: list[Row], before: AuditPlace, count: int) -> Page:
    acts = [row for row in rows if row["action"] is not None]
    if len(acts) > count:
        return Page(acts[:count], before.after(acts[:count]))
    if rows and rows[0]["looked"] >= REACH:
        return Page(
            acts, AuditPlace(rows[0]["reached"], rows[0]["reached_job"]), rows[0]["reached_at"]
        )
    return Page(acts, None)


def names_of(database: Database, acts: Iterable[Row]) -> dict[tuple[str, str], str]:
    """Return the owners of the keys, and the names of the workers and jobs, that actions name.

    Their keys are words as in actors, `("worker", "7")`.
    """
    listed = list(acts)
    actors = [act["actor"].partition(":") for act in listed]
    keys = {name for kind, _, name in actors if kind == "key"}
    keys |= {str(act["detail"]["key"]) for act in listed if "key" in (act["detail"] or {})}
    workers = {act["worker_id"] for act in listed if act.get("worker_id")}
    workers |= {int(name) for kind, _, name in actors if kind == "worker" and name.isdecimal()}
    jobs = {act["job_id"] for act in listed if act.get("job_id")}
    params = {"keys": sorted(keys), "workers": sorted(workers), "jobs": sorted(jobs)}
    rows = database.rows("trail_names", again=True, **params)
    return {(row["kind"], row["id"]): row["name"] for row in rows}
