"""API Gateway's events, answered by an app that is made with the first of them."""

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from fastapi import APIRouter
from mangum import Mangum
from mangum.types import LambdaContext
from pydantic import Field, NonNegativeFloat, PositiveInt

from forge_functions import logs
from forge_functions.app import create_app
from forge_functions.services import Services
from forge_functions.settings import ServerSettings

Event = dict[str, Any]
Handler = Callable[[Event, LambdaContext], dict[str, Any]]


class LambdaSettings(ServerSettings):
    """The server's, where waiting costs and one request is served at a time."""

    long_poll_s: NonNegativeFloat = Field(0.0, description="seconds that a claim may wait")
    database_connections: PositiveInt = Field(2, description="connections to the database at most")


def answering(*routers: APIRouter) -> Handler:
    """Return a handler that serves these routers; its settings are read when it is first called."""

    @cache
    def adapter() -> Mangum:
        logs.configure(sys.stdout)
        services = Services(LambdaSettings.model_validate({}))
        return Mangum(create_app(services, *routers), lifespan="off")

    def handler(event: Event, context: LambdaContext) -> dict[str, Any]:
        return adapter()(event, context)

    return handler
