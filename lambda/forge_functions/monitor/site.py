"""Metrics as part of an app: a meter around its requests, and the path `/metrics`."""

from fastapi import FastAPI

from forge_functions.monitor import route
from forge_functions.monitor.meters import Meters
from forge_functions.monitor.queue_gauges import QueueGauges
from forge_functions.monitor.request_meter import RequestMeter
from forge_functions.services import Services


def metered(app: FastAPI) -> FastAPI:
    """Add `/metrics` to an app and return the app."""
    services: Services = app.state.services
    meters = app.state.meters = Meters()
    app.state.gauges = QueueGauges(lambda: services.database, services.settings.ttl)
    services.exchanged = meters.exchanged
    app.include_router(route.router, include_in_schema=False)
    app.add_middleware(RequestMeter, meters=meters)
    return app
