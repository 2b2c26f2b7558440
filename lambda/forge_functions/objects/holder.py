"""Whether a worker holds what it speaks of: somebody else's lease is as absent as none."""

from collections.abc import Sequence
from http import HTTPStatus

from forge_schema.model.lease import Fence
from forge_schema.queue.holdings import Holding, Holdings

from forge_functions.auth.worker import WorkerCaller
from forge_functions.errors import Refused
from forge_functions.services import Services


def held(shared: Services, caller: WorkerCaller, fence: Fence) -> Holding:
    """Return the caller's live lease.

    Raises:
        Refused: 404, also for one that ended or is another worker's.
    """
    holding = Holdings(shared.database, caller.id).lease(fence)
    if holding is None:
        raise lost()
    return holding


def own(shared: Services, caller: WorkerCaller, fences: Sequence[Fence]) -> None:
    """Let through leases that are the caller's, or were when they ended.

    Raises:
        Refused: 404 when any is not.
    """
    if not Holdings(shared.database, caller.id).own(fences):
        raise lost()


def lost() -> Refused:
    """Return what is answered to whoever does not hold the lease."""
    return Refused(
        HTTPStatus.NOT_FOUND,
        "lease_unknown",
        "this worker holds no such lease",
        hint="it ran out, or the job was given to another worker",
    )


def absent() -> Refused:
    """Return what is answered for an object that is not the holder's business."""
    return Refused(
        HTTPStatus.NOT_FOUND,
        "object_unknown",
        "this lease has no such object",
        hint="a lease's holder reads what its job needs, and writes below its own keys",
    )
