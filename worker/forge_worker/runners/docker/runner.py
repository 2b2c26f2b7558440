"""Run jobs in hardened containers of a Docker engine on this machine.

Folders are bind mounts and the output goes through a named pipe, so the engine must run on this
machine's kernel. Images need /bin/sh.
"""

from __future__ import annotations

import os
import platform
import uuid
from contextlib import suppress
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

import structlog
from docker.errors import APIError, ImageNotFound

from forge_worker.runners.docker import hardening
from forge_worker.runners.docker.container import (
    FAILED,
    ContainerHandle,
    Containers,
    Created,
    remove_container,
)
from forge_worker.runners.docker.engine import (
    Engine,
    EngineRun,
    engine_answers,
    engine_run,
    of_label,
)
from forge_worker.runners.docker.hardening import DockerPolicy
from forge_worker.runners.docker.mounts import Accounts, accounts_of, handed_over
from forge_worker.runners.docker.network import (
    EXPOSED,
    EXPOSED_HINT,
    Network,
    network_of,
    remove_network,
)
from forge_worker.runners.docker.pipe import Pipe
from forge_worker.runners.docker.pipe_keeper import GONE
from forge_worker.runners.docker.sandboxes import (
    FOLDER_OF_SANDBOX,
    SANDBOX_LABEL,
    Sandbox,
    Sandboxes,
)
from forge_worker.runners.engines import check_fit
from forge_worker.runners.images.image import ensure_image, removed
from forge_worker.runners.images.reference import ImageRefused
from forge_worker.runners.owners import give_job, give_mounted
from forge_worker.runners.runner import (
    FOLDER_LABEL,
    WORKER_LABEL,
    EngineUnreachable,
    Handle,
    JobPaths,
    Leftover,
    Mount,
    RunSpec,
    StartFailed,
    belongs,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from docker.types import DeviceRequest

__all__ = ["DockerPolicy", "DockerRunner", "engine_answers"]

log = structlog.get_logger(__name__)

AGENT_LABEL = "forge.agent"
PIPE_LABEL = "forge.pipe"
ENGINE_LABEL = "forge.engine"
CONFLICT = 409
# Podman's answer has another code.
IN_USE = "is already in use"
MOST_IMAGES = 100


class DockerRunner:
    """Runs jobs in containers.

    `exposed` is why containers could reach metadata addresses at the last start, or "".
    """

    kind: ClassVar[str] = "docker"
    on_host: ClassVar[bool] = False

    def __init__(self, policy: DockerPolicy | None = None) -> None:
        self._policy = policy or DockerPolicy()
        self._engine = Engine()
        self._agent = uuid.uuid4().hex
        self._cpus: float | None = None
        self.containers = Containers()
        network = hardening.network(self._policy)
        self.sandboxes = Sandboxes(self._engine, self.containers, network)
        self._run: EngineRun | None = None
        self._network = Network()
        # By their ids, so that none ever changes.
        self._images: dict[str, dict[str, Any]] = {}
        # By the ids of images.
        self._accounts: dict[str, Accounts] = {}
        self.exposed = ""

    def paths(self, spec: RunSpec) -> JobPaths:
        """Return the folders as the job sees them: where they are mounted."""
        return JobPaths(*map(PurePosixPath, hardening.places(spec)))

    def place(self, mount: Mount) -> PurePosixPath:
        """Return where the job finds a mounted folder."""
        return mount.target

    def foundation(self, spec: RunSpec) -> str:
        """Return the identity of the job's Python: the image's id.

        Raises:
            ImageMissing: as `start`.
            StartFailed: the engine does not answer.
        """
        try:
            image = self._image(spec)
        except FAILED as error:
            raise refused(spec, error) from error
        return f"{image['Id']} {platform.machine()}"

    def start(self, spec: RunSpec) -> Handle:
        """Create the container, then start it.

        Raises:
            ImageMissing: its image is not here and cannot be fetched.
            StartFailed: the engine could not start it.
        """
        try:
            image = self._image(spec)
            check_fit(self._engine.kind)
            self._prepare_network(spec)
            devices = self._devices(spec)
            uid, gid = self._owner()
            give_job(spec, uid, gid)
            give_mounted(spec.mounts, uid, gid)
            pipe = Pipe.made(_pipe_path(spec.log_path), spec.log_path, uid=uid, gid=gid)
        except (*FAILED, OSError) as error:
            raise refused(spec, error) from error
        try:
            run = self._run = engine_run(self._engine, self._run)
            self.containers.use(spec.name)
            arguments = {"image": image, "pipe": pipe, "owner": (uid, gid), "devices": devices}
            with self.sandboxes.undisturbed():
                self._launch(spec, **arguments)
        except (*FAILED, OSError) as error:
            self._images.pop(spec.image or "", None)
            self._clear(spec.name)
            pipe.finish()
            raise refused(spec, error) from error
        return self._handle(spec.name, pipe, spec.grace_s, run)

    def adopt(self, leftover: Leftover, log_path: Path, grace_s: float) -> ContainerHandle | None:
        """Take over a container of an earlier agent, which may have ended meanwhile."""
        try:
            run = engine_run(self._engine)
            container = self._engine.client.api.inspect_container(leftover.id)
            pipe = _reopened(log_path, running=container["State"]["Running"])
        except (*FAILED, OSError) as error:
            log.warning("job_not_adopted", container=leftover.name, error=str(error))
            return None
        self.containers.use(leftover.name)
        if sandbox := leftover.labels.get(SANDBOX_LABEL):
            self.sandboxes.joined(leftover.name, sandbox)
        # What runs now was not stopped by any engine before this one.
        running = container["State"]["Running"]
        began = of_label(leftover.labels.get(ENGINE_LABEL, ""))
        since = run if running else began
        alone_s = None
        if running:
            log_path.with_name(GONE).unlink(missing_ok=True)
        elif run.process == began.process:
            # An engine that was not there does not know when the container ended.
            alone_s = _alone_s(log_path, container["State"]["FinishedAt"])
        return self._handle(leftover.name, pipe, grace_s, since, watched=False, alone_s=alone_s)

    def _handle(
        self,
        name: str,
        pipe: Pipe,
        grace_s: float,
        since: EngineRun,
        *,
        watched: bool = True,
        alone_s: float | None = None,
    ) -> ContainerHandle:
        return ContainerHandle(
            self._engine,
            name,
            pipe,
            grace_s,
            containers=self.containers,
            since=since,
            watched=watched,
            alone_s=alone_s,
        )

    def leftovers(self, folder: str) -> list[Leftover]:
        """Return the containers of this worker's folder, running or not, that no job here uses.

        An earlier agent left them, or they could not be removed.

        Raises:
            EngineUnreachable: the engine does not answer.
        """
        return [
            left
            for left in self._listed()
            if belongs(left, folder) and not self.containers.used(left.name)
        ]

    def _listed(self) -> list[Leftover]:
        try:
            containers = self._engine.client.api.containers(
                all=True, filters={"label": WORKER_LABEL}
            )
        except FAILED as error:
            raise EngineUnreachable(f"the engine cannot list its containers: {error}") from error
        return list(map(_leftover, containers))

    def reap_strays(self) -> None:
        """Remove this agent's unused containers.

        Raises:
            EngineUnreachable: the engine does not answer, or cannot remove one.
        """
        remaining = self.containers.remaining
        listed = self._listed()
        for container in listed:
            own = container.labels.get(AGENT_LABEL) == self._agent or container.name in remaining
            if own and not self.containers.used(container.name):
                log.warning("container_removed", container=container.name)
                self.reap(container)
        for name in remaining - {container.name for container in listed}:
            self.containers.gone(name)

    def reap(self, leftover: Leftover) -> None:
        """Remove a leftover by force, with the pipe that its agent left."""
        remove_container(self._engine, leftover.id)
        remove_network(self._engine, leftover.name)
        self.containers.gone(leftover.name)
        if pipe := leftover.labels.get(PIPE_LABEL):
            Path(pipe).unlink(missing_ok=True)

    def _image(self, spec: RunSpec) -> dict[str, Any]:
        if (known := self._images.get(spec.image or "")) is not None:
            return known
        image = ensure_image(self._engine.client, spec.image, self._policy)
        if spec.image == image["Id"]:
            if len(self._images) >= MOST_IMAGES:
                self._images.clear()
            self._images[image["Id"]] = image
        return image

    def _clear(self, name: str) -> None:
        """Remove what a failed start may have created: a call can fail here but succeed there."""
        try:
            remove_container(self._engine, name)
            remove_network(self._engine, name)
        except EngineUnreachable:
            self.containers.remains(name, None)
        else:
            self.containers.gone(name)

    def _owner(self) -> tuple[int, int]:
        if os.geteuid() == 0:
            return self._policy.uid, self._policy.gid
        return os.geteuid(), os.getegid()

    def _prepare_network(self, spec: RunSpec) -> None:
        if not spec.host_network:
            self._ensure_network()
        elif self._policy.gangs != "host":
            raise StartFailed(
                "containers may not have this machine's network",
                hint="jobs on several machines need it: --gang-network host",
            )
        if spec.publishes and self._policy.gangs != "ports":
            raise StartFailed(
                "containers may not publish ports",
                hint="jobs on several machines need them: --gang-network ports",
            )

    def _ensure_network(self) -> None:
        if self._policy.network == "none" and self._policy.gangs != "ports":
            return
        exposed = self._network.ensure(self._engine.client, self._engine.kind)
        if exposed and exposed != self.exposed:
            log.warning("metadata_reachable", reason=exposed)
        self.exposed = exposed
        if exposed and not self._policy.allow_metadata:
            raise StartFailed(f"{EXPOSED}: {exposed}", hint=EXPOSED_HINT)

    def obstacle(self) -> str:
        """Return why no container may start on this machine, or ""."""
        try:
            check_fit(self._engine.kind)
            self._ensure_network()
        except (*FAILED, StartFailed) as error:
            return error.message if isinstance(error, StartFailed) else str(error)
        return ""

    @property
    def builds(self) -> bool:
        """Whether images are built here: the operator allows it, and the engine confines it."""
        try:
            return self._policy.allow_builds and self._engine.kind.confines_builds
        except FAILED:
            return self._policy.allow_builds

    @property
    def publishes(self) -> bool:
        """Whether a container's published port is reached from every other container."""
        try:
            return self._engine.kind.separates
        except FAILED:
            return True

    def build_network(self) -> str:
        """Return the network for the build of an image, as jobs have one.

        Raises:
            ImageRefused: the engine would give the build another.
            StartFailed: a build could reach metadata addresses.
        """
        if not self._engine.kind.confines_builds:
            raise ImageRefused(
                f"{self._engine.kind} builds no images here: it would give the commands of a build"
                " the machine's own network",
                hint="build it elsewhere, and submit it with --image or --image-tar; or select a"
                " worker with Docker by a label",
            )
        if self._policy.network == "none":
            return "none"
        self._ensure_network()
        return hardening.network(self._policy)

    def _devices(self, spec: RunSpec) -> list[DeviceRequest]:
        # Not cached: MIG slices come and go, and the engine's specs with them.
        if not spec.gpu_uuids:
            return []
        by_cdi = hardening.cdi_devices(self._engine.client.info())
        return hardening.gpu_requests(
            spec.gpu_uuids, spec.gpu_vendor, by_cdi, kind=self._engine.kind
        )

    def _host_cpus(self) -> float:
        if self._cpus is None:
            self._cpus = float(self._engine.client.info()["NCPU"])
        return self._cpus

    def _launch(self, spec: RunSpec, **arguments: Any) -> None:  # noqa: ANN401  as of the next
        """Start the job in a sandbox if one is ready, else in a network of its own."""
        own_network = spec.host_network or spec.publishes
        if not own_network and (sandbox := self.sandboxes.take(spec.name)):
            try:
                self._create_and_start(spec, sandbox, **arguments)
            except APIError as error:
                if not sandbox.broke(error):
                    raise
                log.warning("sandbox_broken", sandbox=sandbox.name, error=str(error))
                self.sandboxes.not_joined(spec.name)
            else:
                return
        self._create_and_start(spec, None, **arguments)

    def _create_and_start(
        self,
        spec: RunSpec,
        sandbox: Sandbox | None,
        *,
        image: dict[str, Any],
        pipe: Pipe,
        owner: tuple[int, int],
        devices: list[DeviceRequest],
    ) -> None:
        kind = self._engine.kind
        # Its root is the user that runs it, and owns the job's folders.
        user = (0, 0) if kind.rootless else owner
        bridge = ""
        if sandbox is None and hardening.on_bridge(spec, self._policy):
            bridge = network_of(self._engine, spec.name, spec.labels.get(FOLDER_LABEL, ""))
        known = self._accounts.get(image["Id"])
        accounts = known or Accounts("", {})
        taken = [mount.target for mount in self._policy.mounts]
        with handed_over(spec, *owner) as secret, accounts.shown(secret, taken) as whole:
            arguments = hardening.settings(
                whole,
                self._policy,
                user="{}:{}".format(*user),
                pipe=pipe.path,
                image=image.get("Config") or {},
                host_cpus=self._host_cpus(),
                devices=devices,
                sandbox=sandbox.id if sandbox else "",
                user_name=accounts.name,
                bridge=bridge,
                kind=kind,
            )
            arguments["labels"] |= {AGENT_LABEL: self._agent, PIPE_LABEL: str(pipe.path)}
            arguments["labels"] |= {ENGINE_LABEL: self._run.label() if self._run else ""}
            # Set in any case, since an image may have labels too.
            named = sandbox.name if sandbox else ""
            arguments["labels"] |= {SANDBOX_LABEL: named, FOLDER_OF_SANDBOX: ""}
            if sandbox and kind.podman:
                # With Docker it comes with the network, whose names know it.
                arguments["hostname"] = sandbox.name
            created = self._created(image["Id"], arguments)
            if known is not None:
                self._engine.client.api.start(created)
                return
        # The first container of an image shows what users it knows, and is made again.
        self._meet_users(image["Id"], created, user)
        self._create_and_start(spec, sandbox, image=image, pipe=pipe, owner=owner, devices=devices)

    def _meet_users(self, image: str, container: str, user: tuple[int, int]) -> None:
        if len(self._accounts) >= MOST_IMAGES:
            self._accounts.clear()
        api = self._engine.client.api
        self._accounts[image] = accounts_of(api, container, *user, hardening.WORK)
        remove_container(self._engine, container)

    def _created(self, image: str, arguments: dict[str, Any]) -> str:
        """Create a container and return its id."""
        containers = Created(client=self._engine.client)
        try:
            return str(containers.create(image, **arguments))
        except APIError as error:
            if error.status_code != CONFLICT and IN_USE not in str(error):
                raise
        # The name contains the token, so the existing container is this attempt's own, from a call
        # whose answer was lost.
        remove_container(self._engine, arguments["name"])
        return str(containers.create(image, **arguments))


def _leftover(entry: Mapping[str, Any]) -> Leftover:
    # A container that is being removed may have no name.
    name = (entry["Names"] or [entry["Id"]])[0].lstrip("/")
    places = tuple(mount.get("Source", "") for mount in entry.get("Mounts") or ())
    return Leftover(entry["Id"], name, entry["Labels"], places)


def _pipe_path(log_path: Path) -> Path:
    return log_path.absolute().with_name(f"{log_path.name}.pipe")


def _alone_s(log_path: Path, finished_at: str) -> float:
    """Return for how long a container that has ended had had no agent; 0 if that is not known."""
    with suppress(OSError, ValueError):
        gone = float(log_path.with_name(GONE).read_text(encoding="ascii"))
        return datetime.fromisoformat(finished_at).timestamp() - gone
    return 0.0


def _reopened(log_path: Path, *, running: bool) -> Pipe:
    """Open the pipe of a container; a missing one is accepted if the container has ended."""
    path = _pipe_path(log_path)
    if running or path.exists():
        return Pipe.reopen(path, log_path)
    return Pipe.made(path, log_path, uid=os.geteuid(), gid=os.getegid())


def refused(spec: RunSpec, error: Exception) -> StartFailed:
    """Return the error for a job that the engine could not start."""
    if isinstance(error, ImageNotFound):
        return removed(spec.image or "")
    reason = (error.explanation if isinstance(error, APIError) else None) or error
    return StartFailed(
        f"the container {spec.name} did not start: {reason}",
        hint="`forge doctor` on the worker checks its engine, GPUs and folders",
    )
