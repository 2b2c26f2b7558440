"""The limits of a run: those of an owner and a sweep stay, that of a queue changes all the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.clients.job_mix import AT_ONCE, LIMITED_OWNER, LIMITED_QUEUE, OWNERS, SWEEP
from chaos.dice import dice_of
from forge_schema.model.admin import OwnerSettings
from forge_schema.queue.limits import Limits

if TYPE_CHECKING:
    from chaos.evidence.history import History
    from forge_schema.database.pool import Database

MOST = 2


class Changing:
    """Sets the limits. Jobs that run stay when a limit is lowered; none is ever above `MOST`."""

    def __init__(self, seed: int, history: History, database: Database) -> None:
        self._dice = dice_of(seed, "limits")
        self._limits = Limits(database, actor="user:chaos")
        for of, name in (("owner", LIMITED_OWNER), ("queue", LIMITED_QUEUE)):
            history.note("limited", of=of, name=name, max_jobs=MOST)
        for owner in OWNERS:
            history.note("limited", of="sweep", name=f"{owner}/{SWEEP}", max_jobs=AT_ONCE)
        self._limits.limit_owner(LIMITED_OWNER, OwnerSettings(max_jobs=MOST))
        self.set(MOST)

    def change(self) -> int:
        return self.set(self._dice.randint(0, MOST))

    def set(self, max_jobs: int) -> int:
        self._limits.set_queue(LIMITED_QUEUE, {"max_jobs": max_jobs})
        return max_jobs
