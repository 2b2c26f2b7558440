"""The spot watch: notices that the cloud will take the machine, and reports it once."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

import structlog
from forge_schema.model.spec import IS_SPOT, NOT_SPOT, SPOT

from forge_worker.loop import Bell, Loop
from forge_worker.spot import Metadata, MetadataAbsent, Notice, NoticeKind
from forge_worker.spot.clouds import Aws, Azure, Gcp

PERIOD_S = 2.0
# Pause after a failure of a server that is known to be there; others are asked less and less often.
MISSED_S = 10.0
ABSENT_S = 900.0
# This many failures in a row are more than a hiccup.
MISSES = 2

log = structlog.get_logger(__name__)


class Cloud(Protocol):
    """One cloud's preemption notices."""

    @property
    def name(self) -> str: ...

    def here(self) -> bool:
        """Return whether this machine runs on this cloud; `MetadataAbsent` means no."""

    def look(self) -> Notice | None:
        """Return the current notice."""

    def is_spot(self) -> bool:
        """Return whether this is a spot machine."""

    def gone(self) -> None:
        """Tell the cloud that the machine may be taken now, where the cloud supports that."""


class SpotMarket:
    """Whether the machine is a spot one: as the operator says (yes or no), or as its cloud does."""

    def __init__(self, asked: str = "auto", changed: Bell | None = None) -> None:
        self.is_spot: bool | None = {IS_SPOT: True, NOT_SPOT: False}.get(asked)
        self._changed = changed

    def note(self, *, is_spot: bool) -> None:
        """Note what the cloud says, unless the operator has said it."""
        if self.is_spot is None:
            self.is_spot = is_spot
            if self._changed is not None:
                self._changed.ring()

    def labels(self) -> dict[str, str]:
        """Return the label of a spot machine; any other has none."""
        return {SPOT: IS_SPOT} if self.is_spot else {}


class SpotWatch(Loop):
    """Detect the cloud, then look for notices until an interruption is reported.

    A recommendation is reported once, and so is its withdrawal. A single cloud is known to be the
    machine's own. `blind` is told why notices cannot be seen, and "" when they can again. The
    `market` is told whether the machine is a spot one.
    """

    name = "spot"
    shares = True

    def __init__(
        self,
        clouds: Sequence[Cloud],
        on_notice: Callable[[Notice], None],
        blind: Callable[[str], None] = lambda _: None,
        market: SpotMarket | None = None,
    ) -> None:
        super().__init__(PERIOD_S)
        self._clouds = clouds
        self._on_notice = on_notice
        self._blind = blind
        self._market = market or SpotMarket()
        self._misses = 0
        self._cloud: Cloud | None = None
        self._heard: NoticeKind | None = None

    def step(self) -> None:
        """Look once."""
        if self._heard is NoticeKind.INTERRUPTION:
            return
        try:
            cloud = self._cloud or self._here()
            if cloud is None:
                self.period_s = min(self.period_s * 2, ABSENT_S)
                return
            self._ask_market(cloud)
            notice = cloud.look()
        except MetadataAbsent as error:
            self._miss(error)
            return
        self.period_s = PERIOD_S
        if self._misses >= MISSES:
            log.info("metadata_back", cloud=cloud.name)
            self._blind("")
        self._misses = 0
        if notice is None and self._heard is NoticeKind.REBALANCE:
            notice = Notice(cloud.name, NoticeKind.WITHDRAWN)
        if notice is not None and notice.kind is not self._heard:
            self._on_notice(notice)
            self._heard = notice.kind

    def look_around(self) -> None:
        """Find the cloud, and whether the machine is a spot one, before the first step."""
        with suppress(MetadataAbsent):
            if cloud := self._here():
                self._ask_market(cloud)

    def _ask_market(self, cloud: Cloud) -> None:
        if self._market.is_spot is None:
            # Notices matter more than whether it knows this.
            with suppress(MetadataAbsent):
                self._market.note(is_spot=cloud.is_spot())

    def end(self, patience_s: float | None = None) -> None:  # noqa: ARG002  a question may wait long
        """End without waiting for an answer that may take half a minute."""
        super().end(0.0)

    def gone(self) -> None:
        """Tell the cloud that the jobs have been given back, if it is taking the machine."""
        if self._cloud is not None and self._heard is NoticeKind.INTERRUPTION:
            with suppress(MetadataAbsent):
                self._cloud.gone()

    def _here(self) -> Cloud | None:
        for cloud in self._clouds:
            try:
                here = cloud.here()
            except MetadataAbsent:
                if len(self._clouds) == 1:
                    raise
                continue
            if here:
                log.info("spot_watch_started", cloud=cloud.name)
                self._cloud = cloud
                self.period_s = PERIOD_S
                return cloud
        return None

    def _miss(self, error: MetadataAbsent) -> None:
        self._misses += 1
        self.period_s = min(self.period_s * 2, MISSED_S)
        if self._misses == MISSES:
            cloud = self._cloud or self._clouds[0]
            log.warning("metadata_unreachable", cloud=cloud.name, error=error.message)
            self._blind(f"the metadata service of {cloud.name} fails: {error.message}")


def clouds_of(spot: str, url: str) -> list[Cloud]:
    """Return the clouds to ask, by the setting `spot`: auto, none, or a cloud's name."""
    if spot == "none":
        return []
    metadata = Metadata(url)
    clouds: list[Cloud] = [Aws(metadata), Gcp(metadata), Azure(metadata)]
    return [cloud for cloud in clouds if spot in ("auto", cloud.name)]
