"""Small jobs of one owner, one after another in one container, so that most start at once.

Each has its own lease, log, folders and exit code. A container that is not as it was before a job
came (something of it is left, memory ran out, it had to be killed) serves nobody any more.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from forge_worker.runners.container import FAILED
from forge_worker.runners.docker import (
    AGENT_LABEL,
    DockerPolicy,
    DockerRunner,
    give,
    give_mounted,
    refused,
)
from forge_worker.runners.image import ensure_image
from forge_worker.runners.pipe import Pipe
from forge_worker.runners.runner import (
    WORKER_LABEL,
    EngineUnreachable,
    Handle,
    JobPaths,
    RunSpec,
)
from forge_worker.runners.shared_container import (
    JOBS,
    SHARE_LABEL,
    Opening,
    SharedContainer,
    arguments_of,
)
from forge_worker.runners.shared_job import SharedHandle
from forge_worker.runners.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

log = structlog.get_logger(__name__)

PIPE = "out"


class SharingDockerRunner(DockerRunner):
    """Runs jobs in containers: those that may share one in turn, all others each in its own.

    `idle_s` is how long a container waits for its next job, in seconds.
    """

    def __init__(self, policy: DockerPolicy | None = None, *, idle_s: float = 10.0) -> None:
        super().__init__(policy)
        self._waiting = Waiting(idle_s, self._discard)

    def paths(self, spec: RunSpec) -> JobPaths:
        """Return the folders as the job sees them."""
        if spec.share is None:
            return super().paths(spec)
        return JobPaths(*(JOBS / folder.relative_to(spec.share) for folder in spec.folders))

    def start(self, spec: RunSpec) -> Handle:
        """Start the job, in a container that waits for it if there is one.

        Raises:
            ImageMissing: its image is neither here nor to be had.
            StartFailed: the engine would not start it.
        """
        if spec.share is None:
            return super().start(spec)
        try:
            uid, gid = self._owner()
            give(spec.folders, uid, gid)
            give_mounted(spec.mounts, uid, gid)
            pipe_path = spec.work_dir.parent.absolute() / PIPE
            pipe = Pipe.made(pipe_path, spec.log_path, uid=uid, gid=gid)
        except OSError as error:
            raise refused(spec, error) from error
        try:
            return self._begin(spec, pipe, uid, gid)
        except (*FAILED, OSError) as error:
            pipe.finish()
            raise refused(spec, error) from error
        except BaseException:
            pipe.finish()
            raise

    def close(self) -> None:
        """Remove every container that waits, and have none wait from now on."""
        self._waiting.close()

    def _begin(self, spec: RunSpec, pipe: Pipe, uid: int, gid: int) -> SharedHandle:
        image = ensure_image(self._engine.client, spec.image, self._policy)
        self._ensure_network()
        opening = self._opening(spec, image["Id"], pipe, f"{uid}:{gid}", image.get("Config") or {})
        key = _key(spec, image["Id"])
        # One that waited may have ended meanwhile; a new one has no such excuse.
        while (container := self._waiting.take(key)) is not None:
            with suppress(*FAILED), self._discarded_unless_begun(container):
                return self._run_in(container, spec, opening, pipe, (uid, gid))
        container = SharedContainer(self._engine, key, spec.share)
        with self._discarded_unless_begun(container):
            container.create(opening, self._shared_labels(spec))
            return self._run_in(container, spec, opening, pipe, (uid, gid))

    @contextmanager
    def _discarded_unless_begun(self, container: SharedContainer) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._discard(container)
            raise

    def _run_in(
        self,
        container: SharedContainer,
        spec: RunSpec,
        opening: Opening,
        pipe: Pipe,
        user: tuple[int, int],
    ) -> SharedHandle:
        place = JOBS / spec.work_dir.parent.name
        job = container.begin(opening, place, spec, user)
        return SharedHandle(container, job, pipe, spec.grace_s, back=self._back)

    def _opening(
        self, spec: RunSpec, image: str, pipe: Pipe, user: str, config: dict[str, object]
    ) -> Opening:
        return arguments_of(
            replace(spec, secrets={}),
            self._policy,
            image=image,
            config=config,
            user=user,
            pipe=pipe.path,
            host_cpus=self._host_cpus(),
            devices=self._devices(spec),
        )

    def _shared_labels(self, spec: RunSpec) -> dict[str, str]:
        share = spec.share.name if spec.share else ""
        worker = {WORKER_LABEL: spec.labels[WORKER_LABEL]} if WORKER_LABEL in spec.labels else {}
        return {**worker, AGENT_LABEL: self._agent, SHARE_LABEL: share}

    def _back(self, container: SharedContainer, *, clean: bool) -> None:
        """Take a container back from its job: it waits for the next one, or goes."""
        if clean:
            self._waiting.put(container)
        else:
            self._discard(container)

    def _discard(self, container: SharedContainer) -> None:
        try:
            container.remove()
        except EngineUnreachable as error:
            # What cannot be removed now is reaped at the next start.
            self._uncleared.add(container.name)
            log.warning("left behind", container=container.name, error=error.message)


def _key(spec: RunSpec, image: str) -> Hashable:
    """Return what two jobs must have in common to run in one container."""
    limits = (spec.cpus, spec.memory_mb, spec.gpu_uuids)
    # A folder that was made anew under its old name is another one.
    folders = tuple(mount.source.stat().st_ino for mount in spec.mounts)
    return (spec.share, image, limits, spec.mounts, folders)
