"""The limits of a run: those of an owner and a sweep stay, that of a queue changes all the time.

So does the budget of that owner: it is spent as soon as it is set, and taken away later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.clients.job_mix import (
    AT_ONCE,
    LIMITED_OWNER,
    LIMITED_QUEUE,
    OWNERS,
    SWEEP,
    URGENT_AT_ONCE,
    URGENT_QUEUE,
)
from chaos.dice import dice_of
from forge_schema.model.admin import OwnerSettings, WhenSpent
from forge_schema.queue.limits import Limits

if TYPE_CHECKING:
    from chaos.evidence.history import History
    from forge_schema.database.pool import Database

MOST = 2
BUDGET_SHARE = 0.15
WHEN_SPENT: tuple[WhenSpent | None, ...] = (None, None, "warn", "hold", "preempt")
URGENCY: dict[str, bool | int | str | None] = {
    "max_jobs": URGENT_AT_ONCE,
    "preemption": "higher-priority",
    "preempts_after_s": 2,
    "most_preempted": 3,
}


class Changing:
    """Sets the limits. Jobs that run stay when a limit is lowered; none is ever above `MOST`."""

    def __init__(self, seed: int, history: History, database: Database) -> None:
        self._dice = dice_of(seed, "limits")
        self._limits = Limits(database, actor="user:chaos")
        for of, name in (("owner", LIMITED_OWNER), ("queue", LIMITED_QUEUE)):
            history.note("limited", of=of, name=name, max_jobs=MOST)
        for owner in OWNERS:
            history.note("limited", of="sweep", name=f"{owner}/{SWEEP}", max_jobs=AT_ONCE)
        self._budget(None)
        history.note("limited", of="queue", name=URGENT_QUEUE, max_jobs=URGENT_AT_ONCE)
        self._limits.set_queue(URGENT_QUEUE, URGENCY)
        self.set(MOST)

    def change(self) -> int:
        if self._dice.random() < BUDGET_SHARE:
            self._budget(self._dice.choice(WHEN_SPENT))
        return self.set(self._dice.randint(0, MOST))

    def restore(self) -> int:
        """Let everything run again."""
        self._budget(None)
        return self.set(MOST)

    def set(self, max_jobs: int) -> int:
        self._limits.set_queue(LIMITED_QUEUE, {"max_jobs": max_jobs})
        return max_jobs

    def _budget(self, when_spent: WhenSpent | None) -> None:
        hours = None if when_spent is None else 0.0
        budget = {"gpu_hours_per_month": hours, "when_spent": when_spent or "hold"}
        settings = OwnerSettings.model_validate({"max_jobs": MOST, **budget})
        self._limits.limit_owner(LIMITED_OWNER, settings)
