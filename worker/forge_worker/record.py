"""What an attempt leaves in its folder, so that a later agent can go on with it."""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from forge_schema.lease import Fence, Grant
from forge_schema.states import Reason

from forge_worker.attempt import Stop
from forge_worker.runners.runner import Exit
from forge_worker.slots import Slot

BOOT = Path("/proc/sys/kernel/random/boot_id")
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# By name, so that what a grant may carry besides, a secret above all, is never written.
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
)
LEASE, STOP, EXIT = "lease.json", "stop.json", "exit.json"


@dataclass(frozen=True, slots=True)
class Record:
    """One attempt on this machine: its lease, what it was lent, what runs it and since when.

    `claimed_s` counts seconds by a clock that goes on while no agent runs; `boot` is the machine's.
    """

    grant: Grant
    slot: Slot
    kind: str
    container: str
    claimed_s: float
    boot: str

    def write(self, root: Path) -> None:
        """Put it into the attempt's folder, in place of what is there."""
        fence = self.grant.fence
        replace(
            root / LEASE,
            {
                "job_id": fence.job_id,
                "token": fence.token,
                "nonce": str(fence.nonce),
                "grant": {name: getattr(self.grant, name) for name in GRANTED},
                "slot": asdict(self.slot),
                "kind": self.kind,
                "container": self.container,
                "claimed_s": self.claimed_s,
                "boot": self.boot,
            },
        )


def read(root: Path) -> Record | None:
    """Return the record in a folder; None where there is none, or not a whole one."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        kept = json.loads((root / LEASE).read_text(encoding="utf-8"))
        fence = Fence(int(kept["job_id"]), int(kept["token"]), UUID(kept["nonce"]))
        slot = Slot(**{**kept["slot"], "gpu_uuids": tuple(kept["slot"]["gpu_uuids"])})
        grant = Grant(fence=fence, **{name: kept["grant"][name] for name in GRANTED})
        kind, container, boot = (str(kept[name]) for name in ("kind", "container", "boot"))
        return Record(grant, slot, kind, container, float(kept["claimed_s"]), boot)
    return None


def keep_stop(root: Path, stop: Stop) -> None:
    """Keep, before the job is told, why it is stopped: its exit code is then not its own."""
    replace(root / STOP, {"reason": stop.reason.value, "detail": stop.detail})


def kept_stop(root: Path) -> Stop | None:
    """Return why an earlier agent stopped the job, if it did.

    Raises:
        ValueError: that cannot be read.
    """
    kept = _kept(root / STOP)
    return None if kept is None else Stop(Reason(kept["reason"]), str(kept["detail"]))


def keep_exit(root: Path, exited: Exit) -> None:
    """Keep, before its container goes, how the job ended."""
    replace(root / EXIT, asdict(exited))


def kept_exit(root: Path) -> Exit | None:
    """Return how the job ended, as an earlier agent saw it.

    Raises:
        ValueError: that cannot be read.
    """
    kept = _kept(root / EXIT)
    return None if kept is None else Exit(**kept)


def seconds() -> float:
    """Return the seconds since the machine started, those that it slept included."""
    return time.clock_gettime(CLOCK)


def this_boot() -> str:
    """Return the name of the machine's run, which changes when it restarts; "" if it has none."""
    with suppress(OSError):
        return BOOT.read_text(encoding="ascii").strip()
    return ""


def replace(path: Path, kept: Mapping[str, Any]) -> None:
    """Write a small JSON file whole, or leave what was there."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(json.dumps(kept), encoding="utf-8")
    fresh.replace(path)


def _kept(path: Path) -> dict[str, Any] | None:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    if not isinstance(kept, dict):
        raise TypeError(f"{path} holds no record")
    return kept
