"""Which runner a job gets: the operator's settings decide, not the job."""

from dataclasses import dataclass

from forge_schema.errors import ForgeError

from forge_worker.runners.docker import DockerPolicy, DockerRunner, engine_answers
from forge_worker.runners.process import ProcessRunner
from forge_worker.runners.runner import ImageMissing, Runner
from forge_worker.settings import WorkerSettings


class NoRunner(ForgeError):
    """This machine can run no job as it is set up."""

    code = "no_runner"


@dataclass(frozen=True, slots=True)
class Runners:
    """The runners that may be used here."""

    docker: Runner | None
    process: Runner | None
    default_image: str

    @property
    def all(self) -> list[Runner]:
        return [runner for runner in (self.docker, self.process) if runner is not None]

    @property
    def words(self) -> str:
        """What kinds of job run here, for the worker's label `forge.runs`."""
        bare = self.process is not None or (self.docker is not None and self.default_image)
        kinds = {"images": self.docker is not None, "projects": bare}
        return ",".join(kind for kind, runs in kinds.items() if runs)

    def choose(self, image: str | None) -> Runner:
        """Return the runner for a job: a container where there can be one, else a process.

        Raises:
            ImageMissing: the job needs a container, or an image, that there is not.
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


def available(settings: WorkerSettings) -> Runners:
    """Return the runners that the settings allow and the machine has.

    Raises:
        NoRunner: there is none.
    """
    docker = process = None
    if settings.runner != "process" and engine_answers():
        docker = DockerRunner(DockerPolicy(default_image=settings.default_image or None))
    if settings.runner == "process" or (settings.runner == "auto" and settings.allow_processes):
        process = ProcessRunner() if settings.allow_processes else None
    if docker is None and process is None:
        raise NoRunner(
            "no container engine answers here, and processes are not allowed",
            hint="start Docker, or set FORGE_ALLOW_PROCESSES=true where every job is trusted",
        )
    return Runners(docker, process, settings.default_image)
