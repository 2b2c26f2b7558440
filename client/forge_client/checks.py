"""The findings of `forge doctor`, and the parts that the checks of both backends share."""

from collections.abc import Callable
from enum import StrEnum

from forge_schema.model.fields import Record
from forge_schema.model.worker import WorkerInfo

from forge_client.errors import ClientError

SILENT_S = 120.0


class CheckStanding(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(Record):
    """One finding of `forge doctor`."""

    name: str
    standing: CheckStanding
    detail: str
    hint: str = ""


def checked(name: str, look: Callable[[], Check]) -> list[Check]:
    """Return the finding of one check; an error is a finding too."""
    try:
        return [look()]
    except ClientError as error:
        return [failed(name, error)]


def failed(name: str, error: ClientError) -> Check:
    """Return an error as a finding."""
    return Check(name=name, standing=CheckStanding.FAIL, detail=error.message, hint=error.hint)


def workers_check(rows: list[WorkerInfo], hint: str) -> Check:
    """Check that a worker has reported lately; the hint says how to start one."""
    # One that an admin has added has no CPUs until it connects.
    heard = [
        row.name for row in rows if row.cpus and row.status != "offline" and row.silent_s < SILENT_S
    ]
    if heard:
        detail = f"{len(heard)} online: {', '.join(heard[:5])}"
        return Check(name="workers", standing=CheckStanding.OK, detail=detail)
    detail = "no worker has reported in the last two minutes"
    return Check(name="workers", standing=CheckStanding.WARN, detail=detail, hint=hint)
