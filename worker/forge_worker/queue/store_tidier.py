"""Keep the store free of what killed writers left unfinished."""

import structlog
from forge_schema.storage import Store, StoreError
from forge_schema.storage.probe import delete_abandoned

from forge_worker.loop import Loop

TIDY_PERIOD_S = 86_400.0
# An unfinished upload older than this is abandoned: none takes so long.
UNFINISHED_S = 2 * 86_400.0

log = structlog.get_logger(__name__)


class StoreTidier(Loop):
    """Removes from the store what killed writers left unfinished: at the start, then daily."""

    name = "tidy"

    def __init__(self, store: Store) -> None:
        super().__init__(TIDY_PERIOD_S)
        self._store = store

    def step(self) -> None:
        try:
            removed = self._store.tidy(UNFINISHED_S)
            delete_abandoned(self._store)
        except StoreError as error:
            log.warning("store_tidy_failed", error=error.message)
            return
        if removed:
            log.info("store_tidied", unfinished=removed)

    def end(self, patience_s: float | None = None) -> None:  # noqa: ARG002  nothing is waited for
        """Have it end; a look that is under way is not waited for."""
        self._ending.set()
        self.wake()
