"""The database crashes, loses its clients, or is lost permanently; the pooler dies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.faults.fault import Fault

if TYPE_CHECKING:
    from random import Random


class DatabaseFault(Fault):
    """Hits the primary."""

    def targets(self) -> list[str]:
        return ["database"]


class DatabaseCrashed(DatabaseFault):
    """`pg_ctl stop -m immediate`, and a start."""

    name = "database crashed"
    weight = 2
    lasts = (0.0, 6.0)

    def strike(self, target: str, dice: Random) -> None:  # noqa: ARG002  nothing is left to chance
        self.bed.pair.crash()

    def heal(self, target: str) -> None:  # noqa: ARG002  there is one
        self.bed.pair.start_again()


class FailedOver(DatabaseFault):
    """The primary is lost; its standby replaces it, and a new standby is made."""

    name = "failed over"
    lasts = (1.0, 6.0)

    def strike(self, target: str, dice: Random) -> None:  # noqa: ARG002  as above
        self.bed.pair.fail_over()
        self.bed.find_primary()

    def heal(self, target: str) -> None:  # noqa: ARG002  there is one
        self.bed.find_primary()
        self.bed.pair.stand_by()


class BackendsTerminated(DatabaseFault):
    """`pg_terminate_backend` for some or all of the clients' backends."""

    name = "backends terminated"
    weight = 2

    def strike(self, target: str, dice: Random) -> None:  # noqa: ARG002  there is one
        pids = self.bed.pair.backends()
        self.bed.pair.terminate(dice.sample(pids, dice.randint(1, len(pids))))


class PoolerKilled(Fault):
    """PgBouncer is killed and restarted."""

    name = "pooler killed"
    lasts = (0.0, 6.0)

    def targets(self) -> list[str]:
        return ["pooler"] * (self.bed.pooler is not None)

    def strike(self, target: str, dice: Random) -> None:  # noqa: ARG002  as above
        assert self.bed.pooler is not None
        self.bed.pooler.leave_alone()
        self.bed.pooler.kill()

    def heal(self, target: str) -> None:  # noqa: ARG002  there is one
        assert self.bed.pooler is not None
        self.bed.pooler.resume()
