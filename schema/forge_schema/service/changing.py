"""Changes of jobs that wait: which fields can be changed, and how their new values are stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from psycopg.errors import ForeignKeyViolation
from psycopg.types.json import Jsonb

from forge_schema.model.errors import ForgeError, JobInvalid
from forge_schema.model.spec import KEYS, JobSpec
from forge_schema.model.states import State, in_state, in_words
from forge_schema.queue.submission import Submission
from forge_schema.read.jobs import JobStory
from forge_schema.service.submitting import checked, merged

if TYPE_CHECKING:
    from forge_schema.database.pool import Database

CHANGEABLE = [key.field for key in KEYS.values() if key.changes and not key.table]
# A job that moves, or that another caller changes, is read again.
LOOKS = 20
COLUMNS = ("max_failures", "max_losses", "max_preemptions", "backoff_s", "timeout_s")


class NotChangeable(ForgeError):
    """The job does not wait, or the change needs an approval that it cannot wait for."""


class Change:
    """Changes of one job, which the caller may change.

    Args:
        job_id: the job.
        fields: the new values, as in a request; tables are merged, all else is replaced.

    Raises:
        JobInvalid: a field cannot be changed.
    """

    def __init__(
        self, database: Database, actor: str, job_id: int, fields: Mapping[str, Any]
    ) -> None:
        self._database = database
        self._submission = Submission(database, actor, {})
        self._job_id = job_id
        self._fields = fields
        if wrong := [name for name in fields if name not in CHANGEABLE]:
            message = f"it cannot be changed; what can: {', '.join(CHANGEABLE)}"
            raise JobInvalid((), [{"loc": (wrong[0],), "msg": message, "type": "not_changeable"}])

    def make(self) -> None:
        """Make the changes, all or none. What is so already is left, so a repeat changes nothing.

        Raises:
            JobInvalid: the job with these values could not be submitted.
            NotChangeable: it does not wait.
        """
        for _ in range(LOOKS):
            try:
                if self._made():
                    return
            except ForeignKeyViolation:
                # Retention removed the lane since it was found.
                continue
            if (state := self._state()) is State.RUNNING or state.terminal:
                raise _too_late(self._job_id, state)
        raise NotChangeable(f"job {self._job_id} kept changing state", hint="try again")

    def _made(self) -> bool:
        version, fields = JobStory(self._database, self._job_id).asked_as()
        before = checked(JobSpec, fields, ())
        after = checked(JobSpec, merged(fields, self._fields), ())
        asked = [name for name in CHANGEABLE if name in self._fields]
        names = [name for name in asked if getattr(before, name) != getattr(after, name)]
        if not names:
            return True
        payload = after.payload()
        row = self._database.row(
            "change",
            again=True,
            job_id=self._job_id,
            version=version,
            actor=self._submission.actor,
            lane_id=self._submission.lane(after),
            nice=-after.priority,
            removed=names,
            added=Jsonb({name: payload[name] for name in names if name in payload}),
            detail=Jsonb(dict(_differences(before, after, names))),
            **{name: getattr(after, name) for name in COLUMNS},
        )
        if row is not None and row["asks"]:
            raise NotChangeable(
                f"job {self._job_id} has run before, and would need an approval to run on",
                hint=f"`forge cancel {self._job_id}`, then `forge rerun {self._job_id}` with the"
                " change: the new job waits for approval",
            )
        return row is not None

    def _state(self) -> State:
        row = self._database.row("job", again=True, job_id=self._job_id)
        return State.CANCELLED if row is None else State(row["state"])


def _too_late(job_id: int, state: State) -> NotChangeable:
    if state is State.RUNNING:
        word, hint = "is running", f"`forge cancel {job_id}` first, or let it end; then "
    else:
        word, hint = in_state(in_words(state)), ""
    return NotChangeable(
        f"job {job_id} {word}; only a job that waits can be changed",
        hint=f"{hint}`forge rerun {job_id}` with the change submits it again",
    )


def _differences(
    before: JobSpec, after: JobSpec, names: list[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names of what differs, those of tables without the table's, and both values."""
    documents = [spec.model_dump(mode="json", include={*names}) for spec in (before, after)]
    for name in names:
        old, new = (values[name] for values in documents)
        if isinstance(old, dict) or isinstance(new, dict):
            for part in dict.fromkeys([*(old or {}), *(new or {})]):
                values = [(each or {}).get(part) for each in (old, new)]
                if values[0] != values[1]:
                    yield part, dict(zip(("from", "to"), values, strict=True))
        else:
            yield name, {"from": old, "to": new}
