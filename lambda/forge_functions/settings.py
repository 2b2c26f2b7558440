"""The server's settings: FORGE_* variables, on Lambda and under `forge-server`."""

from datetime import timedelta
from typing import Self

from forge_schema.states import Role
from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict


class ServerSettings(BaseSettings):
    """What the HTTP functions need to know."""

    model_config = SettingsConfigDict(env_prefix="FORGE_", extra="ignore")

    database_url: str = Field(description="the queue's database, postgresql://…")
    store_url: str = Field(description="the object store, s3://bucket/prefix or file:///folder")
    server_secret: SecretStr = Field(
        min_length=32, description="signs short-lived tokens and URLs; the same for all servers"
    )
    public_url: str = Field(
        "", description="what callers reach this server by; empty takes each request's own"
    )
    prepare: bool = Field(default=True, description="off behind a transaction-mode pooler")
    database_connections: PositiveInt = Field(
        8, description="connections to the database at most, for workers, submits and acts"
    )
    read_connections: NonNegativeInt = Field(
        4, description="further ones for lists and pages; 0 shares those above"
    )
    report_connections: NonNegativeInt = Field(
        2, description="further ones for reports; 0 shares the first"
    )
    report_limit_s: PositiveFloat = Field(30.0, description="seconds that a report may take")
    heartbeat_s: PositiveFloat = Field(30.0, description="seconds between a worker's heartbeats")
    lease_ttl_s: PositiveFloat = Field(120.0, description="seconds that a lease lasts")
    long_poll_s: NonNegativeFloat = Field(
        20.0, description="seconds that a claim may wait for work; 0 where a call costs by time"
    )
    body_limit_bytes: PositiveInt = Field(2 << 20, description="the largest request body taken")
    url_lasts_s: int = Field(900, ge=1, le=900, description="seconds that a signed URL is valid")
    token_lasts_s: int = Field(900, ge=60, le=3600, description="seconds that a JWT is valid")
    session_lasts_s: int = Field(
        43_200, ge=60, le=2_592_000, description="seconds that a login to the dashboard lasts"
    )
    metrics_open: bool = Field(
        default=False, description="whether anybody may read /metrics, without a key"
    )
    oidc_issuer: str = Field("", description="whose bearer tokens are taken; empty takes none")
    oidc_audience: str = Field("", description="whom such a token must be for")
    oidc_owner_claim: str = Field("sub", description="the claim that names the owner")
    oidc_role_claim: str = Field("forge_role", description="the claim that names the roles")
    oidc_roles: dict[str, Role] = Field(
        default_factory=dict,
        description='its words and our roles, {"ml-team": "submitter"}; none are our own words',
    )

    @model_validator(mode="after")
    def _tokens_are_for_us(self) -> Self:
        if self.oidc_issuer and not self.oidc_audience:
            # Without it a token that the issuer made for any other service would do.
            raise ValueError("oidc_issuer needs oidc_audience")
        return self

    @property
    def ttl(self) -> timedelta:
        return timedelta(seconds=self.lease_ttl_s)
