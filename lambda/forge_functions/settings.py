"""The server's settings: FORGE_* variables, on Lambda and under `forge-server`."""

import re
import ssl
from collections.abc import Iterator, Mapping
from datetime import timedelta
from importlib.metadata import version
from typing import Annotated, Self

from forge_schema.access.names import check_team
from forge_schema.model.states import Role
from forge_schema.program import faults
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

VERSION = version("forge-queue")

# A namespace and a service account's name in Kubernetes's syntax.
ACCOUNT = re.compile(r"[a-z0-9-]{1,63}:[a-z0-9.-]{1,253}")


def _accounts(text: object) -> object:
    words = [word.strip() for word in text.split(",")] if isinstance(text, str) else text
    accounts = [word for word in words if word] if isinstance(words, list) else words
    if isinstance(accounts, list) and not all(
        ACCOUNT.fullmatch(str(account)) for account in accounts
    ):
        raise ValueError("write service accounts as namespace:name,namespace:name")
    return accounts


def _team(name: str) -> str:
    check_team(name)
    return name


Team = Annotated[str, AfterValidator(_team)]


class ServerSettings(BaseSettings):
    """The settings of the HTTP functions."""

    model_config = SettingsConfigDict(env_prefix="FORGE_", extra="ignore", defer_build=True)

    database_url: str = Field(
        min_length=1,
        description="the queue's database, postgresql://…",
        examples=["postgresql://forge@db.example/forge"],
    )
    store_url: str = Field(
        min_length=1,
        description="the object store, s3://bucket/prefix or file:///folder",
        examples=["file:///srv/forge"],
    )
    server_secret: SecretStr = Field(
        min_length=32,
        description="signs short-lived tokens and URLs; the same for all servers",
        examples=["$(python3 -c 'import secrets; print(secrets.token_hex(32))')"],
    )
    public_url: str = Field(
        "", description="this server's URL for callers; if empty, taken from each request"
    )
    prepare: bool = Field(default=True, description="off behind a transaction-mode pooler")
    database_connections: PositiveInt = Field(
        8, description="maximum number of database connections for workers, submissions and actions"
    )
    read_connections: NonNegativeInt = Field(
        4, description="additional ones for lists and pages; 0 shares those above"
    )
    report_connections: NonNegativeInt = Field(
        2, description="additional ones for reports; 0 shares the first"
    )
    report_limit_s: PositiveFloat = Field(30.0, description="time limit of a report in seconds")
    caller_rate: NonNegativeFloat = Field(
        100.0, description="requests per second of one user in the long run; 0 sets no limit"
    )
    heartbeat_s: PositiveFloat = Field(30.0, description="seconds between a worker's heartbeats")
    lease_ttl_s: PositiveFloat = Field(120.0, description="seconds that a lease lasts")
    long_poll_s: NonNegativeFloat = Field(
        20.0, description="seconds that a claim may wait for work; 0 if calls are billed by time"
    )
    body_limit_bytes: PositiveInt = Field(2 << 20, description="largest accepted request body")
    url_lasts_s: int = Field(900, ge=1, le=900, description="seconds that a signed URL is valid")
    token_lasts_s: int = Field(900, ge=60, le=3600, description="seconds that a JWT is valid")
    session_lasts_s: int = Field(
        43_200, ge=60, le=2_592_000, description="seconds that a login to the dashboard lasts"
    )
    up_token: SecretStr | None = Field(
        None,
        min_length=32,
        description="a bearer token for the user of a `forge up`, which makes and sets it",
    )
    metrics_key: SecretStr | None = Field(
        None, min_length=32, description="a bearer token for /metrics alone, with all queues"
    )
    metrics_open: bool = Field(default=False, description="whether /metrics needs no key")
    oidc_issuer: str = Field("", description="issuer of accepted bearer tokens; empty accepts none")
    oidc_audience: str = Field("", description="audience that such tokens must have")
    oidc_client_id: str = Field(
        "", description="this server's name at the issuer, for logins to the dashboard; empty: none"
    )
    oidc_client_secret: SecretStr = Field(
        SecretStr(""), description="its secret there, unless it is a public client"
    )
    oidc_owner_claim: str = Field("sub", description="the claim that names the owner")
    oidc_role_claim: str = Field("forge_role", description="the claim that names the roles")
    oidc_roles: dict[str, Role] = Field(
        default_factory=dict,
        description='issuer roles and ours, {"ml-team": "submitter"}; empty means our own names',
    )
    oidc_team_claim: str = Field("groups", description="the claim that names the groups")
    oidc_teams: dict[Annotated[str, Field(min_length=1)], Team] = Field(
        default_factory=dict,
        description='issuer groups and our teams, {"ml-nlp": "nlp"}; the first that a person has'
        " counts; empty means that only admins say who is in a team",
    )
    oidc_everyone: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list,
        description='issuer groups whose people see all owners\' jobs, ["ml-profs"], and change'
        " what their role lets them, unless an admin put them into a team",
    )

    enrol_issuer: str = Field(
        "", description="issuer URL of the cluster whose pods may enrol as workers"
    )
    enrol_audience: str = Field("forge", min_length=1, description="audience of a pod's token")
    enrol_accounts: Annotated[list[str], NoDecode, BeforeValidator(_accounts)] = Field(
        default_factory=list,
        description="service accounts of those pods as namespace:name, separated by commas",
    )

    @model_validator(mode="after")
    def _some_pods_enrol(self) -> Self:
        if bool(self.enrol_issuer) != bool(self.enrol_accounts):
            raise ValueError("set both --enrol-issuer and --enrol-accounts (FORGE_ENROL_…)")
        return self

    @model_validator(mode="after")
    def _tokens_are_for_us(self) -> Self:
        if self.oidc_client_id and not self.oidc_issuer:
            raise ValueError("--oidc-client-id needs --oidc-issuer (FORGE_OIDC_ISSUER)")
        if self.oidc_issuer and not (self.oidc_audience or self.oidc_client_id):
            # Without either, the issuer's tokens for any other service would be accepted.
            raise ValueError("oidc_issuer needs oidc_audience or oidc_client_id")
        return self

    @property
    def ttl(self) -> timedelta:
        return timedelta(seconds=self.lease_ttl_s)


class FunctionsSettings(ServerSettings):
    """Serve the HTTP functions of a Forge queue."""

    model_config = SettingsConfigDict(
        cli_prog_name="forge-server",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_exit_on_error=False,
    )

    host: str = Field("127.0.0.1", description="the address to listen on")
    port: int = Field(8900, ge=0, le=65535, description="its port; 0 chooses any")
    socket_fd: int | None = Field(
        None, ge=0, description="the descriptor of an inherited socket that listens there already"
    )
    tls_cert: str | None = Field(None, description="the certificate chain, PEM; enables TLS")
    tls_key: str | None = Field(None, description="its key, PEM, unless it is in the chain's file")

    @model_validator(mode="after")
    def _key_has_a_certificate(self) -> Self:
        if self.tls_key and not self.tls_cert:
            raise ValueError("--tls-key needs --tls-cert (FORGE_TLS_CERT)")
        return self


def tls_faults(given: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with the files of TLS."""
    files = [name for name in ("tls_cert", "tls_key") if name in given]
    unreadable = [(name, why) for name in files if (why := faults.unreadable_file(given[name]))]
    for name, why in unreadable:
        yield f"{faults.place(FunctionsSettings, name)}: {why}"
    if "tls_cert" in given and not unreadable and (why := _tls_fault(given)):
        yield f"{faults.place(FunctionsSettings, 'tls_cert')}: {why}"


def _tls_fault(given: Mapping[str, str]) -> str:
    chain, key = given["tls_cert"], given.get("tls_key")
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain, key, password="")
    except OSError as error:
        files = f"{chain} and {key}" if key else chain
        why = str(error.strerror).partition(" (_ssl")[0]
        return f"{files}: no usable certificate with its unencrypted key, in PEM: {why}"
    return ""
