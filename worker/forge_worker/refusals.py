"""Refusals: what does not let this worker in until a person changes something."""

from threading import Lock

import structlog
from forge_schema.model.quantities import duration_text

# Many tries would change nothing, and might lock the worker out.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 120.0

log = structlog.get_logger(__name__)


class Refusals:
    """What refuses this worker now, and why. Thread-safe.

    Of all that are refused for one reason, only the first is logged. At the start nothing is: the
    program ends with the reason.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._reasons: dict[object, str] = {}
        self._met = False

    @property
    def why(self) -> str:
        """The reason, or "" if nothing refuses it."""
        with self._lock:
            return next(iter(self._reasons.values()), "")

    def add(self, who: object, why: str) -> None:
        with self._lock:
            first = self._met and not self._reasons
            self._reasons[who] = why
        if first:
            longest = duration_text(LONGEST_PAUSE_S)
            log.error("queue_refuses", why=why, note=f"retried after up to {longest}, not logged")

    def met(self) -> None:
        """Note that the queue has let this worker in once."""
        self._met = True

    def remove(self, who: object) -> None:
        with self._lock:
            over = self._reasons.pop(who, None) is not None and not self._reasons
        if over:
            log.info("queue_accepts")
