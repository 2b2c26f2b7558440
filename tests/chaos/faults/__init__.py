"""The faults, one file for each family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.faults.agents import AgentKilled, AgentPaused, AgentTerminated, ClockOff
from chaos.faults.database import BackendsTerminated, DatabaseCrashed, FailedOver, PoolerKilled
from chaos.faults.disk import DiskFull
from chaos.faults.hosts import HostKilled, HostPaused
from chaos.faults.network import AnswersLost, CutOff, Refused, SlowLink
from chaos.faults.partition import Partition
from chaos.faults.services import EngineKilled, EngineStopped, ServerReplaced, ServiceKilled
from chaos.faults.storage import StoreIll

if TYPE_CHECKING:
    from chaos.bed import Bed
    from chaos.faults.fault import Fault

KINDS: tuple[type[Fault], ...] = (
    AgentKilled,
    AgentPaused,
    AgentTerminated,
    ClockOff,
    HostKilled,
    HostPaused,
    DatabaseCrashed,
    FailedOver,
    BackendsTerminated,
    PoolerKilled,
    CutOff,
    Partition,
    Refused,
    SlowLink,
    AnswersLost,
    StoreIll,
    ServiceKilled,
    ServerReplaced,
    EngineKilled,
    EngineStopped,
    DiskFull,
)


def faults(bed: Bed) -> dict[str, Fault]:
    """Return a bed's faults by name."""
    return {kind.name: kind(bed) for kind in KINDS}
