"""The tidier: clears from the store what writers that were killed left unfinished."""

import structlog
from forge_schema.storage import Store, StoreError

from forge_worker.loop import Loop

PERIOD_S = 86_400.0
# Longer than any upload takes.
OLDER_THAN_S = 2 * 86_400.0

log = structlog.get_logger(__name__)


class Tidier(Loop):
    """Looks once when it starts and then every day; any number of workers may."""

    name = "tidy"

    def __init__(self, store: Store) -> None:
        super().__init__(PERIOD_S)
        self._store = store

    def step(self) -> None:
        try:
            removed = self._store.tidy(OLDER_THAN_S)
        except StoreError as error:
            log.warning("the store was not tidied", error=error.message)
            return
        if removed:
            log.info("tidied", unfinished=removed)

    def end(self, patience_s: float | None = None) -> None:  # noqa: ARG002  nothing is waited for
        """Have it end; a look that is under way is not waited for."""
        self._ending.set()
        self.wake()
