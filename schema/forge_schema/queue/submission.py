"""Submission: any number of jobs by one statement."""

from base64 import b32hexencode
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import urandom
from time import sleep, time_ns
from typing import Any, TypeAlias

from psycopg.errors import ForeignKeyViolation, UniqueViolation
from psycopg.types.json import Jsonb
from pydantic_core import to_json

from forge_schema.database.pool import Connection, Database, Row, run
from forge_schema.model.job import IdempotencyConflict, job_unknown
from forge_schema.model.spec import JobSpec
from forge_schema.queue.alike import COLUMNS, NO_DIGEST, OWN, Alike, is_plain, new_key
from forge_schema.queue.inputs import Sources, check_inputs, from_params, not_uploaded

LaneIds: TypeAlias = dict[Hashable, int]
# An owner, and what one of its requests does not share with those around it.
Request: TypeAlias = tuple[str, dict[str, Any]]
# Retention may remove a lane again before it is used.
TRIES = 5
PAUSE_S = 0.05
# A job's owner, key and digest.
Job: TypeAlias = tuple[str, str, str]


class Rehearsal(Database):
    """Runs statements on one connection, in a transaction of which nothing stays.

    Args:
        connection: is within that transaction.
    """

    def __init__(self, connection: Connection) -> None:
        self._only = connection

    def rows(self, name: str, /, *, again: bool = False, **params: object) -> list[Row]:  # noqa: ARG002 - as its base
        """Run a statement and return its rows."""
        return run(self._only, name, params)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Lend the connection."""
        with self._only.transaction():
            yield self._only


class Submission:
    """Submits jobs.

    Args:
        lane_ids: the lanes found so far; it adds to them.
        rehearsed_id: the id of a single job of which nothing will stay.
    """

    def __init__(
        self,
        database: Database,
        actor: str,
        lane_ids: LaneIds,
        *,
        rehearsed_id: int | None = None,
    ) -> None:
        self.database = database
        self.actor = actor
        self._lane_ids = lane_ids
        self._rehearsed_id = rehearsed_id
        self._alike: Alike | None = None

    def submit(self, specs: Sequence[JobSpec], *, any_owner: bool) -> list[int]:
        """Submit jobs, as `Queue.submit` says."""
        alike = self._find_alike(specs)
        if alike is None or alike.has_inputs:
            check_inputs(self.database, specs)
        for _ in range(TRIES - 1):
            try:
                return self._submit(specs, alike, any_owner=any_owner)
            except ForeignKeyViolation:
                # A lane was removed since it was found, or just now a job that one waits for.
                self._lane_ids.clear()
                sleep(PAUSE_S)
        return self._submit(specs, alike, any_owner=any_owner)

    def _submit(
        self, specs: Sequence[JobSpec], alike: Alike | None, *, any_owner: bool
    ) -> list[int]:
        stem = _stem()
        if alike and (new := self._submit_alike(alike, specs, stem)):
            return new
        groups = self._groups(specs)
        requests = [(group["owner"], request) for group in groups for request in group["requests"]]
        for place, (_, request) in enumerate(requests):
            request["place"] = place
            request["idempotency_key"] = request["asked_key"] or new_key(stem, place)
        _agree(requests)
        row = self.database.row(
            "submit",
            again=True,
            groups=to_json(groups).decode(),
            actor=self.actor,
            any_owner=any_owner,
            rehearsed_id=self._rehearsed_id,
        )
        assert row is not None  # noqa: S101 - the statement selects one row always
        if row["conflicts"]:
            raise _conflict(row["conflicts"][0])
        if row["unknown_job"] is not None:
            raise job_unknown(row["unknown_job"])
        if row["sourceless"]:
            lacking = specs[row["sourceless"][0]]
            raise Sources(self.database).lack(lacking, any_owner=any_owner)
        if row["not_uploaded"]:
            raise not_uploaded(specs[row["not_uploaded"][0]])
        ids: list[int] = row["ids"]
        return ids if row["inserted"] == ids else self._with_those_before(row, requests)

    def _find_alike(self, specs: Sequence[JobSpec]) -> Alike | None:
        """Return what all jobs have in common; None if it is not enough for `submit_alike`."""
        # Many submit such jobs one by one. Other threads may submit others meanwhile.
        alike = self._alike
        if specs and alike is not None and alike.has(specs):
            return alike
        if self._rehearsed_id or not specs or not is_plain(specs[0]):
            return None
        alike = self._alike = Alike(specs[0])
        return alike if alike.has(specs[1:]) else None

    def _submit_alike(self, alike: Alike, specs: Sequence[JobSpec], stem: str) -> list[int]:
        """Submit jobs that are alike and return their ids; none if it is another case after all."""
        if (params := alike.params(specs, stem)) is None:
            return []
        params["lane_id"] = self._lane_ids.get(alike.lane) or self.lane(specs[0])
        params["actor"] = self.actor
        try:
            [row] = self.database.rows("submit_alike", again=True, **params)
        except UniqueViolation:
            return []
        ids: list[int] = row["ids"]
        return ids

    def _groups(self, specs: Sequence[JobSpec]) -> list[dict[str, Any]]:
        """Return the jobs in order: what several in a row share is said once."""
        groups: list[dict[str, Any]] = []
        common = None
        for spec in specs:
            content = spec.content()
            if common != (common := _common(spec, content)):
                groups.append({**self._group(spec, content), "requests": []})
            groups[-1]["requests"].append(_request(spec, content))
        return groups

    def _group(self, spec: JobSpec, content: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **{name: getattr(spec, name) for name in COLUMNS},
            "delay_s": spec.delay_s,
            "kind": spec.kind.value,
            "lane_id": self.lane(spec),
            "nice": -spec.priority,
            "shared": spec.shared(content),
            **from_params(spec.from_checkpoint),
        }

    def lane(self, spec: JobSpec) -> int:
        """Return the id of the lane of a job, which is made if there is none."""
        lane = spec.lane()
        if lane not in self._lane_ids:
            shape = spec.shape()
            params = {**shape, "labels": Jsonb(shape["labels"])}
            row = self.database.row(
                "ensure_lane", again=True, queue=spec.queue, owner=spec.owner, **params
            )
            assert row is not None  # noqa: S101 - an upsert returns its row
            self._lane_ids[lane] = row["id"]
        return self._lane_ids[lane]

    def _with_those_before(self, row: Mapping[str, Any], requests: Sequence[Request]) -> list[int]:
        """Return the ids of all jobs, where some keys were in use."""
        inserted = set(row["inserted"])
        jobs = [(owner, job["idempotency_key"], job["content_digest"]) for owner, job in requests]
        paired = list(zip(jobs, row["ids"], strict=True))
        before = self._submitted_before([job for job, i in paired if i not in inserted])
        return [i if i in inserted else before[job] for job, i in paired]

    def _submitted_before(self, jobs: Sequence[Job]) -> dict[Job, int]:
        owners, keys = [owner for owner, _, _ in jobs], [key for _, key, _ in jobs]
        rows = self.database.rows("submitted_before", again=True, owners=owners, keys=keys)
        ids = {(row["owner"], row["key"], row["content_digest"]): row["id"] for row in rows}
        for job in jobs:
            if job not in ids:
                raise _conflict(job[1])
        return ids


def _common(spec: JobSpec, content: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    # What is left out has its default; whether a default was asked for matters for retries.
    common = {name: value for name, value in content.items() if name not in OWN}
    return "max_failures" in spec.model_fields_set, common


def _request(spec: JobSpec, content: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": spec.name,
        "varied": spec.varied(content),
        "asked_key": spec.idempotency_key,
        "content_digest": spec.content_digest(content) if spec.idempotency_key else NO_DIGEST,
    }


def _stem() -> str:
    # In order of time, so that new keys share a page of the index instead of touching one each;
    # and short, since it stands in two places for each job.
    stem = (time_ns() // 1_000_000).to_bytes(6) + urandom(9)
    return f"auto:{b32hexencode(stem).decode()}:"


def _conflict(key: str) -> IdempotencyConflict:
    return IdempotencyConflict(
        f"the idempotency key {key!r} belongs to another job",
        hint="use another key, or submit exactly the same job again",
    )


def _agree(requests: Sequence[Request]) -> None:
    """Reject two jobs of one batch with the same key but different content."""
    contents: dict[tuple[str, str], str] = {}
    for owner, request in requests:
        if (key := request["asked_key"]) is not None:
            digest = contents.setdefault((owner, key), request["content_digest"])
            if digest != request["content_digest"]:
                raise _conflict(key)
