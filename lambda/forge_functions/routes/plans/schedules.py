"""Schedules: jobs that are submitted at the times of a cron expression."""

from typing import Annotated

from fastapi import Path, Query
from forge_schema.model.fields import Flag, Word
from forge_schema.model.job import Schedule
from forge_schema.service.schedules import ScheduleName
from pydantic import Field

from forge_functions.auth.roles import AsSubmitter, AsViewer
from forge_functions.errors import problems
from forge_functions.items import Done, Items
from forge_functions.job_requests import ScheduledJob
from forge_functions.middleware.bodies import Body
from forge_functions.middleware.guarded_route import Router

router = Router(prefix="/api/v1/queue", tags=["schedules"], responses=problems(401, 403))
Name = Annotated[ScheduleName, Path()]
Owner = Annotated[Word | None, Query(description="the owner; only an admin may name another")]


class Times(Body):
    """The times of a schedule."""

    cron: Annotated[
        Word,
        Field(description="minute, hour, day of the month, month and day of the week"),
    ]
    timezone: Annotated[Word, Field(description="as in Europe/Berlin")] = "UTC"


class NamedTimes(Times):
    """The name and the times of a schedule."""

    name: ScheduleName


class NewSchedule(Times):
    """A job, and the times to submit it at. Without `overlap`, it never runs twice at once."""

    overlap: Flag = True
    spec: ScheduledJob

    model_config = Body.model_config | {
        "json_schema_extra": {
            "examples": [
                {
                    "cron": "0 3 * * 1-5",
                    "timezone": "Europe/Berlin",
                    "spec": {"name": "nightly", "command": ["make", "eval"]},
                }
            ]
        }
    }


class Change(Body):
    """Whether the schedule is paused."""

    paused: Flag


@router.get("/schedules")
def list_schedules(service: AsViewer, owner: Owner = None) -> Items[Schedule]:
    """List the schedules that the caller may see, by name."""
    return Items(items=service.schedules(owner=owner))


@router.get("/schedules/{name:path}", responses=problems(404))
def schedule(service: AsViewer, name: Name, owner: Owner = None) -> Schedule:
    """Return a schedule: its next three times, its last job and its last error."""
    return service.schedule(name, owner=owner)


@router.post("/check-schedule")
def check_schedule(service: AsSubmitter, times: NamedTimes) -> Done:
    """Refuse a name and times that `PUT` would refuse. Nothing is stored."""
    service.check_schedule(times.name, times.cron, timezone=times.timezone)
    return Done()


@router.put("/schedules/{name:path}", responses=problems(404))
def keep(service: AsSubmitter, name: Name, new: NewSchedule, owner: Owner = None) -> Schedule:
    """Store a schedule under a name, replacing any previous one. It is not paused."""
    return service.keep_schedule(
        name, new.cron, new.spec, timezone=new.timezone, overlap=new.overlap, owner=owner
    )


@router.patch("/schedules/{name:path}", responses=problems(404))
def pause(service: AsSubmitter, name: Name, change: Change, owner: Owner = None) -> Done:
    """Pause a schedule, or resume it. Times that passed while it was paused are left out."""
    service.pause_schedule(name, paused=change.paused, owner=owner)
    return Done()


@router.delete("/schedules/{name:path}", responses=problems(404))
def remove(service: AsSubmitter, name: Name, owner: Owner = None) -> Done:
    """Remove a schedule. The jobs that it has submitted stay."""
    service.remove_schedule(name, owner=owner)
    return Done()
