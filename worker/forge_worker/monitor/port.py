"""The port that serves a worker's metrics."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import structlog
from prometheus_client import ProcessCollector, start_http_server

from forge_worker.agent.agent import Agent
from forge_worker.connect import Transport
from forge_worker.monitor.gauges import Gauges
from forge_worker.monitor.metered import metered_gateway, metered_objects
from forge_worker.monitor.meters import Meters

log = structlog.get_logger(__name__)


class Monitor:
    """The meters of one agent: wrap its transport first, then serve them while it runs."""

    def __init__(self) -> None:
        self._meters = Meters()
        ProcessCollector(registry=self._meters.registry)

    def on(self, transport: Transport) -> Transport:
        """Return the transport wrapped in meters."""
        return replace(
            transport,
            gateway=metered_gateway(transport.gateway, self._meters),
            objects=lambda attempt: metered_objects(transport.objects(attempt), self._meters),
        )

    @contextmanager
    def served(self, agent: Agent, host: str, port: int) -> Iterator[None]:
        """Serve the metrics while the block runs; port 0 picks a free one.

        Raises:
            OSError: the address is in use, or does not belong to this machine.
        """
        self._meters.registry.register(Gauges(agent.state.told, agent.outbox.waiting))
        server, thread = start_http_server(port, host, self._meters.registry)
        log.info("metrics_served", host=host, port=server.server_port)
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
