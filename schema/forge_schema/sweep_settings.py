"""What a sweep needs to know: FORGE_* variables, for the process and for the scheduled function."""

from datetime import timedelta

from pydantic import Field, NonNegativeInt, PositiveFloat
from pydantic_settings import BaseSettings, SettingsConfigDict

from forge_schema.queue import Queue
from forge_schema.sweep import BRAKE, Sweep, Windows


class SweepSettings(BaseSettings):
    """Where the queue is, and after how long what is given up."""

    model_config = SettingsConfigDict(env_prefix="FORGE_", extra="ignore")

    database_url: str = Field(description="the queue's database, postgresql://…")
    prepare: bool = Field(default=True, description="off behind a transaction-mode pooler")
    lease_ttl_s: PositiveFloat = Field(120.0, description="seconds that a lease lasts")
    offline_s: PositiveFloat = Field(120.0, description="silence after which a worker is offline")
    reap_s: PositiveFloat = Field(3600.0, description="until an ephemeral worker is removed")
    unconnected_s: PositiveFloat = Field(300.0, description="until one never connected is removed")

    overrun_s: PositiveFloat = Field(
        7200.0, description="until a job past its time limit is ended that its worker holds on to"
    )
    brake: NonNegativeInt = Field(
        BRAKE, description="so many leases that run out together are ended without a second look"
    )
    sweep_s: PositiveFloat = Field(10.0, description="seconds between sweeps")

    @property
    def ttl(self) -> timedelta:
        return timedelta(seconds=self.lease_ttl_s)

    def sweep(self, queue: Queue) -> Sweep:
        every = timedelta(seconds=self.sweep_s)
        return Sweep(queue, windows=self.windows(), every=every, brake=self.brake)

    def windows(self) -> Windows:
        return Windows(
            offline=timedelta(seconds=self.offline_s),
            reap_ephemeral=timedelta(seconds=self.reap_s),
            reap_unconnected=timedelta(seconds=self.unconnected_s),
            overrun=timedelta(seconds=self.overrun_s),
        )
