"""Answer API Gateway's events with an app that the first event creates."""

import sys
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, FastAPI
from forge_schema.made_once import made_once
from forge_schema.program.log import configure_log
from mangum import Mangum
from mangum.types import LambdaContext
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from forge_functions.app import create_app
from forge_functions.services import Services
from forge_functions.settings import ServerSettings


class LambdaSettings(ServerSettings):
    """The server's settings for Lambda, where waiting costs and requests come one at a time."""

    long_poll_s: NonNegativeFloat = Field(0.0, description="seconds that a claim may wait")
    database_connections: PositiveInt = Field(
        2, description="maximum number of database connections"
    )
    read_connections: NonNegativeInt = Field(0, description="further ones for lists and pages")
    report_connections: NonNegativeInt = Field(0, description="further ones for reports")


class LambdaHandler:
    """A Lambda handler that serves some routers. Settings are read at the first call."""

    def __init__(
        self, *routers: APIRouter, finish: Callable[[FastAPI], FastAPI] = lambda app: app
    ) -> None:
        self._routers = routers
        self._finish = finish

    def __call__(self, event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        return self._app(event, context)

    @made_once
    def services(self) -> Services:
        """State that is kept between invocations."""
        return Services(LambdaSettings.model_validate({}))

    @made_once
    def _app(self) -> Mangum:
        configure_log("json", sys.stdout)
        app = self._finish(create_app(self.services, *self._routers))
        return Mangum(app, lifespan="off")
