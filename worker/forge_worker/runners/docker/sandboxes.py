"""Sandboxes: containers made beforehand, which hold a network until a job's container joins it.

To set up a network takes most of the time that a container needs to start. A sandbox serves one job
and is removed with it: connections, listeners and firewall state in it never meet another job.
"""

from __future__ import annotations

import secrets
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import structlog
from docker.types import LogConfig

from forge_worker.loop import Loop
from forge_worker.runners.docker.container import (
    FAILED,
    Containers,
    Created,
    MainProcess,
    remove_container,
)
from forge_worker.runners.docker.hardening import remapping
from forge_worker.runners.docker.network import network_of, networks_of, remove_network
from forge_worker.runners.docker.pause import PROGRAM, loaded, pause_image
from forge_worker.runners.runner import EngineUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from forge_worker.runners.docker.engine import Engine
    from forge_worker.runners.docker.runner import DockerRunner

# On a sandbox: the id of its worker's folder. On a job's container: the name of its sandbox.
FOLDER_OF_SANDBOX = "forge.sandbox.folder"
SANDBOX_LABEL = "forge.sandbox"
NOBODY = "65532:65532"

log = structlog.get_logger(__name__)

PERIOD_S = 30.0


@dataclass(frozen=True)
class Sandbox:
    """A container that waits; `process` is None if it is not visible from here."""

    id: str
    name: str
    process: MainProcess | None

    @property
    def ended(self) -> bool:
        """Whether it has certainly ended."""
        return self.process is not None and self.process.ended()

    def broke(self, error: Exception) -> bool:
        """Return whether a container could not start because of this sandbox.

        Docker names it by its id, from version 28 on by its name.
        """
        return self.ended or self.id in str(error) or self.name in str(error)


class Sandboxes:
    """The sandboxes of an agent, with the network that its jobs have. Thread-safe.

    Those of jobs are known by the names of the jobs' containers, and last as long as `containers`
    are in use. `changed` is set when one may be missing or superfluous. `asked` is whether any job
    wanted one.
    """

    def __init__(self, engine: Engine, containers: Containers, network: str) -> None:
        self._engine = engine
        self._containers = containers
        self._network = network
        self._lock = Lock()
        self._waiting: deque[Sandbox] = deque()
        self._joined: dict[str, str] = {}
        self._starting = 0
        self.changed = containers.released
        self.asked = False

    def take(self, container: str) -> Sandbox | None:
        """Return a sandbox for a container that is in use; None if none is ready."""
        with self._lock:
            self.asked = True
            while self._waiting:
                sandbox = self._waiting.popleft()
                if not sandbox.ended:
                    self._joined[container] = sandbox.name
                    return sandbox
        return None

    def joined(self, container: str, sandbox: str) -> None:
        """Record that a container of an earlier agent is in a sandbox."""
        with self._lock:
            self._joined[container] = sandbox

    def not_joined(self, container: str) -> None:
        """Record that a container could not start in the sandbox that it took."""
        with self._lock:
            self._joined.pop(container, None)

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Have no sandbox made or removed while a job's container starts."""
        with self._lock:
            self._starting += 1
        try:
            yield
        finally:
            with self._lock:
                self._starting -= 1
            self.changed.set()

    @property
    def disturbs(self) -> bool:
        """Whether a job's container starts now."""
        return self._starting > 0

    @property
    def ready(self) -> int:
        """How many wait for a job."""
        with self._lock:
            return sum(not sandbox.ended for sandbox in self._waiting)

    def make(self, folder: str) -> None:
        """Make a sandbox that waits; `folder` is the id of the worker's folder.

        Raises:
            EngineUnreachable: the engine could not make it.
        """
        name = f"forge-sandbox-{secrets.token_hex(6)}"
        try:
            made = self._created(name, folder)
            self._engine.client.api.start(made)
            pid = self._engine.client.api.inspect_container(made)["State"]["Pid"]
        except FAILED as error:
            raise EngineUnreachable(f"the engine could not make a sandbox: {error}") from error
        with self._lock:
            self._waiting.append(Sandbox(made, name, MainProcess.of(pid, made)))
        log.debug("sandbox_ready", sandbox=name)

    def tidy(self, folder: str) -> None:
        """Remove the folder's sandboxes that neither wait nor have a job, and those that ended.

        With them go the networks of its containers that are gone, as after a kill of the agent.

        Raises:
            EngineUnreachable: the engine does not answer, or cannot remove one.
        """
        kept = self._kept()
        try:
            own = f"{FOLDER_OF_SANDBOX}={folder}"
            containers = self._engine.client.api.containers(all=True, filters={"label": own})
            networks = networks_of(self._engine, folder)
            if containers and not self._engine.kind.separates:
                # Podman removes none while another container has its network.
                kept |= self._occupied()
        except FAILED as error:
            raise EngineUnreachable(f"the engine cannot list its sandboxes: {error}") from error
        for container in containers:
            if not kept & {name.lstrip("/") for name in container["Names"] or []}:
                remove_container(self._engine, container["Id"])
        for name in networks:
            if name not in kept and not self._containers.used(name):
                remove_network(self._engine, name)

    def _occupied(self) -> set[str]:
        """Return the names of sandboxes whose jobs' containers are still there."""
        jobs = self._engine.client.api.containers(all=True, filters={"label": SANDBOX_LABEL})
        return {job["Labels"][SANDBOX_LABEL] for job in jobs}

    def end(self, folder: str) -> None:
        """Remove all sandboxes that have no job.

        Raises:
            EngineUnreachable: as `tidy`.
        """
        with self._lock:
            self._waiting.clear()
        self.tidy(folder)

    def _kept(self) -> set[str]:
        with self._lock:
            self._waiting = deque(sandbox for sandbox in self._waiting if not sandbox.ended)
            used = self._containers.used
            self._joined = {job: name for job, name in self._joined.items() if used(job)}
            return {*(sandbox.name for sandbox in self._waiting), *self._joined.values()}

    def _created(self, name: str, folder: str) -> str:
        image = loaded(self._engine.client)
        assert image is not None  # noqa: S101 - otherwise the pool does not run
        alone = self._network == "none"
        arguments: dict[str, Any] = {
            "name": name,
            # The job's own: it shares the names of its network.
            "hostname": name,
            "labels": {FOLDER_OF_SANDBOX: folder},
            "entrypoint": [PROGRAM],
            "network": "none" if alone else network_of(self._engine, name, folder),
            "user": NOBODY,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true"],
            "read_only": True,
            "ipc_mode": "none",
            "log_config": LogConfig(type="none"),
            **remapping(self._engine.kind),
        }
        return str(Created(client=self._engine.client).create(image, **arguments))


class SandboxPool(Loop):
    """Makes sandboxes, one at a time, until as many wait as are `wanted`; removes unused ones.

    `folder` is the id of the worker's folder. Those that an earlier agent left are removed too,
    except for those of jobs that continue. When the loop ends, none is left without a job.
    """

    name = "sandboxes"

    def __init__(self, docker: DockerRunner, folder: str, wanted: Callable[[], int]) -> None:
        super().__init__(PERIOD_S, woken=docker.sandboxes.changed)
        self._docker = docker
        self._sandboxes = docker.sandboxes
        self._folder = folder
        self._wanted = wanted

    def step(self) -> None:
        """Remove and make what is due, unless a job starts now: it comes first."""
        if self._sandboxes.disturbs:
            return
        try:
            self._sandboxes.tidy(self._folder)
        except EngineUnreachable as error:
            log.debug("sandboxes_not_tidied", error=error.message)
            return
        try:
            for _ in range(self._wanted()):
                if self._lacks_one() and not self._docker.obstacle():
                    self._sandboxes.make(self._folder)
        except EngineUnreachable as error:
            log.warning("sandbox_not_made", note="jobs start more slowly", error=error.message)

    def _run(self) -> None:
        super()._run()
        try:
            self._sandboxes.end(self._folder)
        except EngineUnreachable as error:
            log.warning("sandboxes_left", error=error.message)

    def _lacks_one(self) -> bool:
        if self.ending or self._sandboxes.disturbs or pause_image() is None:
            return False
        return self._sandboxes.ready < self._wanted()
