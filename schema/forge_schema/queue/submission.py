"""Submission: any number of jobs by one statement."""

from collections.abc import Hashable, Sequence
from time import time_ns
from typing import Any, TypeAlias
from uuid import uuid4

from psycopg.types.json import Jsonb
from pydantic_core import to_json

from forge_schema.database.pool import Database
from forge_schema.model.errors import ForgeError
from forge_schema.model.spec import JobSpec
from forge_schema.queue.inputs import Sources, from_params, not_uploaded

LaneIds: TypeAlias = dict[Hashable, int]
# The columns of `job` that are fields of the request.
COLUMNS = (
    *("owner", "name", "bundle_digest", "max_failures", "max_losses", "max_preemptions"),
    *("backoff_s", "timeout_s", "delay_s", "kind", "sweep"),
)


class IdempotencyConflict(ForgeError):
    """An idempotency key was used before, for another job."""

    code = "idempotency_conflict"


class Submission:
    """Submits jobs.

    Args:
        database: an open database.
        actor: the acting party, for the audit trail.
        lane_ids: the lanes found so far; it adds to them.
    """

    def __init__(self, database: Database, actor: str, lane_ids: LaneIds) -> None:
        self.database = database
        self.actor = actor
        self._lane_ids = lane_ids

    def submit(self, specs: Sequence[JobSpec], *, any_owner: bool) -> list[int]:
        """Submit jobs, as `Queue.submit` says."""
        jobs = self._rows(specs)
        _agree(jobs)
        row = self.database.one(
            "submit", again=True, jobs=to_json(jobs).decode(), actor=self.actor, any_owner=any_owner
        )
        assert row is not None  # noqa: S101 - the statement selects one row always
        if row["conflicts"]:
            raise _conflict(row["conflicts"][0])
        if row["sourceless"]:
            lacking = specs[row["ids"].index(row["sourceless"][0])]
            raise Sources(self.database).lack(lacking, any_owner=any_owner)
        if row["not_uploaded"]:
            raise not_uploaded(specs[row["ids"].index(row["not_uploaded"][0])])
        inserted = set(row["inserted"])
        return [
            i if i in inserted else self._submitted_before(job)
            for job, i in zip(jobs, row["ids"], strict=True)
        ]

    def _rows(self, specs: Sequence[JobSpec]) -> list[dict[str, Any]]:
        # A sweep may be one spec many times over.
        made = {id(spec): spec for spec in specs}
        rows = {place: self._row(spec) for place, spec in made.items()}
        keys = _fresh_keys(len(specs))
        return [
            {**rows[id(spec)], "idempotency_key": spec.idempotency_key or key}
            for spec, key in zip(specs, keys, strict=True)
        ]

    def _row(self, spec: JobSpec) -> dict[str, Any]:
        content = spec.content()
        return {
            **{name: getattr(spec, name) for name in COLUMNS},
            "lane_id": self._lane(spec),
            "nice": -spec.priority,
            "spec": spec.payload(content),
            "content_digest": spec.content_digest(content),
            **from_params(spec.from_checkpoint),
        }

    def _lane(self, spec: JobSpec) -> int:
        lane = spec.lane()
        if lane not in self._lane_ids:
            shape = spec.shape()
            params = {**shape, "labels": Jsonb(shape["labels"])}
            row = self.database.one(
                "ensure_lane", again=True, queue=spec.queue, owner=spec.owner, **params
            )
            assert row is not None  # noqa: S101 - an upsert returns its row
            self._lane_ids[lane] = row["id"]
        return self._lane_ids[lane]

    def _submitted_before(self, job: dict[str, Any]) -> int:
        key = job["idempotency_key"]
        row = self.database.one("submitted_before", again=True, owner=job["owner"], key=key)
        if row is None or row["content_digest"] != job["content_digest"]:
            raise _conflict(key)
        job_id: int = row["id"]
        return job_id


def _fresh_keys(count: int) -> list[str]:
    # In order of time, so that new keys share a page of the index instead of touching one each.
    stem = f"{time_ns() // 1_000_000:012x}{uuid4().hex[:20]}"
    return [f"auto:{stem}:{n}" for n in range(count)]


def _conflict(key: str) -> IdempotencyConflict:
    return IdempotencyConflict(
        f"the idempotency key {key!r} belongs to another job",
        hint="use another key, or submit exactly the same job again",
    )


def _agree(jobs: Sequence[dict[str, Any]]) -> None:
    """Reject two jobs of one batch with the same key but different content."""
    contents: dict[tuple[str, str], str] = {}
    for job in jobs:
        place = job["owner"], job["idempotency_key"]
        if contents.setdefault(place, job["content_digest"]) != job["content_digest"]:
            raise _conflict(job["idempotency_key"])
