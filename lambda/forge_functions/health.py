"""Health checks of the database, the store and the sweeper."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from threading import Lock
from time import monotonic

import structlog
from forge_schema.database.current import HEAD
from forge_schema.database.pool import Database, NotMigrated
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import duration_text
from forge_schema.storage import Store, StoreUrlInvalid

# Results are reused for so long, since /health needs no credentials.
KEPT_S = 5.0
WITHIN_S = 5.0
LATE_S = 60.0
UPGRADE = "run `forge db upgrade`"

log = structlog.get_logger(__name__)


class CheckResult(StrEnum):
    """The result of a check."""

    OK = "ok"
    FAILING = "failing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one dependency, in words that reveal nothing."""

    name: str
    standing: CheckResult
    detail: str = ""


class Wrong(ForgeError):
    """A check failed. The message is public."""


class Health:
    """Checks the database, the store and the sweeper, at most once in five seconds.

    Args:
        database: opens the database.
        store: opens the store.
        ttl: of a lease.
    """

    def __init__(
        self, database: Callable[[], Database], store: Callable[[], Store], *, ttl: timedelta
    ) -> None:
        self._open_database, self._open_store, self._ttl = database, store, ttl
        self._lock = Lock()
        self._looked_at = -KEPT_S
        self._findings: list[Finding] = []
        self._looking = ThreadPoolExecutor(3, thread_name_prefix="health")

    def findings(self) -> list[Finding]:
        """Return results at most five seconds old, within five seconds."""
        with self._lock:
            if monotonic() - self._looked_at > KEPT_S:
                self._findings = self._look()
                self._looked_at = monotonic()
            return self._findings

    def close(self) -> None:
        self._looking.shutdown(wait=False)

    def _look(self) -> list[Finding]:
        until = monotonic() + WITHIN_S
        checks = {"database": self._database, "store": self._store, "sweeper": self._sweeper}
        begun = {name: self._looking.submit(look) for name, look in checks.items()}
        findings = [_finding(name, look, until) for name, look in begun.items()]
        if findings[0].standing is CheckResult.FAILING:
            findings[-1] = Finding("sweeper", CheckResult.UNKNOWN, "unknown without the database")
        return findings

    def _database(self) -> None:
        """Check that the database answers and has this version's tables, or later ones."""
        try:
            row = self._open_database().row("health")
        except NotMigrated as error:
            raise Wrong(f"it does not have Forge's tables: {UPGRADE}") from error
        if row is None or row["version_num"] < HEAD:
            raise Wrong(f"its tables are from an older version: {UPGRADE}")

    def _store(self) -> None:
        """Check that the store is available."""
        try:
            self._open_store().check()
        except StoreUrlInvalid as error:
            raise Wrong("its URL does not name a store") from error

    def _sweeper(self) -> None:
        """Check that nothing waits that a sweeper should have moved."""
        row = self._open_database().row("lateness", ttl=self._ttl)
        if row is not None and row["seconds"] > LATE_S:
            raise Wrong(
                f"something has been due for {duration_text(row['seconds'])}: is a sweeper running?"
            )


def _finding(name: str, look: Future[None], until: float) -> Finding:
    try:
        look.result(timeout=max(0.0, until - monotonic()))
    except Exception as error:  # noqa: BLE001 - any error means that the check failed
        log.warning("server_unhealthy", check=name, error=str(error))
        # The details are for the operator, so only the log has them.
        detail = error.message if isinstance(error, Wrong) else "it is not available now"
        return Finding(name, CheckResult.FAILING, detail)
    return Finding(name, CheckResult.OK)
