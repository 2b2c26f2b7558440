"""Which runner a job gets: the operator's settings decide, not the job."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import distributions
from typing import Any

import structlog
from forge_schema.model.errors import ForgeError
from forge_schema.model.spec import (
    HANDLER,
    HANDLERS,
    RUNS_BUILDS,
    RUNS_IMAGES,
    RUNS_LAUNCHERS,
    RUNS_PROJECTS,
)

from forge_worker.runners.docker.mounts import extra_mounts
from forge_worker.runners.docker.runner import DockerPolicy, DockerRunner, engine_answers
from forge_worker.runners.owners import job_user
from forge_worker.runners.process.runner import ProcessRunner
from forge_worker.runners.runner import ImageMissing, Runner, StartFailed
from forge_worker.settings.settings import WorkerSettings

GROUP = "forge.handlers"
# The longest value of a worker's label.
LABEL_LENGTH = 2000

log = structlog.get_logger(__name__)


def installed_handlers() -> list[str]:
    """Return the names of the handlers that are installed here, in order."""
    named = {*_named()}
    if odd := sorted(name for name in named if not HANDLER.fullmatch(name)):
        log.warning("handler_names_invalid", names=odd)
    return sorted(name for name in named if HANDLER.fullmatch(name))


def _named() -> Iterator[str]:
    """Yield what packages name; of all that are installed, few have entry points of this group."""
    for package in distributions():
        if GROUP in (package.read_text("entry_points.txt") or ""):
            yield from (point.name for point in package.entry_points if point.group == GROUP)


def handlers_label(installed: Sequence[str]) -> dict[str, str]:
    """Return the label that lists handlers: `,name,name2,`, so that `*,name,*` finds one."""
    kept: list[str] = []
    for name in installed:
        if len(",".join(["", *kept, name, ""])) > LABEL_LENGTH:
            log.warning("too_many_handlers", first_left_out=name)
            break
        kept.append(name)
    return {HANDLERS: ",".join(["", *kept, ""])} if kept else {}


class NoRunner(ForgeError):
    """As configured, this machine cannot run any job."""


@dataclass(frozen=True, slots=True)
class Runners:
    """The runners that may be used here."""

    docker: DockerRunner | None
    process: Runner | None
    default_image: str
    # Runs the operator's own handlers, even if processes are not allowed.
    handlers: Runner | None = None
    policy: DockerPolicy = field(default_factory=DockerPolicy)
    # The handlers that were installed when the worker began: to look for them takes a while.
    installed: Sequence[str] = ()

    @property
    def all(self) -> list[Runner]:
        own = self.handlers if self.process is None else None
        return [runner for runner in (self.docker, self.process, own) if runner is not None]

    def outlive(self, seconds: float, *, strict: bool) -> None:
        """Let jobs run this long without an agent; if `strict`, be gone by then.

        Containers run on until the next agent comes.
        """
        for runner in self.all:
            if isinstance(runner, ProcessRunner):
                runner.outlive(seconds, strict=strict)

    @property
    def words(self) -> str:
        """What kinds of job run here, for the worker's label `forge.runs`."""
        bare = self.process is not None or (self.docker is not None and self.default_image)
        builds = self.docker is not None and self.docker.builds
        images = self.docker is not None and bool(self.policy.allowed_images)
        kinds = {RUNS_IMAGES: images, RUNS_PROJECTS: bare, RUNS_BUILDS: builds}
        runs_here = [kind for kind, runs in kinds.items() if runs]
        return ",".join([*runs_here, *([RUNS_LAUNCHERS] if runs_here else [])])

    @property
    def contained(self) -> list[str]:
        """The kinds of job that run in containers here."""
        own = [RUNS_PROJECTS] if self.docker is not None and self.default_image else []
        return [RUNS_IMAGES, *own] if self.docker is not None else []

    @property
    def sandboxed(self) -> bool:
        """Whether sandboxes are worth their making: jobs run in containers, or one did."""
        docker = self.docker
        return docker is not None and (self.process is None or docker.sandboxes.asked)

    @property
    def wants_images(self) -> bool:
        """Whether a job that names no image never runs here."""
        return self.docker is not None and RUNS_PROJECTS not in self.words.split(",")

    def of(self, asked: Mapping[str, Any]) -> Runner:
        """Return the runner for a job, by its spec.

        Raises:
            ImageMissing: as `choose`.
            StartFailed: it is for a handler, and there is none here.
        """
        if not asked.get("handler"):
            return self.choose(image_wanted(asked))
        if self.handlers is None:
            raise StartFailed(f"this worker has no handler {asked['handler']!r}")
        return self.handlers

    def choose(self, image: str | None) -> Runner:
        """Return the runner for a job: a container where there can be one, else a process.

        Raises:
            ImageMissing: the job needs a container or an image, and there is none.
        """
        if self.docker is not None and (image or self.default_image):
            return self.docker
        if self.process is not None and not image:
            return self.process
        raise ImageMissing(
            "this worker runs jobs in containers, and the job names no image"
            if self.docker is not None
            else "the job names an image, and no container engine answers on this worker",
            hint="submit with --image, or set FORGE_DEFAULT_IMAGE on the worker",
        )


def image_wanted(spec: Mapping[str, Any]) -> str | None:
    """Return the image that a job names: a name, a tar's digest or a Dockerfile."""
    names = (spec.get(way) for way in ("image", "image_tar", "dockerfile"))
    return next(filter(None, names), None)


def docker_policy(settings: WorkerSettings) -> DockerPolicy:
    """Return what the operator allows containers.

    Raises:
        MountRefused: a folder that every job is to have cannot be mounted.
    """
    return DockerPolicy(
        network=settings.network,
        # Processes reach those addresses anyway.
        allow_metadata=settings.allow_metadata or settings.allow_processes,
        pull=settings.pull,
        default_image=settings.default_image or None,
        allowed_images=tuple(settings.allowed_images),
        allow_builds=settings.allow_builds,
        allow_swap=settings.allow_swap,
        gangs=settings.gang_network or "none",
        mounts=extra_mounts(settings.extra_mounts, settings.worker_dir),
    )


def available(settings: WorkerSettings) -> Runners:
    """Return the runners that the settings allow and the machine has.

    Raises:
        NoRunner: there is none.
        MountRefused: as `docker_policy`.
        UserUnusable: as `job_user`.
    """
    docker = None
    user = job_user(settings.process_user, settings.worker_dir)
    policy = docker_policy(settings)
    if settings.uses_engine and engine_answers():
        docker = DockerRunner(policy)
    if docker is None and settings.gang_network == "ports":
        raise NoRunner(
            "no container engine answers here, and only containers can publish ports"
            " (--gang-network ports)",
            hint="start Docker, or set --gang-network host or none",
        )
    if docker is not None and settings.gang_network == "ports" and not docker.publishes:
        raise NoRunner(
            "Podman keeps the members of a gang on one machine from each other's published ports"
            " (--gang-network ports)",
            hint="set --gang-network host or none, or use Docker",
        )
    process = ProcessRunner(user) if settings.uses_processes else None
    installed = installed_handlers()
    handlers = ProcessRunner(user) if installed else None
    if docker is None and process is None and handlers is None:
        raise NoRunner(
            "no container engine answers here, and processes are not allowed",
            hint="start Docker, or set FORGE_ALLOW_PROCESSES=true where every job is trusted",
        )
    return Runners(docker, process, settings.default_image, handlers, policy, installed)


def for_leftovers(settings: WorkerSettings, kinds: Collection[str]) -> Iterator[Runner]:
    """Yield the runners that can end what an agent has left here, whatever it was allowed."""
    if (DockerRunner.kind in kinds or settings.uses_engine) and engine_answers():
        yield DockerRunner()
    yield ProcessRunner()
