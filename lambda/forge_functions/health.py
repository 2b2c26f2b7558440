"""What the server stands on, looked at now and then."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

import structlog
from forge_schema.database.current import HEAD
from forge_schema.database.pool import NotMigrated
from forge_schema.model.errors import ForgeError
from forge_schema.storage import StoreUrlInvalid

if TYPE_CHECKING:
    from forge_functions.services import Services

# Anybody may ask, as often as they like.
KEPT_S = 5.0
WITHIN_S = 5.0
LATE_S = 60.0
UPGRADE = "run `forge db upgrade`"

log = structlog.get_logger(__name__)


class Standing(StrEnum):
    """What a check found."""

    OK = "ok"
    FAILING = "failing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """How one thing stands, in words that give nothing away."""

    name: str
    standing: Standing
    detail: str = ""


class Wrong(ForgeError):
    """A check found something; its message is for everybody."""


class Health:
    """Looks at the database, the store and the sweeper, at most once in five seconds."""

    def __init__(self, shared: Services) -> None:
        self._shared = shared
        self._lock = Lock()
        self._looked_at = -KEPT_S
        self._found: list[Finding] = []
        self._looking = ThreadPoolExecutor(3, thread_name_prefix="health")

    def findings(self) -> list[Finding]:
        """Return how everything stood within the last five seconds; takes five more at most."""
        with self._lock:
            if monotonic() - self._looked_at > KEPT_S:
                self._found = self._look()
                self._looked_at = monotonic()
            return self._found

    def close(self) -> None:
        self._looking.shutdown(wait=False)

    def _look(self) -> list[Finding]:
        until = monotonic() + WITHIN_S
        checks = {"database": database, "store": store, "sweeper": sweeper}
        begun = {name: self._looking.submit(look, self._shared) for name, look in checks.items()}
        found = [_finding(name, look, until) for name, look in begun.items()]
        if found[0].standing is Standing.FAILING:
            found[-1] = Finding("sweeper", Standing.UNKNOWN, "the database would tell")
        return found


def _finding(name: str, look: Future[None], until: float) -> Finding:
    try:
        look.result(timeout=max(0.0, until - monotonic()))
    except Exception as error:  # noqa: BLE001 - whatever it is, the answer is that it fails
        log.warning("server_unhealthy", check=name, error=str(error))
        # Where it lies is the operator's business, so the log alone has it.
        detail = error.message if isinstance(error, Wrong) else "it cannot be used now"
        return Finding(name, Standing.FAILING, detail)
    return Finding(name, Standing.OK)


def database(shared: Services) -> None:
    """Look whether the database answers and has this version's tables, or later ones."""
    try:
        row = shared.database.one("health")
    except NotMigrated as error:
        raise Wrong(f"it has no tables of Forge's: {UPGRADE}") from error
    if row is None or row["version_num"] < HEAD:
        raise Wrong(f"its tables are those of an older version: {UPGRADE}")


def store(shared: Services) -> None:
    """Look whether the store can be used."""
    try:
        shared.store.check()
    except StoreUrlInvalid as error:
        raise Wrong("its URL names no store") from error


def sweeper(shared: Services) -> None:
    """Look whether something waits that a sweeper should have moved."""
    row = shared.database.one("lateness", ttl=shared.settings.ttl)
    if row is not None and row["seconds"] > LATE_S:
        raise Wrong(f"something has been due for {row['seconds']:.0f} s: does a sweeper run?")
