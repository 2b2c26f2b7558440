"""Tell the member that ended a run from those that ended because of it.

The first end that the database hears of need not be the cause: when a machine dies, the others
notice within a second, and its lease runs out two minutes later.
"""

import re
from signal import SIGTERM

from forge_schema.model.lease import End
from forge_schema.model.states import Reason

# A member decides its run only if no other one has a lower level.
CAUSE, LIKELY_ECHO, ECHO = range(3)
# What Gloo, NCCL, torchrun, PyTorch's store and Python's sockets say when another member is gone or
# does not come to a barrier.
GONE = re.compile(
    r"Connection (closed by peer|reset|refused)|Broken pipe|\bEOFError\b"
    r"|ncclRemoteError|Watchdog caught collective|RendezvousClosed"
    # Gloo: "Timed out waiting 1800000ms for recv operation to complete".
    r"|Timed out waiting \d+ ?ms for (recv|send) operation"
    # Gloo and `monitored_barrier`; NCCL's flight recorder.
    r"|monitoredBarrier|Collective operation timeout"
    # PyTorch's store: "wait timeout after 300000ms, keys: /…".
    r"|[Ww]ait timeout after \d+ ?ms|Timed out after \d+ seconds waiting for clients"
    r"|Socket Timeout|failed to recv, got 0 bytes|DistNetworkError|DistStoreError"
)
# As the worker reports it, as a shell does, and as a launcher that exits with Python's return code.
TERMINATED = {-SIGTERM, 128 + SIGTERM, 256 - SIGTERM}


def level(end: End, *, asked: bool) -> int:
    """Return how likely a member ended because of another one.

    Args:
        end: the member's end.
        asked: whether it had been asked to stop because the run was over.
    """
    if end.reason is Reason.RUN_ENDED:
        return ECHO
    if end.reason is not Reason.EXIT_CODE:
        return CAUSE
    if GONE.search(end.detail or "") or (asked and end.exit_code in TERMINATED):
        return ECHO
    return LIKELY_ECHO if asked else CAUSE
