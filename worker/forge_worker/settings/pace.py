"""The worker's settings about when it does what; times in seconds."""

from datetime import timedelta
from typing import Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator
from pydantic_settings import BaseSettings

from forge_worker.agent.lease_watchdog import Policy


class PaceSettings(BaseSettings):
    """How often it is heard, looks for work, and stores what its jobs write."""

    heartbeat_s: PositiveFloat = Field(30.0, description="seconds between renewals")
    lease_ttl_s: PositiveFloat = Field(120.0, description="seconds that a lease lasts")
    lease_policy: Policy = Field(
        "continue",
        description="what becomes of jobs whose leases cannot be renewed: strict has them gone"
        " before their leases end",
    )
    continue_s: NonNegativeFloat = Field(
        3600.0, description="seconds that they go on past their leases' end, with continue"
    )
    poll_s: PositiveFloat = Field(5.0, description="seconds between looks at the queue, unwoken")
    log_flush_s: PositiveFloat = Field(1.0, description="seconds between log chunks")
    store_patience_s: PositiveFloat = Field(
        300.0, description="seconds that a job waits for a store that is away"
    )
    crash_limit_s: PositiveFloat = Field(
        300.0,
        description="seconds that a worker which ended badly time after time waits before it"
        " starts again, at most",
    )
    sweep: bool = Field(default=True, description="run the sweeper in here too")
    sweep_s: PositiveFloat = Field(10.0, description="seconds between sweeps")
    offline_s: PositiveFloat = Field(
        120.0, description="seconds of silence after which the sweeper in here has a worker offline"
    )

    @model_validator(mode="after")
    def _beats_within_a_lease(self) -> Self:
        if self.heartbeat_s * 2 > self.lease_ttl_s:
            raise ValueError("heartbeat_s must be at most half of lease_ttl_s, or leases run out")
        return self

    @property
    def ttl(self) -> timedelta:
        return timedelta(seconds=self.lease_ttl_s)
