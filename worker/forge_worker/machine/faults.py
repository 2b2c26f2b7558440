"""What a broken GPU means: it is lent no more, its job goes elsewhere, and the queue is told."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace

from forge_schema.model.states import Reason
from forge_schema.queue.registry import Machine

from forge_worker.job_runs.attempt import Attempt, Stop
from forge_worker.machine.quarantine import Quarantine
from forge_worker.machine.slots import Slots


class Faults:
    """Between the quarantine and the rest of the agent; from any thread."""

    def __init__(
        self, quarantine: Quarantine, slots: Slots, attempts: Callable[[], Collection[Attempt]]
    ) -> None:
        self._quarantine = quarantine
        self._slots = slots
        self._attempts = attempts
        self._told: frozenset[str] = frozenset()
        for uuid in quarantine.uuids:
            slots.gpus.withdraw(uuid)

    def add(self, gpu: str, why: str) -> bool:
        """Lend a GPU no more and stop the job that has it; tell whether it was fit until now."""
        if not self._quarantine.add(gpu, why):
            return False
        self._slots.gpus.withdraw(gpu)
        self.stop_jobs()
        return True

    def stop_jobs(self) -> None:
        """Stop every job that has a GPU in quarantine; also one that was given it just now."""
        reasons = self._quarantine.reasons()
        lent = self._slots.lent if reasons else {}
        for attempt in self._attempts() if reasons else ():
            slot = lent.get(attempt.fence.token)
            broken = [uuid for uuid in slot.gpu_uuids if uuid in reasons] if slot else []
            if broken:
                said = "; ".join(f"{uuid}: {reasons[uuid]}" for uuid in broken)
                attempt.request_stop(Stop(Reason.GPU_FAULT, said))

    def outdated(self) -> bool:
        """Tell whether the queue was told of GPUs that are lent no more."""
        return self._told != self._quarantine.uuids

    @contextmanager
    def left_out(self, machine: Machine) -> Iterator[Machine]:
        """Give the machine without the GPUs in quarantine; when the block ends, the queue knows."""
        unfit = self._quarantine.uuids
        fit = [gpu for gpu in machine.gpus if gpu["uuid"] not in unfit]
        accelerator = machine.accelerator if fit or not unfit else "cpu"
        yield replace(machine, gpus=fit, accelerator=accelerator)
        self._told = unfit

    def condition(self) -> dict[str, object]:
        """Return why GPUs are not lent, as a part of the machine's condition."""
        reasons = self._quarantine.reasons()
        return {"quarantine": reasons} if reasons else {}
