"""Inputs of jobs: read-only data that they name, fetched once for all jobs of an owner here."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

from forge_schema.model.attempt_records import GivenInput, GivenInputs
from forge_schema.model.spec.inputs import (
    FOLDER,
    HUB,
    INPUT,
    OF_JOBS,
    PATHS,
    S3,
    NamedSource,
    source_of,
    variable,
)
from forge_schema.storage import Objects

from forge_worker.attempt import LiveAttempt
from forge_worker.prepare.inputs.cache import InputCache
from forge_worker.prepare.inputs.hub import HubFiles
from forge_worker.prepare.inputs.source import InputSource, InputUnusable, JobFiles
from forge_worker.prepare.secrets import SecretStore, SecretUnusable
from forge_worker.queue.gateway import Gateway
from forge_worker.queue.http.session import ServerRefused
from forge_worker.runners.runner import Mount, Runner, RunSpec

PLACE = PurePosixPath("/forge/inputs")
KINDS = (*OF_JOBS, S3, HUB)


def input_labels(folders: Mapping[str, Path], contained: Sequence[str]) -> dict[str, str]:
    """Return the labels that tell which inputs this worker can give to jobs.

    Args:
        folders: those that the operator offers, by name.
        contained: the kinds of job that run in containers.
    """
    names = [*KINDS, *(f"{FOLDER}:{name}" for name in folders)]
    labels = {INPUT + name: "yes" for name in names}
    return {**labels, PATHS: ",".join(contained)} if contained else labels


@dataclass(frozen=True)
class InputProvision:
    """Fetches what a job's inputs name, and mounts it."""

    cache: InputCache
    folders: Mapping[str, Path]
    gateway: Gateway
    objects: Callable[[LiveAttempt], Objects]
    secrets: SecretStore

    def provide(self, spec: RunSpec, attempt: LiveAttempt, runner: Runner) -> RunSpec:
        """Return the spec with the inputs mounted, and the variables with their paths.

        Raises:
            InputUnusable: one is not there, or cannot be used; the message names it.
            StoreError: a source does not answer.
            Stopped: the attempt must stop.
        """
        given: dict[str, GivenInput] = {}
        for name, text in attempt.grant.spec.get("inputs", {}).items():
            with _named(name, text):
                folder, given[name] = self._folder(name, text, attempt)
                mount = _mount(name, folder, runner)
            variables = {} if name.startswith("/") else {variable(name): str(runner.place(mount))}
            spec = replace(spec, mounts=(*spec.mounts, mount), env={**spec.env, **variables})
        if given:
            # Another server may know no such records, and the job has its inputs all the same.
            with suppress(ServerRefused):
                self.gateway.record(attempt.fence, GivenInputs(given))
        return spec

    def _folder(self, name: str, text: str, attempt: LiveAttempt) -> tuple[Path, GivenInput]:
        source = source_of(text)
        if source.kind == FOLDER:
            return self._offered(source), GivenInput(text)
        return self.cache.fetch(self._source(source, attempt), text, attempt, name)

    def _source(self, source: NamedSource, attempt: LiveAttempt) -> InputSource:
        if source.kind in OF_JOBS:
            return JobFiles(source, attempt.fence, self.gateway, self.objects(attempt))
        secret = partial(self.secrets.known, attempt.grant)
        if source.kind == S3:
            # boto3 takes long to import, and many workers never need it.
            from forge_worker.prepare.inputs.s3 import S3Files  # noqa: PLC0415

            return S3Files(source, secret)
        if source.kind == HUB:
            return HubFiles(source, secret)
        raise InputUnusable(f"this worker cannot fetch {source.kind}")

    def _offered(self, source: NamedSource) -> Path:
        folder = self.folders.get(source.parts["name"])
        if folder is None:
            raise InputUnusable(
                "this worker does not offer this folder",
                hint="name it in --offer-folders of forge-worker there, and restart it",
            )
        if not folder.is_dir():
            raise InputUnusable(f"there is no folder {folder} on this machine any more")
        return folder


@contextmanager
def _named(name: str, text: str) -> Iterator[None]:
    """Have an error say which input it is about."""
    try:
        yield
    except (InputUnusable, SecretUnusable) as error:
        message = f"the input {name}={text} cannot be used: {error.message}"
        raise InputUnusable(message, hint=error.hint) from error


def _target(name: str) -> PurePosixPath:
    return PurePosixPath(name) if name.startswith("/") else PLACE / name


def _mount(name: str, folder: Path, runner: Runner) -> Mount:
    mount = Mount(folder, _target(name))
    if name.startswith("/") and str(runner.place(mount)) != name:
        raise InputUnusable(
            f"only a container can have it at {name}, and this worker runs the job as a process",
            hint="give it a name, and use its variable: --input data=… and $FORGE_INPUT_DATA",
        )
    return mount


def fetched_places(inputs: Mapping[str, str], mounts: Iterable[Mount]) -> list[Path | None]:
    """Return where the inputs of a job were fetched to, in the order of the queue's parts."""
    places = {mount.target: mount.source for mount in mounts}
    fetched = sorted(
        (text, name) for name, text in inputs.items() if source_of(text).kind != FOLDER
    )
    return [places.get(_target(name)) for _, name in fetched]
