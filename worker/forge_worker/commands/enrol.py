"""`python -m forge_worker.commands.enrol`: get a worker token for a pod before it works.

The pod presents the service-account token that its cluster projects into it. The worker, and so its
jobs, see only the token that comes back.
"""

import ssl
import sys
from pathlib import Path

import httpx
from forge_schema.http_client import open_client, tls_context
from forge_schema.model.errors import ForgeError
from forge_schema.program.log import configure_log
from forge_schema.protocol.answers import Enrolled
from pydantic import Field, PositiveFloat, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from forge_worker.agent.registration import until_answered
from forge_worker.circuit_breaker import Servers
from forge_worker.files.small_files import write_atomically
from forge_worker.queue.http.session import PATH, PROGRAM, TIMEOUT, TokenRefused, not_answered, read
from forge_worker.settings.sections import OptionalPath, ServerUrls


class EnrolmentRefused(ForgeError):
    """The server refuses this pod's service-account token."""


class EnrolSettings(BaseSettings):
    """FORGE_* variables, most of them shared with the worker."""

    model_config = SettingsConfigDict(env_prefix="FORGE_", extra="ignore")

    url: ServerUrls = Field(min_length=1)
    tls_ca: OptionalPath = None
    reconnect_limit_s: PositiveFloat = 15.0
    token_file: Path = Field(description="file from which the worker reads its token")
    identity_file: Path = Path("/var/run/secrets/forge/token")


def main() -> None:
    """Write the token file once a server answers."""
    configure_log()
    try:
        settings = EnrolSettings.model_validate({})
        write(settings.token_file, enrolled(settings).token)
    except ValidationError as error:
        faults = [f"FORGE_{'_'.join(map(str, f['loc']))}".upper() for f in error.errors()]
        sys.exit(f"forge_worker.commands.enrol: {', '.join(faults)}: missing or invalid")
    except ForgeError as error:
        sys.exit(f"forge_worker.commands.enrol: {error.message}\n  {error.hint}")
    except OSError as error:
        sys.exit(f"forge_worker.commands.enrol: {error}")


def enrolled(settings: EnrolSettings) -> Enrolled:
    """Return the worker registered for this pod, waiting for a server that does not answer.

    Raises:
        EnrolmentRefused: the server does not accept the pod's token.
        ForgeError: the server refuses the pod for another reason.
        OSError: the pod's token cannot be read.
    """
    tls = tls_context(settings.tls_ca)
    servers = Servers(settings.url, longest_pause_s=settings.reconnect_limit_s)
    try:
        return until_answered(
            lambda: servers.ask(lambda url: _ask(url, settings.identity_file, tls)),
            limit_s=settings.reconnect_limit_s,
        )
    except TokenRefused as error:
        raise EnrolmentRefused(
            "the server refuses this pod's service-account token",
            hint="compare its issuer and audience with FORGE_ENROL_ISSUER and FORGE_ENROL_AUDIENCE",
        ) from error


def _ask(url: str, identity: Path, tls: ssl.SSLContext) -> Enrolled:
    # Read each time: the cluster replaces the token before it expires.
    shown = identity.read_text(encoding="utf-8").strip()
    headers = {"Authorization": f"Bearer {shown}"}
    try:
        with open_client(PROGRAM, tls, TIMEOUT) as client:
            answer = client.post(f"{url}{PATH}/enrol", headers=headers)
    except httpx.RequestError as error:
        raise not_answered(error) from error
    return read(answer, Enrolled)


def write(file: Path, token: str) -> None:
    """Write a token atomically, readable only by this user."""
    write_atomically(file, f"{token}\n", durable=False, mode=0o600)


if __name__ == "__main__":
    main()
