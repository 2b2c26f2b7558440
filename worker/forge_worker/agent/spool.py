"""The spool: keeps unreported ends on disk until the queue has accepted them.

One file of slots, allocated in advance so that writes succeed on a full disk. A slot contains a
length, a digest and JSON. If these do not match, the write was interrupted before anything was
promised, and the slot is free.
"""

import hashlib
import json
import os
import struct
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from uuid import UUID

import structlog
from forge_schema.ending import storable
from forge_schema.model.lease import End, Fence, Usage
from forge_schema.model.states import Reason

from forge_worker.files.small_files import sync_folder

FILE = "spool"
SLOT_BYTES = 32 << 10
HEAD = struct.Struct(">I32s")
# JSON may escape one byte as six.
DETAIL_BYTES = 4 << 10
MODE = 0o600

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
                self._wipe(slot)

    def ends(self) -> list[End]:
        with self._lock:
            return list(self._kept.values())

    def fences(self) -> list[Fence]:
        return [end.fence for end in self.ends()]

    def _wipe(self, slot: int) -> None:
        try:
            self._write(slot, bytes(HEAD.size))
        except OSError as error:
            log.warning("spool_slot_not_wiped", slot=slot, error=str(error))

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
