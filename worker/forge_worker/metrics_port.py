"""The port that serves a worker's metrics: its meters, and gauges of the moment of a scrape."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import structlog
from forge_schema.model.states import Phase
from prometheus_client import ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from forge_worker.agent.agent import Agent
from forge_worker.connect import WorkerTransport
from forge_worker.meters import AgentMeters, metered_gateway, metered_objects

MIB = 1 << 20
# From the agent's key to the metric's name, its help, and the factor from the agent's unit.
Kinds = Mapping[str, tuple[str, str, float]]
GPU_GAUGES: Kinds = {
    "utilisation": ("utilisation_ratio", "Utilisation of the GPU, 0 to 1.", 0.01),
    "memory_mb": ("memory_used_bytes", "Memory in use on the GPU.", MIB),
    "power_w": ("power_watts", "Power draw of the GPU.", 1),
    "temperature_c": ("temperature_celsius", "Temperature of the GPU.", 1),
}
GPU_COUNTERS: Kinds = {
    "energy_j": ("energy_joules", "Energy used by the GPU since its driver started.", 1),
    "ecc": ("uncorrected_errors", "Uncorrected memory errors since its driver started.", 1),
}
MACHINE: Kinds = {
    "cpu_percent": ("machine_cpu_ratio", "Utilisation of all CPUs of the machine, 0 to 1.", 0.01),
    "memory_percent": (
        "machine_memory_ratio",
        "Share of the machine's memory in use, 0 to 1.",
        0.01,
    ),
    "memory_free_mb": ("machine_memory_free_bytes", "Free memory of the machine.", MIB),
    "disk_free_mb": ("machine_disk_free_bytes", "Free disk space where jobs write.", MIB),
}
LENT: Kinds = {
    "cpus": ("cpus_{}", "CPUs", 1),
    "memory_mb": ("memory_{}_bytes", "Memory", MIB),
    "disk_mb": ("disk_{}_bytes", "Disk", MIB),
}

log = structlog.get_logger(__name__)


class Gauges(Collector):
    """Report what the agent would write to its state file; nothing is measured for a scrape."""

    def __init__(self, state: Callable[[], Mapping[str, Any]], spooled: Callable[[], int]) -> None:
        self._state = state
        self._spooled = spooled

    def describe(self) -> Iterable[Metric]:
        """Return nothing, as the agent has no state before it runs."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield every gauge with its current value."""
        state = self._state()
        condition = state["condition"]
        yield _info(state)
        yield _jobs(state["jobs"])
        yield _gauge("draining", "Whether the worker takes no new jobs.", state["draining"])
        constrained = bool(condition.get("constrained"))
        yield _gauge("constrained", "Whether the machine is past its limits.", constrained)
        blind = bool(condition.get("no_notices"))
        yield _gauge("notices_unseen", "Whether the cloud's notices cannot be seen.", blind)
        refused = bool(state["refused"])
        yield _gauge("refused", "Whether the queue refuses the worker permanently.", refused)
        yield _gauge("spooled_ends", "Results not yet delivered to the queue.", self._spooled())
        yield from _lent(state["lends"], state["jobs"])
        for key, (name, about, factor) in MACHINE.items():
            if key in condition:
                yield _gauge(name, about, condition[key] * factor)
        yield from _gpus(state["lends"]["gpus"], state["jobs"], condition.get("gpus", {}))


def _gauge(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"forge_worker_{name}", about, value=float(value))


def _info(state: Mapping[str, Any]) -> Metric:
    labels = ("worker", "version", "runs")
    about = "The worker's name and version as labels; always 1."
    family = GaugeMetricFamily("forge_worker_info", about, labels=labels)
    family.add_metric([state["worker"], state["version"], ",".join(state["runs"])], 1)
    return family


def _jobs(jobs: list[dict[str, Any]]) -> Metric:
    family = GaugeMetricFamily(
        "forge_worker_jobs", "Jobs of the worker, by phase.", labels=["phase"]
    )
    counted = Counter(job["phase"] for job in jobs)
    for phase in Phase:
        family.add_metric([phase.value], counted[phase.value])
    return family


def _lent(lends: Mapping[str, Any], jobs: list[dict[str, Any]]) -> Iterator[Metric]:
    for key, (name, what, factor) in LENT.items():
        used = sum(job[key] for job in jobs)
        there = name.format("there")
        yield _gauge(there, f"{what} that the worker offers to jobs.", lends[key] * factor)
        yield _gauge(name.format("lent"), f"{what} in use by jobs.", used * factor)


def _gpus(
    gpus: list[dict[str, Any]], jobs: list[dict[str, Any]], looks: Mapping[str, Mapping[str, Any]]
) -> Iterator[Metric]:
    lent = {uuid for job in jobs for uuid in job["gpus"]}
    used = _of_gpus(GaugeMetricFamily, "lent", "Whether a job has the GPU.")
    for gpu in gpus:
        used.add_metric([gpu["uuid"]], float(gpu["uuid"] in lent))
    yield used
    yield from _looked(GaugeMetricFamily, GPU_GAUGES, looks)
    yield from _looked(CounterMetricFamily, GPU_COUNTERS, looks)


def _looked(
    family: type[Any], kinds: Kinds, looks: Mapping[str, Mapping[str, Any]]
) -> Iterator[Metric]:
    for key, (name, about, factor) in kinds.items():
        made = _of_gpus(family, name, about)
        for uuid, look in looks.items():
            if key in look:
                made.add_metric([uuid], look[key] * factor)
        yield made


def _of_gpus(family: type[Any], name: str, about: str) -> Any:  # noqa: ANN401 - one of two families
    return family(f"forge_worker_gpu_{name}", about, labels=["gpu"])


class Monitor:
    """The meters of one agent: wrap its transport first, then serve them while it runs."""

    def __init__(self) -> None:
        self._meters = AgentMeters()
        ProcessCollector(registry=self._meters.registry)

    def on(self, transport: WorkerTransport) -> WorkerTransport:
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
        self._meters.registry.register(Gauges(agent.state.document, agent.outbox.waiting))
        server, thread = start_http_server(port, host, self._meters.registry)
        log.info("metrics_served", host=host, port=server.server_port)
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
