"""The outbox: takes the end of a job, stores it on disk, and reports it to the queue.

    Jobs._run_job ─► Outbox.deliver ─► Claims.exchange                reported, next job granted
                         └───────────► Spool ─► Outbox.step ─► gateway.finish     reported later

An end is reported together with a claim for the next job, in one round trip. The grants return to
the thread of the job that ended, which starts them. A separate delivery thread would cost each
short job a thread switch, and a leaving worker could not deliver once its claim loop has ended.
"""

import hashlib
import json
import os
import struct
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from threading import Event, Lock
from uuid import UUID

import structlog
from forge_schema.database.pool import DatabaseUnreachable, NotMigrated
from forge_schema.ending import storable
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import End, Ended, Fence, Usage
from forge_schema.model.states import Reason

from forge_worker.agent.claim_loop import Claims, EndNotTaken, Granted
from forge_worker.attempt import LiveAttempt
from forge_worker.clock import seconds
from forge_worker.files.small_files import sync_folder
from forge_worker.job_runs.parts import Patience
from forge_worker.loop import Loop
from forge_worker.queue.gateway import Gateway
from forge_worker.queue.http.session import ServerFailed, ServerRefused

FILE = "spool"
SLOT_BYTES = 32 << 10
HEAD = struct.Struct(">I32s")
# JSON may escape one byte as six.
DETAIL_BYTES = 4 << 10
MODE = 0o600

# The loop is also woken after each successful renewal.
PERIOD_S = 5.0
# How long to renew the lease of an end that the queue fails to process.
HELD_S = 3600.0
# How long a draining worker waits for a queue that does not answer.
LAST_S = 3600.0
LOOK_S = 0.5

log = structlog.get_logger(__name__)


class Spool:
    """Ends in their order of arrival. Thread-safe.

    Args:
        path: the file, created or extended if needed, never truncated.
        slots: the number of ends that it can hold.
    """

    def __init__(self, path: Path, slots: int) -> None:
        self._path = path
        self._lock = Lock()
        self._slots = _made(path, slots)
        self._kept = {slot: end for slot in range(self._slots) if (end := self._read(slot))}

    def put(self, end: End) -> bool:
        """Store an end; once this returns True, it survives a crash of the process or the machine.

        Raises:
            OSError: the disk is faulty.
        """
        with self._lock:
            free = next((n for n in range(self._slots) if n not in self._kept), None)
            if free is None:
                return False
            self._write(free, _packed(end))
            self._kept[free] = end
            return True

    def drop(self, end: End) -> None:
        """Remove an end. If it reappears after a restart, it is reported again, harmlessly."""
        with self._lock:
            for slot in [n for n, kept in self._kept.items() if kept.fence == end.fence]:
                del self._kept[slot]
                try:
                    self._write(slot, bytes(HEAD.size))
                except OSError as error:
                    log.warning("spool_slot_not_wiped", slot=slot, error=str(error))

    def ends(self) -> list[End]:
        with self._lock:
            return list(self._kept.values())

    def fences(self) -> list[Fence]:
        return [end.fence for end in self.ends()]

    def _write(self, slot: int, data: bytes) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(file, data, slot * SLOT_BYTES)
            os.fsync(file)
        finally:
            os.close(file)

    def _read(self, slot: int) -> End | None:
        with self._path.open("rb") as file:
            file.seek(slot * SLOT_BYTES)
            data = file.read(SLOT_BYTES)
        length, digest = HEAD.unpack_from(data)
        text = data[HEAD.size : HEAD.size + length]
        if not length:
            return None
        if hashlib.sha256(text).digest() != digest:
            log.warning("spool_slot_torn", slot=slot)
            return None
        return _end(text)


def left_in(folder: Path) -> Spool | None:
    """Return the spool of a worker's folder, if it contains ends."""
    path = folder / FILE
    spool = Spool(path, 0) if path.is_file() else None
    return spool if spool and spool.ends() else None


def _made(path: Path, slots: int) -> int:
    """Extend the file to its full length, and return the number of its slots."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
    try:
        there = os.fstat(file).st_size // SLOT_BYTES
        try:
            for slot in range(there, slots):
                # Written zeros allocate disk space; a hole would not.
                os.pwrite(file, bytes(SLOT_BYTES), slot * SLOT_BYTES)
                there = slot + 1
        except OSError as error:
            log.warning("spool_too_small", slots=there, error=str(error))
        os.fsync(file)
    finally:
        os.close(file)
    sync_folder(path.parent)
    return there


def _packed(end: End) -> bytes:
    detail = storable(end.detail)
    if detail is not None:
        detail = detail.encode()[:DETAIL_BYTES].decode(errors="ignore")
    kept = {
        **asdict(end.fence),
        "nonce": str(end.fence.nonce),
        "reason": end.reason.value,
        "exit_code": end.exit_code,
        "detail": detail,
        "usage": asdict(end.usage),
        "lasting": end.lasting,
    }
    text = json.dumps(kept, ensure_ascii=False).encode()
    return HEAD.pack(len(text), hashlib.sha256(text).digest()) + text


def _end(text: bytes) -> End | None:
    try:
        kept = json.loads(text)
        fence = Fence(int(kept["job_id"]), int(kept["token"]), UUID(kept["nonce"]))
        reason, usage = Reason(kept["reason"]), Usage(**kept["usage"])
        lasting = bool(kept.get("lasting"))
        return End(fence, reason, kept["exit_code"], kept["detail"], usage, lasting)
    except (ValueError, KeyError, TypeError) as error:
        log.warning("spooled_end_unreadable", note="another version wrote it", error=str(error))
        return None


class Outbox(Loop):
    """Delivers ends; those that cannot be reported now wait in the spool.

    Args:
        gateway: reports ends to the queue.
        spool: keeps ends on disk.
        claims: reports ends and claims in the same round trip; None if it only empties the spool.
        patience_s: how long to retry an end after failures other than the queue's own, if the
            spool is full.
        clock: returns seconds.
    """

    name = "deliver"

    def __init__(
        self,
        gateway: Gateway,
        spool: Spool,
        claims: Claims | None = None,
        *,
        patience_s: float = 0.0,
        clock: Callable[[], float] = seconds,
    ) -> None:
        super().__init__(PERIOD_S)
        self._gateway = gateway
        self._claims = claims
        self._patience_s = patience_s
        self._clock = clock
        # When the queue, although it answers, first failed to process an end.
        self._failing: dict[Fence, float] = {}
        self.spool = spool

    def deliver(self, attempt: LiveAttempt, end: End, *, frees: bool = True) -> list[Granted]:
        """Report an end, or store it in the spool. Idempotent.

        `frees` tells whether the job's resources are free.

        Returns:
            The jobs granted in the same round trip, for the caller to start.
        """
        assert self._claims is not None  # noqa: S101 - only a worker that claims has ends
        granted: list[Granted] = []
        try:
            ended, granted = self._claims.exchange(end, frees=frees)
        except ServerRefused as error:
            _log_refusal(end, error)
        except Exception as error:
            if not isinstance(error, DatabaseUnreachable):
                log.exception("end_not_taken", job=end.fence.job_id)
            if self.keep(end):
                log.warning("end_spooled", job=end.fence.job_id, error=str(error))
                if isinstance(error, EndNotTaken):
                    self.wake()
            else:
                self._insist(attempt, end)
        else:
            _log_answer(end, ended)
        return granted

    def _insist(self, attempt: LiveAttempt, end: End) -> None:
        """Retry until the queue answers. The attempt holds its resources meanwhile."""
        try:
            ended = Patience(attempt, self._patience_s)(partial(self._finish, end))
        except ForgeError as error:
            _log_refusal(end, error)
        else:
            _log_answer(end, ended)

    def _finish(self, end: End) -> Ended:
        """Report to the queue; an end is forgotten only if the queue rejects it."""
        try:
            return self._gateway.finish([end])[0]
        except (DatabaseUnreachable, ServerRefused):
            raise
        except Exception as error:
            log.exception("end_not_taken", job=end.fence.job_id)
            raise EndNotTaken(str(error) or type(error).__name__) from error

    def keep(self, end: End) -> bool:
        """Store an end on disk until it is reported; return False if there is no room."""
        try:
            return self.spool.put(end)
        except OSError as error:
            log.warning("spool_not_written", error=str(error))
            return False

    def waiting(self) -> int:
        """Return how many ends wait for the queue to answer."""
        return len(self.spool.ends())

    def heard(self) -> None:
        """Note that the queue answers."""
        if self.waiting():
            self.wake()

    def empty(self, left_s: Callable[[float], float | None]) -> None:
        """Wait until all ends are reported or time is up; the next start reports the rest.

        `left_s` returns the seconds left, at most its argument.
        """
        until_s = self._clock() + LAST_S
        while self.held() and left_s(max(0.0, until_s - self._clock())) != 0:
            Event().wait(LOOK_S)

    def held(self) -> list[Fence]:
        """Return the leases to renew until their ends are reported.

        If the queue fails to process an end for an hour, its lease may expire so that the job can
        continue. The end itself is retried without limit.
        """
        now = self._clock()
        return [
            fence for fence in self.spool.fences() if now - self._failing.get(fence, now) < HELD_S
        ]

    def step(self) -> None:
        """Report the waiting ends one by one.

        Raises:
            DatabaseUnreachable: the queue does not answer; the remaining ends wait.
        """
        for end in self.spool.ends():
            if self._answered(end):
                self.spool.drop(end)
                self._failing.pop(end.fence, None)

    def _answered(self, end: End) -> bool:
        """Report one end; return whether the queue took or refused it."""
        try:
            _log_answer(end, self._gateway.finish([end])[0])
        except ServerRefused as error:
            _log_refusal(end, error)
        except (ServerFailed, NotMigrated) as error:
            return self._failed(end, error)
        except DatabaseUnreachable:
            raise
        except Exception as error:  # noqa: BLE001 - it is logged, and the end is kept
            return self._failed(end, error)
        return True

    def _failed(self, end: End, error: Exception) -> bool:
        """Record that the queue fails to process this end, which must not block the others."""
        first = end.fence not in self._failing
        began = self._failing.setdefault(end.fence, self._clock())
        log.error(
            "end_not_delivered",
            job=end.fence.job_id,
            error=str(error),
            held=self._clock() - began < HELD_S,
            exc_info=error if first and not isinstance(error, ForgeError) else None,
        )
        return False


def _log_refusal(end: End, error: ForgeError) -> None:
    log.error("end_rejected", job=end.fence.job_id, error=error.message)


def _log_answer(end: End, ended: Ended) -> None:
    """Log the queue's answer to an end."""
    about = {"job": end.fence.job_id, "reason": end.reason.value, "accepted": ended.accepted}
    state = ended.state.value if ended.state else None
    if ended.accepted:
        log.info("job_ended", **about, state=state)
    else:
        log.warning(
            "end_too_late", note="the lease belonged to another attempt", **about, state=state
        )
