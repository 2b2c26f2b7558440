"""The gateway over HTTP: the lease protocol for a worker that has only a URL and a token."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import TypedDict, TypeVar
from uuid import UUID

from forge_schema.database.pool import Row
from forge_schema.ending import storable
from forge_schema.model.attempt_records import ROWS, AttemptRecord
from forge_schema.model.lease import End, Ended, Fence, Gathering, Grant, Renewal, Usage
from forge_schema.model.states import Phase, Reason, Standing, WorkerStatus
from forge_schema.model.stored import InputCheckpoint, InputFile
from forge_schema.model.worker import Capacity, Machine
from forge_schema.protocol import messages
from forge_schema.protocol.answers import (
    ChosenCheckpoint,
    Claimed,
    Gathered,
    InputArtifacts,
    NewestCheckpoints,
    Nothing,
    Registered,
    Renewed,
    ReportAnswer,
    Restorable,
    ThinnedCount,
    Upcoming,
)
from forge_schema.protocol.messages import LEASES
from forge_schema.queue.thinning import GoOn
from forge_schema.storage import StoreUnreachable
from pydantic import BaseModel, JsonValue
from pydantic_core import to_json

from forge_worker.queue.gateway import Ask, Unanswered
from forge_worker.queue.http.session import LeaseUnknown, ServerRefused, Session

A = TypeVar("A", bound=BaseModel)

# A request's body is at most twice this size.
PIECE_BYTES = 1 << 20
MOST_JOBS = 100


class HttpGateway:
    """The gateway to forge-server; a lease that the server does not know is lost."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._boot_id = UUID(int=0)
        self._hinted = False
        self._unanswered = Unanswered()
        self._in_gangs = False
        self._warm: Sequence[int] = ()

    def register(self, machine: Machine) -> Registered:
        message = messages.Register(**asdict(machine))
        answer = self._session.post("/register", message, Registered)
        self._boot_id = machine.boot_id
        self._session.stores_small_objects = answer.small_objects
        self._in_gangs = machine.address is not None
        # After a longer pause, leases could not be renewed in time once the server is back.
        self._session.servers.within(answer.lease_ttl_s / 4)
        return answer

    def finish_and_claim(
        self, ends: Sequence[End], free: Capacity, count: int
    ) -> tuple[list[Ended], list[Grant]]:
        try:
            # A refused claim was not made: the name of one that may have been is kept.
            with self._unanswered.claim(count) as ask:
                ended, grants = self._exchange(ends, free, count, ask)
                if self._in_gangs and not grants:
                    self._unanswered.offers()
                return ended, grants
        except (LeaseUnknown, ServerRefused):
            if not ends:
                raise
            # One end may be to blame.
            return self.finish(ends), []

    def _exchange(
        self, ends: Sequence[End], free: Capacity, count: int, ask: Ask
    ) -> tuple[list[Ended], list[Grant]]:
        hinted, self._hinted = self._hinted, False
        claim = messages.Claim(
            boot_id=self._boot_id,
            ends=[messages.Finished(**asdict(end.fence), **_ending(end)) for end in ends],
            free=replace(free, cpus=max(free.cpus, 0.0)),
            count=min(count, MOST_JOBS),
            hinted=hinted,
            nonce=ask.nonce,
            repeated=ask.repeated or ask.offered,
            warm=list(self._warm),
        )
        try:
            # A claim is repeated by the next one, for what is free then.
            claimed = self._session.post("/claim", claim, Claimed, repeatable=count <= 0)
        except BaseException:
            self._hinted = self._hinted or hinted
            raise
        return claimed.ended, claimed.grants

    @contextmanager
    def granted_before(self) -> Iterator[list[Grant]]:
        if not self._unanswered.pending:
            yield []
            return
        with self._unanswered as ask:
            yield self._exchange([], Capacity(0, 0, 0), 0, ask)[1]

    def next_job(self, past: Sequence[int] = ()) -> Grant | None:
        wanted = messages.Next(boot_id=self._boot_id, past=list(past))
        return self._session.post("/next", wanted, Upcoming).grant

    def finish(self, ends: Sequence[End]) -> list[Ended]:
        return [self._finish(end) for end in ends]

    def _finish(self, end: End) -> Ended:
        ending = messages.Ending(**_ending(end))
        try:
            reported = self._of(
                end.fence, "status", messages.Status(**_held(end.fence), end=ending), ReportAnswer
            )
        except LeaseUnknown:
            return Ended(end.fence.job_id, accepted=False)
        assert reported.ended is not None  # noqa: S101 - an end is answered with what became of it
        return reported.ended

    def renew(
        self,
        leases: Sequence[Fence],
        status: WorkerStatus,
        condition: Mapping[str, object] | None = None,
    ) -> Renewal:
        state = {"boot_id": self._boot_id, "status": status, "condition": condition}
        standings: dict[Fence, Standing] = {}
        for first in range(0, max(len(leases), 1), LEASES):
            some = list(leases[first : first + LEASES])
            beat = messages.Heartbeat.model_validate({**state, "leases": some})
            renewed = self._session.post("/heartbeat", beat, Renewed, apart=True)
            standings |= {standing.fence(): standing.standing for standing in renewed.standings}
        return Renewal(
            standings, renewed.command, renewed.gangs_after_s, suspected=renewed.suspected
        )

    def report(
        self,
        fence: Fence,
        phase: Phase,
        devices: Sequence[str] | None = None,
        *,
        adopted: bool = False,
    ) -> Standing:
        listed = None if devices is None else list(devices)
        boot = self._boot_id if adopted else None
        body = messages.Status(**_held(fence), phase=phase, devices=listed, replaced_by=boot)
        try:
            return self._of(fence, "status", body, ReportAnswer).standing or Standing.OK
        except LeaseUnknown:
            return Standing.LOST

    def gather(self, fence: Fence, step: int, member: Mapping[str, JsonValue]) -> Gathering:
        body = messages.Gather.model_validate({**_held(fence), "step": step, "member": member})
        try:
            gathered = self._of(fence, "gather", body, Gathered)
        except LeaseUnknown:
            return Gathering(Standing.LOST)
        return Gathering(gathered.standing, gathered.members)

    def record(self, fence: Fence, record: AttemptRecord) -> bool:
        what, message = messages.RECORDS[type(record)]
        # All bodies are validated before the first is sent.
        bodies = [message.model_validate({**_held(fence), **part}) for part in _parts(record)]
        return all(self._kept(fence, what, body) for body in bodies)

    def newest_checkpoints(self, fence: Fence) -> Row | None:
        body = messages.Held(**_held(fence))
        try:
            newest = self._of(fence, "checkpoints/newest", body, NewestCheckpoints)
        except LeaseUnknown:
            return None
        return newest.model_dump()

    def latest_checkpoint(self, job_id: int) -> Row | None:
        newest = self._session.get(f"/job/{job_id}/checkpoint", Restorable).checkpoint
        return None if newest is None or newest.passed_over is not None else newest.model_dump()

    def restorable(self, job_id: int) -> list[Row]:
        answer = self._session.get(f"/job/{job_id}/checkpoint", Restorable)
        first = [] if answer.checkpoint is None else [answer.checkpoint]
        return [row.model_dump() for row in (*first, *answer.others)]

    def input_artifacts(
        self, fence: Fence, source_id: int, path: str, after: str
    ) -> list[InputFile]:
        body = messages.InputArtifactsWanted(
            **_held(fence), source_id=source_id, path=path, after=after
        )
        return self._of_input(fence, "artifacts", body, InputArtifacts).items

    def input_checkpoint(
        self, fence: Fence, source_id: int, attempt: int | None, number: int | None
    ) -> InputCheckpoint | None:
        body = messages.InputCheckpointWanted(
            **_held(fence), source_id=source_id, attempt=attempt, number=number
        )
        return self._of_input(fence, "checkpoint", body, ChosenCheckpoint).checkpoint

    def _of_input(self, fence: Fence, what: str, body: messages.Body, answer: type[A]) -> A:
        try:
            return self._of(fence, f"inputs/{what}", body, answer)
        except (LeaseUnknown, ServerRefused) as error:
            # Another server may have this path. If the lease is lost, its renewal ends the attempt.
            raise StoreUnreachable(f"the server lists no inputs: {error.message}") from error

    def thin_checkpoints(
        self,
        fence: Fence,
        keep: int,
        *,
        everywhere: bool,
        go_on: GoOn = lambda: True,  # noqa: ARG002 - the server does not ask
    ) -> int:
        body = messages.Thin(**_held(fence), keep=keep, everywhere=everywhere)
        path = f"/job/{fence.job_id}/checkpoints/thin"
        try:
            return self._session.post(path, body, ThinnedCount, counts=False).objects
        except LeaseUnknown:
            return 0

    def new_work(self) -> None:
        self._hinted = True

    def prefer(self, warm: Sequence[int]) -> None:
        self._warm = warm

    def is_awaited(self) -> bool:
        wanted = messages.Next(boot_id=self._boot_id, fresh=True)
        answer = self._session.post("/next", wanted, Upcoming)
        return answer.grant is not None or answer.drafted

    def disconnect(self, why: str = "") -> None:
        self._session.post("/disconnect", messages.Goodbye(boot_id=self._boot_id, why=why), Nothing)

    def _kept(self, fence: Fence, what: str, body: messages.Body) -> bool:
        try:
            self._of(fence, what, body, Nothing)
        except LeaseUnknown:
            return False
        return True

    def _of(self, fence: Fence, what: str, body: messages.Body, answer: type[A]) -> A:
        return self._session.post(f"/job/{fence.job_id}/{what}", body, answer)


class FenceInBody(TypedDict):
    """A fencing token in a request's body; the path names its job."""

    token: int
    nonce: UUID


class Reported(TypedDict):
    """An end in a request's body."""

    reason: Reason
    exit_code: int | None
    detail: str | None
    usage: Usage
    lasting: bool


def _ending(end: End) -> Reported:
    return {
        "reason": end.reason,
        "exit_code": end.exit_code,
        "detail": storable(end.detail),
        "usage": end.usage,
        "lasting": end.lasting,
    }


def _held(fence: Fence) -> FenceInBody:
    return {"token": fence.token, "nonce": fence.nonce}


def _parts(record: AttemptRecord) -> Iterator[dict[str, object]]:
    """Yield a record's fields; those of one with very many rows in parts."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    rows = next((name for name, value in values.items() if isinstance(value, list)), None)
    if rows is None:
        yield values
        return
    for piece in _pieces(values[rows]):
        yield {**values, rows: piece}


def _pieces(rows: list[object]) -> Iterator[list[object]]:
    """Split a list so that each piece fits in a request."""
    piece: list[object] = []
    size = 0
    for row in rows:
        bytes_more = len(to_json(row))
        if piece and (size + bytes_more > PIECE_BYTES or len(piece) == ROWS):
            yield piece
            piece, size = [], 0
        piece.append(row)
        size += bytes_more
    if piece:
        yield piece
