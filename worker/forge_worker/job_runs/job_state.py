"""The state that an attempt saves in its folder, so that a later agent can continue it."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from forge_schema.model.lease import Grant
from forge_schema.model.states import Reason

from forge_worker.attempt import LiveAttempt, Stop
from forge_worker.attempt_folders import BYTES, MODE, Folders
from forge_worker.clock import this_boot
from forge_worker.files.small_files import write_atomically
from forge_worker.machine.slots import MachineSlot
from forge_worker.runners.process.door import ALONE_S, EXIT
from forge_worker.runners.runner import Exit, unwatched

# An explicit list, so that other fields of a grant, above all secrets, are never written.
GRANTED = (
    "attempt",
    "name",
    "owner",
    "spec",
    "bundle_digest",
    "timeout_s",
    "lane_id",
    "priority",
    "failures",
    "losses",
    "preemptions",
    "rank",
    "nodes",
    "team",
)
LEASE, STOP = "lease.json", "stop.json"
# JSON escapes a character with up to six bytes.
DETAIL_LENGTH = 300


@dataclass(frozen=True, slots=True)
class AttemptHere:
    """One attempt here: its slot, its container or process, and the boot of the machine."""

    attempt: LiveAttempt
    slot: MachineSlot
    kind: str
    container: str
    boot: str

    def write(self) -> None:
        """Write the record to the attempt's folder, before anything is done for the job.

        Raises:
            OSError: the disk is full or faulty.
        """
        grant, fence = self.attempt.grant, self.attempt.fence
        kept = {
            **asdict(fence),
            "nonce": str(fence.nonce),
            "grant": {name: getattr(grant, name) for name in GRANTED},
            "slot": asdict(self.slot),
            "kind": self.kind,
            "container": self.container,
            "claimed_s": self.attempt.claimed_s,
            "boot": self.boot,
        }
        write_atomically(self.attempt.folders.root / LEASE, json.dumps(kept), durable=False)
        # Allocate the disk space for later state now.
        self.attempt.cursors.keep(recorded=1)
        for name in (STOP, EXIT):
            overwrite(self.attempt.folders.root / name, {})


def record_of(attempt: LiveAttempt, slot: MachineSlot, kind: str, container: str) -> AttemptHere:
    """Return the record of an attempt that starts now."""
    return AttemptHere(attempt, slot, kind, container, this_boot())


def read(folders: Folders) -> AttemptHere | None:
    """Return the record in an attempt's folder; None if it is missing or incomplete."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        kept = _kept(folders.root / LEASE) or {}
        granted = {name: value for name, value in kept["grant"].items() if name in GRANTED}
        grant = Grant(int(kept["job_id"]), int(kept["token"]), UUID(kept["nonce"]), **granted)
        slot = MachineSlot(**{**kept["slot"], "gpu_uuids": tuple(kept["slot"]["gpu_uuids"])})
        attempt = LiveAttempt(grant, folders, claimed_s=float(kept["claimed_s"]))
        kind, container, boot = (str(kept[name]) for name in ("kind", "container", "boot"))
        kept_stop(folders.root)
        kept_exit(folders.root)
        return AttemptHere(attempt, slot, kind, container, boot)
    return None


def runs_in(folders: Folders) -> tuple[str, str] | None:
    """Return the kind and the name of an attempt's container, even if the rest is damaged.

    None if there was nothing to run yet, or if the record is unreadable.
    """
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = _kept(folders.root / LEASE) or {}
        return str(kept["kind"]), str(kept["container"])
    return None


def keep_stop(root: Path, stop: Stop) -> None:
    """Save, before the job is told, why it is stopped: its exit code is then not its own."""
    detail = stop.detail[:DETAIL_LENGTH]
    overwrite(root / STOP, {"reason": stop.reason.value, "detail": detail})


def kept_stop(root: Path) -> Stop | None:
    """Return why an earlier agent stopped the job; None if it did not.

    Raises:
        ValueError, KeyError, TypeError: the saved reason is invalid.
    """
    kept = _kept(root / STOP)
    return None if not kept else Stop(Reason(kept["reason"]), str(kept["detail"]))


def keep_exit(root: Path, exited: Exit) -> None:
    """Save how the job ended, before its container is removed."""
    kept = {**asdict(exited), "detail": exited.detail[:DETAIL_LENGTH]}
    # An agent of another version may not know it.
    overwrite(root / EXIT, {name: value for name, value in kept.items() if name != "void"})


def kept_exit(root: Path) -> Exit | None:
    """Return how the job ended, as saved by an earlier agent.

    Raises:
        ValueError, KeyError, TypeError: the saved end is invalid.
    """
    kept = _kept(root / EXIT)
    if not kept:
        return None
    # Only a shim adds it, and an agent that hears of the end replaces what the shim wrote.
    alone_s = kept.pop(ALONE_S, None)
    exited = Exit(**kept)
    return exited if alone_s is None else unwatched(exited, float(alone_s))


def overwrite(path: Path, kept: Mapping[str, Any]) -> None:
    """Write a small JSON file in place, into disk space that its first write allocated.

    Raises:
        OSError: the disk is faulty, or it is full at the first write.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, MODE)
    try:
        os.pwrite(file, json.dumps(kept).encode().ljust(BYTES), 0)
    finally:
        os.close(file)


def _kept(path: Path) -> dict[str, Any] | None:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    if not isinstance(kept, dict):
        raise TypeError(f"{path} holds no record")
    return kept
