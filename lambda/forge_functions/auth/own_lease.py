"""Check that a worker holds a lease. Another worker's lease counts as missing."""

from collections.abc import Sequence
from http import HTTPStatus

from forge_schema.model.lease import Fence
from forge_schema.queue.own_leases import OwnLease, OwnLeases

from forge_functions.auth.worker import WorkerCaller
from forge_functions.errors import Refused
from forge_functions.services import Services


def own_lease(shared: Services, caller: WorkerCaller, fence: Fence) -> OwnLease:
    """Return the caller's live lease.

    Raises:
        Refused: 404 if it does not exist, has ended, or belongs to another worker.
    """
    lease = OwnLeases(shared.database, caller.id).lease(fence)
    if lease is None:
        raise lost()
    return lease


def own(shared: Services, caller: WorkerCaller, fences: Sequence[Fence]) -> None:
    """Check that leases are the caller's, or were when they ended.

    Raises:
        Refused: 404 if one is not.
    """
    if not OwnLeases(shared.database, caller.id).own(fences):
        raise lost()


def lost() -> Refused:
    """Return the error for a caller that does not hold the lease."""
    return Refused(
        HTTPStatus.NOT_FOUND,
        "lease_unknown",
        "this worker holds no such lease",
        hint="end its job here: the lease has expired, or another worker has the job",
    )


def absent() -> Refused:
    """Return the error for an object that the holder may not access."""
    return Refused(
        HTTPStatus.NOT_FOUND,
        "object_unknown",
        "this lease has no such object",
        hint="request an input of the lease's job, or for a key below the lease's own prefix",
    )
