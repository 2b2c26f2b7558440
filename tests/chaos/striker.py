"""The striker executes a schedule, each fault in its own thread."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from time import monotonic
from typing import TYPE_CHECKING

from chaos.dice import dice_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from chaos.evidence.history import History
    from chaos.faults.fault import Fault
    from chaos.schedule import Blow

# A fault is skipped if another one uses its target for longer than this.
BUSY_S = 20.0
HEALS = 5
AGAIN_S = 3.0


class Striker:
    """No two faults use the same resource at once; `struck` counts the faults injected."""

    def __init__(self, faults: Mapping[str, Fault], history: History) -> None:
        self._faults = faults
        self._history = history
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._ending = threading.Event()
        self.struck: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.unhealed: list[str] = []

    def carry_out(self, blows: Sequence[Blow], seconds: float) -> None:
        """Inject faults as planned; return after this many seconds, when all are healed."""
        began = monotonic()
        threads = []
        for blow in blows:
            self._ending.wait(max(0.0, began + blow.at_s - monotonic()))
            thread = threading.Thread(target=self._strike, args=(blow,), daemon=True)
            threads.append(thread)
            thread.start()
        self._ending.wait(max(0.0, began + seconds - monotonic()))
        self._ending.set()
        for thread in threads:
            thread.join(180)

    def _strike(self, blow: Blow) -> None:
        fault = self._faults[blow.kind]
        lock = self._locks[fault.holds(blow.target)]
        if not lock.acquire(timeout=BUSY_S):
            self.missed[blow.kind] += 1
            return
        try:
            if not self._ending.is_set():
                self._strike_and_heal(fault, blow)
        finally:
            lock.release()

    def _strike_and_heal(self, fault: Fault, blow: Blow) -> None:
        self._history.note("fault", fault=blow.kind, target=blow.target, lasts_s=blow.lasts_s)
        try:
            fault.strike(blow.target, dice_of(blow.seed))
            self.struck[blow.kind] += 1
            self._ending.wait(blow.lasts_s)
        except Exception as error:  # noqa: BLE001  another blow has what this one needs
            self.missed[blow.kind] += 1
            self._history.note("fault missed", fault=blow.kind, error=repr(error))
        self._heal(lambda: fault.heal(blow.target), f"{blow.kind} {blow.target}")
        self._history.note("healed", fault=blow.kind, target=blow.target)

    def _heal(self, heal: Callable[[], None], what: str) -> None:
        """Heal; retry on failure, since another fault may block the healing."""
        pause = threading.Event()
        for _ in range(HEALS):
            try:
                heal()
            except Exception as error:  # noqa: BLE001  as above
                self._history.note("not healed", what=what, error=repr(error))
                pause.wait(AGAIN_S)
            else:
                return
        self.unhealed.append(what)
