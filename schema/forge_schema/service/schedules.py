"""The verbs about schedules. They import cron expressions and the model of a job when called."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from forge_schema.model.errors import JobInvalid
from forge_schema.model.fields import Flag, Moment, Word
from forge_schema.model.job import OWN, JobNamed, Schedule
from forge_schema.service.parameters import Owner, Paused
from forge_schema.service.submitting import Fields, Submitting, checked
from forge_schema.service.verb import SUBMITTER, Sent, verb

if TYPE_CHECKING:
    from forge_schema.model.spec import JobSpec
    from forge_schema.schedules import Schedules
    from forge_schema.service.job_requests import ScheduledJob

# It is part of its jobs' idempotency keys.
ScheduleName = Annotated[Word, Field(max_length=100)]
Cron = Annotated[
    Word,
    Field(
        description="minute, hour, day of the month, month and day of the week",
        examples=["0 3 * * 1-5"],
    ),
]
Timezone = Annotated[Word, Field(description="as in Europe/Berlin", examples=["Europe/Berlin"])]
SCHEDULE = "/queue/schedules/{name:path}"


class Naming(BaseModel):
    """What a person writes about a schedule."""

    model_config = ConfigDict(defer_build=True)

    name: ScheduleName
    cron: Word
    timezone: Word


class Scheduling(Submitting):
    """Keeps schedules; the owner is the caller unless an admin names another."""

    @verb("GET", "/queue/schedules", tag="schedules")
    def schedules(self, *, owner: Owner = None) -> list[Schedule]:
        """Return the schedules of an owner, or all that the caller may see, by name."""
        from forge_schema.schedules import listed

        whose = None if owner is None else self._whose(owner, reading=True)
        return listed(self._database, self.caller.within(whose))

    @verb("GET", SCHEDULE, errors=(404,), tag="schedules")
    def schedule(self, name: ScheduleName, *, owner: Owner = None) -> Schedule:
        """Return a schedule: its next three times, its last job and its last error."""
        return self._schedules(owner, reading=True).get(name)

    @verb("POST", "/queue/check-schedule", SUBMITTER, tag="schedules", names_fields="job")
    def check_schedule(self, name: ScheduleName, cron: Cron, *, timezone: Timezone = "UTC") -> None:
        """Refuse a name and times that no schedule can have. Nothing is stored."""
        from forge_schema.schedules import first_time

        checked(Naming, {"name": name, "cron": cron, "timezone": timezone}, ())
        first_time(self._database, cron, timezone)

    @verb("PUT", SCHEDULE, SUBMITTER, errors=(404,), tag="schedules", names_fields="job")
    def keep_schedule(
        self,
        name: ScheduleName,
        cron: Cron,
        spec: Annotated[Fields, Sent(kind=ScheduledJob)],
        *,
        timezone: Timezone = "UTC",
        overlap: Flag = True,
        owner: Owner = None,
    ) -> Schedule:
        """Have a job submitted at each time of a cron expression, in place of any schedule before.

        The schedule is not paused. Without `overlap`, the job never runs twice at once.

        Args:
            name: the schedule's name.
            cron: minute, hour, day of the month, month and day of the week.
            spec: the fields of the job, merged over those of its `config_name` now, once and for
                all. It may wait only for its owner's jobs, and start only from their checkpoints.
            timezone: the time zone of the cron expression.
            overlap: whether to submit a job even if the last one is unfinished.
            owner: the owner of the schedule and its jobs.

        Raises:
            CronInvalid: the expression is wrong or never falls due.
            TimezoneUnknown: there is no such time zone.
            JobInvalid: the job or the name is invalid.
            JobUnknown: it waits for an unknown job, or starts from one's checkpoint.
            NotUploaded: the owner has not uploaded what the job names.
        """
        schedules = self._schedules(owner)
        checked(Naming, {"name": name, "cron": cron, "timezone": timezone}, ())
        self._check_room("schedule", name, owner, spec)
        job = self._job(spec, self._whose(owner))
        return schedules.keep(name, cron, _stored(job), timezone=timezone, overlap=overlap)

    @verb("PATCH", SCHEDULE, SUBMITTER, errors=(404,), tag="schedules")
    def pause_schedule(
        self, name: ScheduleName, *, paused: Paused = True, owner: Owner = None
    ) -> None:
        """Pause a schedule, or resume it. Times that passed while it was paused are left out."""
        self._schedules(owner).pause(name, paused=paused)

    @verb(
        "POST", "/queue/run-schedule/{name:path}", SUBMITTER, answer=JobNamed, errors=(404, 409),
        tag="schedules", bare=True,
    )  # fmt: skip
    def run_schedule(
        self, name: ScheduleName, *, at: Moment | None = None, owner: Owner = None
    ) -> int:
        """Submit a schedule's job now, also while it is paused, and return the job's id.

        Its times stay. A repeat with the same `at` returns the same job.

        Args:
            name: the schedule's name.
            at: names this run, to the second; by default, now.
            owner: the schedule's owner.

        Raises:
            NoSuchSchedule: there is none with this name.
            StillRunning: its last job has not ended, and it may not overlap.
            JobUnknown: it starts from the checkpoint of a job that is gone.
            NotUploaded: what it needs is no longer stored.
        """
        return self._schedules(owner).run(name, at or datetime.now(UTC), self._lane_ids)

    @verb("DELETE", SCHEDULE, SUBMITTER, again=False, errors=(404,), tag="schedules")
    def remove_schedule(self, name: ScheduleName, *, owner: Owner = None) -> None:
        """Remove a schedule. The jobs that it has submitted stay."""
        self._schedules(owner).remove(name)

    def _job(self, spec: Fields, owner: str) -> JobSpec:
        from forge_schema.queue.inputs import Sources, check_needs

        if taken := [field for field in OWN if field in spec]:
            message = "leave it out: the schedule sets it"
            fault = {"loc": (taken[0],), "msg": message, "type": "not_in_schedule"}
            raise JobInvalid(("spec",), [fault])
        job = self._whole({**spec, "owner": owner}, ("spec",))
        check_needs(self._database, job, any_owner=False)
        Sources(self._database).check(job, any_owner=False)
        self._uploads.share(job)
        return job

    def _schedules(self, owner: str | None, *, reading: bool = False) -> Schedules:
        from forge_schema.schedules import Schedules

        whose = self._whose(owner, reading=reading)
        return Schedules(self._database, owner=whose, actor=self.caller.actor)

    def _whose(self, owner: str | None, *, reading: bool = False) -> str:
        return self.caller.acting_for(owner, "read or change the schedules", reading=reading)


def _stored(job: JobSpec) -> dict[str, Any]:
    # What was left out stays left out: it has its default, or a share of the worker.
    return job.model_dump(mode="json", exclude_unset=True, exclude=set(OWN))
