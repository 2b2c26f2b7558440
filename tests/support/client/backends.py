"""A backend without a database, with the jobs and logs that a test sets."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from forge_client.backend import Backend
from forge_schema.model.job import Attempt, JobDetail
from forge_schema.model.reading import BEGINNING, THE_END, Place
from forge_schema.model.stored import LogChunk
from forge_schema.model.worker import WorkerInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
PAGE = 2


def job(job_id: int = 1, state: str = "running", **changes: Any) -> JobDetail:  # noqa: ANN401  fields of all types
    """Make a job."""
    fields: dict[str, Any] = {
        "job_id": job_id, "name": "x", "owner": "ann", "queue": "default", "priority": 0,
        "state": state, "attempt": 1, "submitted_at": NOON, "spec": {}, "timeout_s": None,
        "max_failures": 3, "max_losses": 5, "max_preemptions": 50,
    }  # fmt: skip
    return JobDetail(**{**fields, **changes})


def ended(attempt: int, reason: str, **changes: Any) -> Attempt:  # noqa: ANN401  as above
    """Make a finished attempt."""
    fields: dict[str, Any] = {
        "attempt": attempt, "rank": 0, "token": attempt, "worker": "w1", "reason": reason,
        "exit_code": None, "detail": None, "ready_at": NOON, "claimed_at": NOON,
        "started_at": NOON, "finished_at": NOON,
        "waited_s": 1.0, "held_s": 2.0, "devices": [], "gpu_seconds": 0.0, "cost": None,
        "accepted": False,
    }  # fmt: skip
    return Attempt(**{**fields, **changes})


@dataclass(eq=False)
class FakeBackend:
    """Returns each of `states` in turn, and calls `look` whenever a job is read."""

    states: list[JobDetail] = field(default_factory=lambda: [job(state="succeeded")])
    pieces: list[tuple[LogChunk, bytes]] = field(default_factory=list)
    history: list[Attempt] = field(default_factory=list)
    look: Callable[[], None] = lambda: None
    asked: list[Sequence[int]] = field(default_factory=list)
    slowest_s: float = 0.5

    def as_backend(self) -> Backend:
        """Return the fake, typed as a real backend."""
        return cast("Backend", self)

    def write(
        self,
        data: bytes,
        *,
        token: int = 1,
        attempt: int = 1,
        rank: int = 0,
        at: datetime = NOON,
    ) -> None:
        """Append output as the next chunk of its token and rank."""
        before = [one for one, _ in self.pieces if (one.token, one.rank) == (token, rank)]
        chunk = LogChunk(
            token=token, rank=rank, number=len(before), attempt=attempt, key="k",
            start=sum(one.bytes for one in before), bytes=len(data), sha256="", created_at=at,
        )  # fmt: skip
        self.pieces.append((chunk, data))

    def job(self, _job_id: int) -> JobDetail:
        self.look()
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def statuses(self, job_ids: Sequence[int]) -> dict[int, JobDetail]:
        self.asked.append(job_ids)
        self.look()
        return {one.job_id: one for one in self.states if one.job_id in job_ids}

    def log_chunks(
        self,
        _job_id: int,
        *,
        after: Place = BEGINNING,
        **chosen: Any,  # noqa: ANN401  as above
    ) -> list[LogChunk]:
        return [one for one in self._chunks(**chosen) if one.place > after][:PAGE]

    def log_chunks_before(
        self,
        _job_id: int,
        *,
        before: Place = THE_END,
        **chosen: Any,  # noqa: ANN401  as above
    ) -> list[LogChunk]:
        found = [one for one in self._chunks(**chosen) if one.place < before]
        return found[::-1][:PAGE]

    def _chunks(
        self,
        attempt: int | None = None,
        rank: int | None = None,
        since: datetime | None = None,
    ) -> list[LogChunk]:
        chunks = sorted((chunk for chunk, _ in self.pieces), key=lambda chunk: chunk.place)
        return [
            one
            for one in chunks
            if attempt in (None, one.attempt)
            and rank in (None, one.rank)
            and (since is None or one.created_at >= since)
        ]

    def log_bytes(self, wanted: LogChunk) -> bytes:
        return next(data for chunk, data in self.pieces if chunk is wanted)

    def attempts(self, _job_id: int) -> list[Attempt]:
        return self.history

    def workers(self) -> list[WorkerInfo]:
        return []
