"""What ties an agent to the queue and the store, by whichever transport."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from forge_worker.agent.agent import Agent
from forge_worker.job_runs.attempt import Attempt
from forge_worker.queue.gateway import Gateway
from forge_worker.queue.objects import Objects


@dataclass(frozen=True, slots=True)
class Link:
    """`loops` runs beside an agent what the transport needs besides: hints, sweeps."""

    gateway: Gateway
    objects: Callable[[Attempt], Objects]
    loops: Callable[[Agent], AbstractContextManager[None]]
