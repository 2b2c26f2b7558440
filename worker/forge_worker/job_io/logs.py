"""The log shipper: upload a job's output in numbered, checksummed chunks."""

import ctypes
import hashlib
import os
from contextlib import suppress
from io import BufferedRandom
from threading import Lock
from typing import BinaryIO

from forge_schema.model.attempt_records import LogChunkRecord
from forge_schema.zstd import compress

from forge_worker.attempt import LiveAttempt
from forge_worker.loop import Loop
from forge_worker.queue.gateway import Gateway
from forge_worker.queue.objects import Objects

CHUNK_BYTES = 4 << 20
# Stored output that stays on disk as well: the end of a job quotes its last lines.
KEPT_BYTES = 1 << 20

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
# Where there is none, as on macOS, nothing is given back.
_fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
if _fallocate is not None:
    _fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class LogShipper(Loop):
    """Reads the attempt's log file from where it stopped; stores each object before its row.

    The disk space of what is stored is given back, except for the last of it.
    """

    name = "logs"

    def __init__(
        self, attempt: LiveAttempt, store: Objects, gateway: Gateway, *, period_s: float
    ) -> None:
        super().__init__(period_s)
        self._attempt = attempt
        self._store = store
        self._gateway = gateway
        self._cursors = attempt.cursors
        self._file = str(attempt.folders.log)
        self._number = self._cursors["log_number"]
        self._start = self._cursors["log_start"]
        # The length of a chunk that may be stored already: a repeat must have the same content.
        self._promised = self._cursors["log_promised"]
        self._punched = 0
        # On failure, the last output is shipped by another thread while the loop may be in a step.
        self._turn = Lock()

    def idle(self) -> bool:
        # Once a second for each job, and building a path would take longer than this.
        return os.stat(self._file).st_size <= self._start  # noqa: PTH116

    def step(self) -> None:
        """Upload everything written so far, chunk by chunk.

        Bytes that may be the beginning of a secret wait for the next step, or for the end of the
        loop.
        """
        with self._turn:
            if not self.idle():
                self._ship_all()

    def _ship_all(self) -> None:
        with self._attempt.folders.log.open("r+b") as log:
            while not self._attempt.lost and (piece := self._next(log)):
                self._ship(piece)
                self._free(log)

    def _next(self, log: BufferedRandom) -> bytes:
        """Return the next bytes, with secrets redacted, also those that cross their edges."""
        redactor, count = self._attempt.redactor, self._promised or CHUNK_BYTES
        before = min(self._start, redactor.reach)
        log.seek(self._start - before)
        data = log.read(before + count + redactor.reach)
        kept_back = 0 if self.ending or self._promised else redactor.doubtful(data)
        return redactor.cover(data)[before : min(before + count, len(data) - kept_back)]

    def _ship(self, piece: bytes) -> None:
        self._promised = len(piece)
        self._cursors.keep(log_promised=len(piece))
        key = self._attempt.keys.log_chunk(self._number)
        self._store.put(key, compress(piece))
        digest = hashlib.sha256(piece).hexdigest()
        chunk = LogChunkRecord(self._number, key, self._start, len(piece), digest)
        if not self._gateway.record(self._attempt.fence, chunk):
            self._attempt.lose()
            return
        self._number += 1
        self._start += len(piece)
        self._promised = 0
        self._cursors.keep(log_number=self._number, log_start=self._start, log_promised=0)

    def _free(self, log: BufferedRandom) -> None:
        stored = self._start - KEPT_BYTES - self._attempt.redactor.reach
        if stored >= self._punched + CHUNK_BYTES:
            self._punched = stored
            with suppress(OSError):
                punch(log, stored)


def punch(file: BinaryIO, length: int) -> None:
    """Free the first `length` bytes of a file open for writing; from then on they read as zeros.

    Raises:
        OSError: its file system cannot do this.
    """
    if _fallocate is None:
        return
    if _fallocate(file.fileno(), _PUNCH_HOLE | _KEEP_SIZE, 0, length):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
