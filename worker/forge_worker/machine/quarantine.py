"""GPUs in quarantine: a reset must come before their next job."""

import json
from collections.abc import Callable
from pathlib import Path
from threading import Lock

import structlog

from forge_worker.clock import this_boot
from forge_worker.files.atomic import write_atomically

FILE = "quarantine.json"
HINT = "reset the GPU or restart the machine; `forge-worker --recover` gives it to jobs again"

log = structlog.get_logger(__name__)


class Quarantine:
    """GPUs that must not be used, stored on disk until the machine restarts and resets them."""

    def __init__(self, folder: Path, *, boot: Callable[[], str] = this_boot) -> None:
        self._file = folder / FILE
        self._boot = boot()
        self._lock = Lock()
        self._reasons = self._read()
        for uuid, why in self._reasons.items():
            log.warning("gpu_quarantined", gpu=uuid, reason=why, hint=HINT)

    @property
    def uuids(self) -> frozenset[str]:
        """UUIDs of the GPUs in quarantine."""
        return frozenset(self._reasons)

    def reasons(self) -> dict[str, str]:
        """Return the reason for each GPU's quarantine, by UUID."""
        return dict(self._reasons)

    def add(self, uuid: str, why: str) -> bool:
        """Put a GPU in quarantine; return False if it already was."""
        with self._lock:
            if uuid in self._reasons:
                return False
            self._reasons = {**self._reasons, uuid: why}
            try:
                kept = json.dumps({"boot": self._boot, "gpus": self._reasons})
                write_atomically(self._file, kept, durable=False)
            except OSError as error:
                # The quarantine still holds while this agent runs.
                log.warning("quarantine_unwritable", error=str(error))
        log.error("gpu_quarantined", gpu=uuid, reason=why, hint=HINT)
        return True

    def _read(self) -> dict[str, str]:
        try:
            kept = json.loads(self._file.read_text(encoding="utf-8"))
            boot, reasons = kept["boot"], dict(kept["gpus"])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("quarantine_unreadable", file=str(self._file), error=str(error))
            return {}
        return reasons if boot == self._boot else {}


def release(folder: Path) -> list[str]:
    """End the quarantine of all GPUs of this worker, and return their UUIDs.

    The worker must be stopped: a running one has the list in memory.
    """
    held = sorted(Quarantine(folder).uuids)
    (folder / FILE).unlink(missing_ok=True)
    return held
