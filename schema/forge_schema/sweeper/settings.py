"""Settings of the sweeper from FORGE_* variables, for the process and the Lambda function."""

from datetime import timedelta

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from forge_schema.queue.queue import Queue
from forge_schema.storage import open_store
from forge_schema.sweeper.retention import Ages, Retention
from forge_schema.sweeper.tick import BRAKE, Tick, Windows


class SweeperSettings(BaseSettings):
    """The queue's database, and the times after which the sweeper acts."""

    model_config = SettingsConfigDict(env_prefix="FORGE_", extra="ignore", defer_build=True)

    database_url: str = Field(
        min_length=1,
        description="the queue's database, postgresql://…",
        examples=["postgresql://forge@db.example/forge"],
    )
    prepare: bool = Field(default=True, description="off behind a transaction-mode pooler")
    lease_ttl_s: PositiveFloat = Field(120.0, description="seconds that a lease lasts")
    offline_s: PositiveFloat = Field(
        120.0, description="seconds of silence after which a worker is offline"
    )
    reap_s: PositiveFloat = Field(
        3600.0, description="seconds until an offline ephemeral worker is removed"
    )
    unconnected_s: PositiveFloat = Field(
        300.0, description="seconds until a worker that never connected is removed"
    )

    overrun_s: PositiveFloat = Field(
        300.0,
        description="seconds past its grace period until a job that was asked to end is ended",
    )
    storing_s: PositiveFloat = Field(
        7200.0, description="the same while its worker stores its output"
    )
    preparing_s: PositiveFloat = Field(
        3600.0, description="seconds from its claim until a job that was not started is given back"
    )
    unserved_s: NonNegativeFloat = Field(
        3600.0,
        description="seconds past its expiry until a lease is ended whose worker finds no server",
    )
    brake: NonNegativeInt = Field(
        BRAKE, description="up to this many leases that expire together are ended without waiting"
    )
    thin_after_s: NonNegativeFloat = Field(
        86_400.0,
        description="age from which one metric line and sample per minute stays; 0 means never",
    )
    thin_more_after_s: NonNegativeFloat = Field(
        691_200.0, description="age from which one in ten minutes stays; 0 means never"
    )
    store_url: str = Field("", description="the object store; needed to remove jobs")
    keep_jobs_days: NonNegativeInt = Field(
        0, description="days after its end at which a job is removed; 0 means never"
    )
    audit_months: NonNegativeInt = Field(
        0, description="months after which a month of the audit trail is dropped; 0 means never"
    )
    sweep_s: PositiveFloat = Field(10.0, description="seconds between ticks")

    @field_validator("keep_jobs_days")
    @classmethod
    def _objects_leave_too(cls, days: int, info: ValidationInfo) -> int:
        if days and not info.data.get("store_url"):
            raise ValueError("a job is removed with its objects: set the store's URL too")
        return days

    @property
    def ttl(self) -> timedelta:
        return timedelta(seconds=self.lease_ttl_s)

    def tick(self, queue: Queue) -> Tick:
        every = timedelta(seconds=self.sweep_s)
        return Tick(queue, windows=self.windows(), every=every, brake=self.brake, ages=self.ages())

    def ages(self) -> Ages:
        return Ages(
            minute=timedelta(seconds=self.thin_after_s),
            ten_minutes=timedelta(seconds=self.thin_more_after_s),
        )

    def retention(self, queue: Queue) -> Retention:
        """Return what removes old jobs; `StoreUrlInvalid` if the store's URL is malformed."""
        return Retention(
            queue.database,
            actor=queue.actor,
            store=open_store(self.store_url) if self.store_url else None,
            jobs_days=self.keep_jobs_days,
            audit_months=self.audit_months,
        )

    def windows(self) -> Windows:
        return Windows(
            offline=timedelta(seconds=self.offline_s),
            reap_ephemeral=timedelta(seconds=self.reap_s),
            reap_unconnected=timedelta(seconds=self.unconnected_s),
            overrun=timedelta(seconds=self.overrun_s),
            storing=timedelta(seconds=self.storing_s),
            preparing=timedelta(seconds=self.preparing_s),
            unserved=timedelta(seconds=self.unserved_s),
        )
