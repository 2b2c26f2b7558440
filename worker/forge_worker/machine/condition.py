"""The condition of the machine: whether it takes jobs, and what the queue is told of it."""

from collections.abc import Callable
from dataclasses import dataclass

from forge_worker.machine.admission import Admission
from forge_worker.machine.gpu_health import Faults
from forge_worker.machine.health import Health

UNSAFE = "the cloud recommends leaving this machine"


@dataclass
class Condition:
    """What the watches say; `unsafe` is set by a cloud notice, `leaving` by the worker.

    `blind` is why notices of the cloud cannot be seen, or "".
    """

    admission: Admission
    faults: Faults
    health: Health
    # How many jobs are not started yet.
    preparing: Callable[[], int]
    unsafe: bool = False
    leaving: bool = False
    blind: str = ""

    def room(self) -> int | None:
        """Return how many jobs the machine is fit for now; None: any number."""
        if self.unsafe or not self.admission.open:
            return 0
        return self.health.room(self.preparing())

    def reported(self) -> dict[str, object]:
        """Return it as JSON-compatible values."""
        reported = {**self.admission.condition(), **self.faults.condition()}
        why = (reported.get("constrained"), self.health.reason, UNSAFE if self.unsafe else "")
        reported["constrained"] = "; ".join(str(one) for one in why if one)
        if self.blind:
            reported["no_notices"] = self.blind
        if self.leaving:
            reported["draining"] = True
        return reported
