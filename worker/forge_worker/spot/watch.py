"""The spot watch: notices that the cloud will take the machine, and reports it once."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

import structlog

from forge_worker.loop import Loop
from forge_worker.spot.aws import Aws
from forge_worker.spot.azure import Azure
from forge_worker.spot.gcp import Gcp
from forge_worker.spot.metadata import Metadata, MetadataAbsent
from forge_worker.spot.notice import Kind, Notice

PERIOD_S = 2.0
# Pause after a failure of a server that has answered before; others are asked less and less often.
MISSED_S = 10.0
ABSENT_S = 900.0

log = structlog.get_logger(__name__)


class Cloud(Protocol):
    """One cloud's preemption notices."""

    @property
    def name(self) -> str: ...

    def here(self) -> bool:
        """Return whether this machine runs on this cloud; `MetadataAbsent` means no."""

    def look(self) -> Notice | None:
        """Return the current notice."""

    def gone(self) -> None:
        """Tell the cloud that the machine may be taken now, where the cloud supports that."""


class SpotWatch(Loop):
    """Detect the cloud, then look for notices until an interruption is reported.

    A recommendation is reported once, and so is its withdrawal.
    """

    name = "spot"

    def __init__(self, clouds: Sequence[Cloud], told: Callable[[Notice], None]) -> None:
        super().__init__(PERIOD_S)
        self._clouds = clouds
        self._told = told
        self._cloud: Cloud | None = None
        self._heard: Kind | None = None

    def step(self) -> None:
        """Look once."""
        if self._heard is Kind.INTERRUPTION:
            return
        cloud = self._cloud or self._found()
        if cloud is None:
            self.period_s = min(self.period_s * 2, ABSENT_S)
            return
        try:
            notice = cloud.look()
        except MetadataAbsent as error:
            self._miss(error)
            return
        self.period_s = PERIOD_S
        if notice is None and self._heard is Kind.REBALANCE:
            notice = Notice(cloud.name, Kind.WITHDRAWN)
        if notice is not None and notice.kind is not self._heard:
            self._told(notice)
            self._heard = notice.kind

    def end(self, patience_s: float | None = None) -> None:  # noqa: ARG002  a question may wait long
        """End without waiting for an answer that may take half a minute."""
        super().end(0.0)

    def gone(self) -> None:
        """Tell the cloud that the jobs have been given back, if it is taking the machine."""
        if self._cloud is not None and self._heard is Kind.INTERRUPTION:
            with suppress(MetadataAbsent):
                self._cloud.gone()

    def _found(self) -> Cloud | None:
        for cloud in self._clouds:
            with suppress(MetadataAbsent):
                if cloud.here():
                    log.info("spot_watch_started", cloud=cloud.name)
                    self._cloud = cloud
                    self.period_s = PERIOD_S
                    return cloud
        return None

    def _miss(self, error: MetadataAbsent) -> None:
        if self.period_s == PERIOD_S:
            log.warning("metadata_unreachable", error=error.message)
        self.period_s = min(self.period_s * 2, MISSED_S)


def clouds_of(spot: str, url: str) -> list[Cloud]:
    """Return the clouds to ask, by the setting `spot`: auto, none, or a cloud's name."""
    if spot == "none":
        return []
    metadata = Metadata(url)
    clouds: list[Cloud] = [Aws(metadata), Gcp(metadata), Azure(metadata)]
    return [cloud for cloud in clouds if spot in ("auto", cloud.name)]
