"""The quarantine: GPUs that are lent no more, until the machine or its operator says otherwise."""

import json
from collections.abc import Callable
from pathlib import Path
from threading import Lock

import structlog

from forge_worker.job_runs.clock import this_boot
from forge_worker.job_runs.job_state import replace

FILE = "quarantine.json"
HINT = "reset the GPU or restart the machine; `forge-worker --recover` lends it again"

log = structlog.get_logger(__name__)


class Quarantine:
    """Kept in the worker's folder; a restart of the machine resets its GPUs, and so ends it."""

    def __init__(self, folder: Path, *, boot: Callable[[], str] = this_boot) -> None:
        self._file = folder / FILE
        self._boot = boot()
        self._lock = Lock()
        self._reasons = self._read()
        for uuid, why in self._reasons.items():
            log.warning("GPU in quarantine: not lent", gpu=uuid, reason=why, hint=HINT)

    @property
    def uuids(self) -> frozenset[str]:
        """The GPUs that must not be lent."""
        return frozenset(self._reasons)

    def reasons(self) -> dict[str, str]:
        """Return why each of them is not lent."""
        return dict(self._reasons)

    def add(self, uuid: str, why: str) -> bool:
        """Lend a GPU no more; tell whether that is new."""
        with self._lock:
            if uuid in self._reasons:
                return False
            self._reasons = {**self._reasons, uuid: why}
            try:
                replace(self._file, {"boot": self._boot, "gpus": self._reasons})
            except OSError as error:
                # It holds for as long as this agent runs.
                log.warning("the quarantine could not be kept", error=str(error))
        log.error("GPU in quarantine: lent no more", gpu=uuid, reason=why, hint=HINT)
        return True

    def _read(self) -> dict[str, str]:
        try:
            kept = json.loads(self._file.read_text(encoding="utf-8"))
            boot, reasons = kept["boot"], dict(kept["gpus"])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("the quarantine could not be read", file=str(self._file), error=str(error))
            return {}
        return reasons if boot == self._boot else {}


def release(folder: Path) -> list[str]:
    """Lend every GPU again that this worker has in quarantine, and return their UUIDs.

    Not while the worker runs: it knows its own.
    """
    held = sorted(Quarantine(folder).uuids)
    (folder / FILE).unlink(missing_ok=True)
    return held
