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
# What Gloo, NCCL and torchrun say when another member is gone.
GONE = re.compile(
    r"Connection closed by peer|Connection reset|ncclRemoteError|Watchdog caught collective"
    r"|RendezvousClosed"
)
# As the worker reports it, and as a shell does.
TERMINATED = {-SIGTERM, 128 + SIGTERM}


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
