"""`forge-server`: every path in one process, under uvicorn."""

import sys

import uvicorn
from fastapi import FastAPI
from forge_schema.errors import ForgeError
from forge_schema.log import configure_log
from pydantic import Field, ValidationError
from pydantic_settings import CliApp, SettingsConfigDict

from forge_functions.app import create_app
from forge_functions.routes import (
    acts,
    admin_events,
    admin_keys,
    admin_queues,
    admin_workers,
    bundles,
    fleet,
    health,
    job,
    jobs,
    objects,
    reports,
    submission,
    templates,
    token,
    worker_records,
    workers,
)
from forge_functions.services import Services
from forge_functions.settings import ServerSettings

ROUTERS = (
    health.router,
    token.router,
    submission.router,
    jobs.router,
    job.router,
    acts.router,
    templates.router,
    bundles.router,
    reports.router,
    fleet.router,
    admin_workers.router,
    admin_keys.router,
    admin_queues.router,
    admin_events.router,
    workers.router,
    worker_records.router,
    objects.router,
)
EXIT_USAGE = 2


class Settings(ServerSettings):
    """Serve the HTTP functions of a Forge queue."""

    model_config = SettingsConfigDict(
        cli_prog_name="forge-server", cli_kebab_case=True, cli_implicit_flags=True
    )

    host: str = Field("127.0.0.1", description="the address to listen on")
    port: int = Field(8900, ge=0, le=65535, description="its port; 0 is any")
    tls_cert: str | None = Field(None, description="the certificate chain, PEM; serves TLS")
    tls_key: str | None = Field(None, description="its key, PEM")


def whole_app(settings: ServerSettings) -> FastAPI:
    """Return the app with every path."""
    return create_app(Services(settings), *ROUTERS)


def main() -> None:
    """Serve until told to leave."""
    configure_log()
    try:
        serve(CliApp.run(Settings))
    except ValidationError as error:
        for fault in error.errors():
            flag = "--" + "-".join(str(part) for part in fault["loc"]).replace("_", "-")
            sys.stderr.write(f"forge-server: {flag}: {fault['msg']}\n")
        sys.exit(EXIT_USAGE)
    except ForgeError as error:
        hint = f"\n  {error.hint}" if error.hint else ""
        sys.exit(f"forge-server: {error.message}{hint}")


def serve(settings: Settings) -> None:
    """Run uvicorn until SIGTERM or SIGINT."""
    uvicorn.run(
        whole_app(settings),
        host=settings.host,
        port=settings.port,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        access_log=False,
        server_header=False,
    )


if __name__ == "__main__":
    main()
