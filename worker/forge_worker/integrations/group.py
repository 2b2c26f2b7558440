"""The processes that train together: what they agree on, and the request to stop."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any, NoReturn

from forge_worker import job

# What a program killed by SIGTERM exits with. After 0, the job would have succeeded.
STOPPED = 143
_heard = threading.Event()


def agreed(*, asked: bool = False) -> bool:
    """Wait for all processes of the group, and return whether any of them is asked to stop."""
    distributed = _group()
    if distributed is None:
        return asked
    import torch  # type: ignore[import-not-found,unused-ignore]

    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    flag = torch.tensor(int(asked), device=device)
    distributed.all_reduce(flag, op=distributed.ReduceOp.MAX)
    return bool(flag.item())


def gathered(value: Any) -> list[Any]:  # noqa: ANN401 - whatever can be pickled
    """Return the values of all processes of the group, by rank; waits for all of them."""
    distributed = _group()
    if distributed is None:
        return [value]
    values = [value] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values


def rank() -> int:
    """Return the number of this process in the group; before there is one, what it will be."""
    distributed = _group()
    if distributed is not None:
        return int(distributed.get_rank())
    # Lightning starts processes that know only their number on this machine.
    return int(os.environ.get("RANK", "0")) or int(os.environ.get("LOCAL_RANK", "0"))


def first_here() -> bool:
    """Return whether this process is the first on its machine, which commits for the others."""
    return int(os.environ.get("LOCAL_RANK") or rank()) == 0


def _group() -> Any:  # noqa: ANN401 - the module, if it is in use
    distributed = sys.modules.get("torch.distributed")
    usable = distributed and distributed.is_available() and distributed.is_initialized()
    return distributed if usable else None


def listen() -> None:
    """Survive SIGTERM from now on, so that the current step can be saved; main thread only."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: _heard.set())


def asked() -> bool:
    """Return whether this process is asked to stop."""
    return _heard.is_set() or job.should_stop()


def leave() -> NoReturn:
    """Exit as a program that was stopped."""
    sys.exit(STOPPED)
