"""Prepare a job's image before its start: pull it by name, build it, or load it from a tar."""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog
from docker import DockerClient
from forge_schema.storage import ObjectMissing, Objects, keys

from forge_worker.attempt import LiveAttempt
from forge_worker.files.safe_files import opened, remove_tree
from forge_worker.prepare.cache import KeyedLock
from forge_worker.runners.docker.container import FAILED
from forge_worker.runners.docker.engine import Engine
from forge_worker.runners.docker.hardening import DockerPolicy
from forge_worker.runners.docker.runner import DockerRunner
from forge_worker.runners.images import own_images
from forge_worker.runners.images.building import Build, run_build
from forge_worker.runners.images.dockerfile import check_triggers, images, refused
from forge_worker.runners.images.image import PullProgress, ensure_image
from forge_worker.runners.images.reference import check_build, check_name, check_tar
from forge_worker.runners.images.saved_image import SavedImageUnsound, load
from forge_worker.runners.runner import ImageMissing, Runner, RunSpec, StartFailed

LABEL = "forge.image"
LARGEST_DOCKERFILE = 1 << 20
DOWNLOADS = 2  # a second try if the content does not match its digest

Image = dict[str, Any]

log = structlog.get_logger(__name__)


@dataclass
class Images:
    """A provision that replaces the image's name by the id that was found, built or loaded.

    `folder` holds tars while they are loaded; Forge's own images may take `max_bytes` in the
    engine.
    """

    policy: DockerPolicy
    objects: Callable[[LiveAttempt], Objects]
    folder: Path
    max_bytes: int
    _engine: Engine = field(default_factory=Engine)
    _lock: KeyedLock = field(default_factory=KeyedLock)

    def __post_init__(self) -> None:
        # Remove partial downloads of a killed agent.
        remove_tree(self.folder)

    def provide(self, spec: RunSpec, attempt: LiveAttempt, runner: Runner) -> RunSpec:
        """Make the image ready.

        Raises:
            ImageMissing: it is not allowed, cannot be found, does not build, or is not an image.
            StartFailed: the engine or a registry does not answer.
            StoreError: the store cannot deliver the saved image.
            Stopped: the attempt must stop.
        """
        if not isinstance(runner, DockerRunner):
            return spec
        try:
            name, image = self._image(spec, attempt, runner)
        except FAILED as error:
            attempt.while_wanted()
            raise StartFailed(f"the engine could not get the image: {error}") from error
        log.info("image_ready", job=attempt.fence.job_id, image=name, digest=_digest(image))
        return replace(spec, image=image["Id"], labels={**spec.labels, LABEL: name})

    def _image(
        self, spec: RunSpec, attempt: LiveAttempt, runner: DockerRunner
    ) -> tuple[str, Image]:
        wanted = attempt.grant.spec
        if digest := wanted.get("image_tar"):
            check_tar(digest, self.policy)
            name = f"{own_images.TAR}:{digest}"
            return name, self._own(name, attempt, lambda: self._load(name, digest, attempt))
        if dockerfile := wanted.get("dockerfile"):
            check_build(self.policy)
            runner.build_network()
            name = f"{own_images.BUILD}:{_key(attempt, dockerfile)}"
            build = lambda: self._build(name, dockerfile, spec, attempt, runner)  # noqa: E731
            return name, self._own(name, attempt, build)
        if spec.image is not None:
            check_name(spec.image, self.policy)
        return spec.image or "", self._named(spec.image, attempt)

    def _named(self, name: str | None, attempt: LiveAttempt) -> Image:
        progress = PullProgress(name or "", attempt.note)
        pulled = False

        def hear(step: dict[str, Any]) -> None:
            nonlocal pulled
            pulled = True
            attempt.while_wanted()
            progress(step)

        with self._lock.held(f"name {name}", attempt.while_wanted):
            image = ensure_image(self._client, name, self.policy, hear)
        if pulled:
            progress.end()
            _tell(attempt, name or "", image)
        return image

    def _own(self, name: str, attempt: LiveAttempt, make: Callable[[], Image]) -> Image:
        """Return one of Forge's own images, made by one attempt while the others wait."""
        with self._lock.held(name, attempt.while_wanted):
            if (here := own_images.kept(self._client, name)) is not None:
                return here
            made = make()
            own_images.kept(self._client, name)
            own_images.make_room(self._client, self.max_bytes)
            _tell(attempt, name, made)
            return made

    def _build(
        self, name: str, dockerfile: str, spec: RunSpec, attempt: LiveAttempt, runner: DockerRunner
    ) -> Image:
        dockerfile = _really(attempt.folders.work, dockerfile)
        for base in images(_text(attempt.folders.work, dockerfile)):
            check_name(base, self.policy)
            image = self._named(base, attempt)
            check_triggers(image["Config"].get("OnBuild") or [], base)
        attempt.note(f"building {dockerfile}")
        build = Build(
            folder=attempt.folders.work,
            dockerfile=dockerfile,
            tag=name,
            network=runner.build_network(),
            cpus=spec.cpus,
            memory_mb=spec.memory_mb,
            swap_mb=spec.memory_mb if self.policy.allow_swap else 0,
            limit_s=self.policy.build_limit_s,
        )
        try:
            run_build(self._client, build, attempt.note, attempt.stopping.is_set)
        finally:
            # If the attempt must stop, the build's failure is irrelevant.
            attempt.while_wanted()
        return self._made(name)

    def _load(self, name: str, digest: str, attempt: LiveAttempt) -> Image:
        remove_tree(self.folder / digest)
        tar = self.folder / digest / secrets.token_hex(6)
        tar.parent.mkdir(parents=True)
        try:
            self._download(digest, tar, attempt)
            attempt.note("loading the saved image")
            return load(self._client, tar, name, attempt.while_wanted)
        finally:
            remove_tree(tar.parent)

    def _download(self, digest: str, tar: Path, attempt: LiveAttempt) -> None:
        attempt.note(f"fetching the saved image {digest[:12]}")
        for _ in range(DOWNLOADS):
            try:
                objects = self.objects(attempt)
                objects.get_file(keys.image(digest), tar, progress=attempt.while_wanted)
            except ObjectMissing as error:
                raise ImageMissing(
                    f"the store has no saved image {digest[:12]}",
                    hint="submit the job again with --image-tar, which uploads it",
                ) from error
            with tar.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == digest:
                    return
        raise SavedImageUnsound(
            f"the saved image cannot be used: the store's copy of {digest[:12]} is damaged",
            hint="submit it again, which replaces the stored copy",
        )

    def _made(self, name: str) -> Image:
        if (made := own_images.kept(self._client, name)) is None:
            raise StartFailed(f"the image {name} was built, but has disappeared")
        return made

    @property
    def _client(self) -> DockerClient:
        return self._engine.client


def _key(attempt: LiveAttempt, dockerfile: str) -> str:
    what = f"{attempt.grant.bundle_digest}\n{dockerfile}"
    return hashlib.sha256(what.encode()).hexdigest()


def _really(work: Path, name: str) -> str:
    """Return the path of a file of the project, where `name` may be a link to it."""
    resolved, root = (work / name).resolve(), work.resolve()
    return resolved.relative_to(root).as_posix() if resolved.is_relative_to(root) else name


def _text(work: Path, dockerfile: str) -> str:
    try:
        with opened(work, dockerfile) as file:
            text = file.read(LARGEST_DOCKERFILE + 1)
    except OSError as error:
        raise ImageMissing(
            f"the project has no file {dockerfile}",
            hint="give the Dockerfile's path in the project, and check that it is not ignored",
        ) from error
    if len(text) > LARGEST_DOCKERFILE:
        # The engine would read the rest, which was not checked here.
        raise refused("it is larger than 1 MiB", "move long parts to files and COPY them")
    return text.decode(errors="replace")


def _tell(attempt: LiveAttempt, name: str, image: Image) -> None:
    # Only if the image is new here, so that other jobs' logs have only their own output.
    attempt.note(f"image {name} is {_digest(image)}")


def _digest(image: Image) -> str:
    """Return the registry's digest of the image if it has one, and its id."""
    return ", ".join([*(image.get("RepoDigests") or [])[:1], image["Id"]])
