"""Try the store as the server starts, so that the log says what it can and cannot do."""

from contextlib import suppress
from threading import Event, Thread

import structlog
from forge_schema.storage import StoreError, StoreUrlInvalid
from forge_schema.storage.finding import ProbeFinding, ProbeVerdict
from forge_schema.storage.probe import probe, require_fit

# A store that hangs must not keep the server from starting: /health tells of it.
WITHIN_S = 30.0
EVERY_S = 60.0

log = structlog.get_logger(__name__)


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
    while not stopping.wait(EVERY_S):
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
    asking.join(WITHIN_S)
    if outcome and isinstance(outcome[0], list):
        return outcome[0]
    if outcome and isinstance(outcome[0], StoreUrlInvalid):
        raise outcome[0]
    log.warning("store_not_tried", error=str(outcome[0]) if outcome else "it takes too long")
    return []
