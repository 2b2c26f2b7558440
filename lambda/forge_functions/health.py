"""Health checks of the database, the store and the sweeper; and the first trial of the store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from threading import Event, Lock, Thread
from time import monotonic

import structlog
from forge_schema.database.current import HEAD
from forge_schema.database.pool import Database, NotMigrated
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import duration_text
from forge_schema.read.overview import other_store, remember_store
from forge_schema.storage import Store, StoreError, StoreUrlInvalid
from forge_schema.storage.probe import probe, require_fit
from forge_schema.storage.store import ProbeFinding, ProbeVerdict

# Results are reused for so long, since /health needs no credentials.
KEPT_S = 5.0
WITHIN_S = 5.0
LATE_S = 60.0
UPGRADE = "run `forge db upgrade`"

log = structlog.get_logger(__name__)
# A store that hangs must not keep the server from starting: /health tells of it.
TRIAL_WITHIN_S = 30.0
TRIAL_EVERY_S = 60.0


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

    result = CheckResult.FAILING


class Unsure(Wrong):
    """It may be so that nothing is wrong yet."""

    result = CheckResult.UNKNOWN


class Health:
    """Checks the database, the store and the sweeper, at most once in five seconds."""

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
        store = self._open_store()
        try:
            store.check()
        except StoreUrlInvalid as error:
            raise Wrong("its URL does not name a store") from error
        other = ""
        with suppress(ForgeError):
            other = other_store(self._open_database(), store.url, store.size)
        if other:
            raise Unsure("the queue keeps its objects in another one; a server uses the wrong one")

    def _sweeper(self) -> None:
        """Check that a sweeper runs, and that nothing waits that it should have moved."""
        row = self._open_database().row("lateness", ttl=self._ttl)
        if row is not None and row["seconds"] > LATE_S:
            raise Wrong(
                f"something has been due for {duration_text(row['seconds'])}: is a sweeper running?"
            )
        if row is not None and row["silent_s"] is not None:
            silence = duration_text(row["silent_s"])
            raise Unsure(f"no sweeper has run for {silence}; schedules and retries wait for one")


def _finding(name: str, look: Future[None], until: float) -> Finding:
    try:
        look.result(timeout=max(0.0, until - monotonic()))
    except Exception as error:  # noqa: BLE001 - any error means that the check failed
        log.warning("server_unhealthy", check=name, error=str(error))
        if isinstance(error, Wrong):
            return Finding(name, error.result, error.message)
        # The details are for the operator, so only the log has them.
        return Finding(name, CheckResult.FAILING, "it is not available now")
    return Finding(name, CheckResult.OK)


def remember(database: Database, store: Store) -> None:
    """Remember the store, or log in which other one the queue's objects are."""
    try:
        other = remember_store(database, store.url, store.size)
    except StoreError as error:
        log.warning("store_not_compared", error=error.message)
        return
    if other:
        log.warning("store_is_another", queue_uses=other, this_server_uses=store.url)


def try_store(url: str, stopping: Event) -> None:
    """Try the store and log what was found.

    One that does not answer is left to `/health`, and tried again until it does.

    Raises:
        StoreUrlInvalid: the URL does not name a store, or its bucket does not exist.
        StoreUnfit: Forge cannot work with it.
    """
    findings = _within(url)
    _log(findings)
    require_fit(url, findings)
    if not findings:
        Thread(target=_again, args=[url, stopping], name="store-trial", daemon=True).start()


def _again(url: str, stopping: Event) -> None:
    while not stopping.wait(TRIAL_EVERY_S):
        with suppress(StoreUrlInvalid):
            if probed := _within(url):
                _log(probed)
                return


def _log(findings: list[ProbeFinding]) -> None:
    for finding in findings:
        noted = log.info if finding.verdict is ProbeVerdict.OK else log.warning
        hint = {"hint": finding.hint} if finding.hint else {}
        noted(
            "store_tried",
            what=finding.capability,
            found=finding.verdict.value,
            said=finding.detail,
            **hint,
        )


def _within(url: str) -> list[ProbeFinding]:
    outcome: list[list[ProbeFinding] | StoreError] = []

    def ask() -> None:
        try:
            outcome.append(probe(url))
        except StoreError as error:
            outcome.append(error)

    asking = Thread(target=ask, name="store-trial", daemon=True)
    asking.start()
    asking.join(TRIAL_WITHIN_S)
    if outcome and isinstance(outcome[0], list):
        return outcome[0]
    if outcome and isinstance(outcome[0], StoreUrlInvalid):
        raise outcome[0]
    log.warning("store_not_tried", error=str(outcome[0]) if outcome else "it takes too long")
    return []
