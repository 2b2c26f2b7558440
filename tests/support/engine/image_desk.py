"""Attempts that want an image, and the provision that makes it ready."""

from __future__ import annotations

import uuid
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import docker
from forge_schema.storage import keys
from forge_schema.storage.file_store import FileStore
from forge_worker.prepare.images import Images, _key
from forge_worker.runners.docker.hardening import DockerPolicy
from forge_worker.runners.runner import RunSpec
from support.engine.small_image import images_named, remove_images
from support.workers.attempts import attempt_of, some_grant
from support.workers.runners import Job, docker_runner, make_spec, require_docker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from docker import DockerClient
    from forge_schema.storage import Progress
    from forge_worker.attempt import LiveAttempt

ROOMY = 1 << 40


class Counting(FileStore):
    """A store that counts downloads."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.downloads = 0

    def get_file(self, key: str, path: Path, *, progress: Progress | None = None) -> None:
        self.downloads += 1
        super().get_file(key, path, progress=progress)


@dataclass
class ImageDesk:
    """Makes attempts below `root`; their leftovers in the engine are removed at the end."""

    root: Path
    engine: DockerClient
    store: Counting
    policy: DockerPolicy = field(default_factory=lambda: DockerPolicy(allow_builds=True))
    jobs: list[Job] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.images = self.provision()

    def provision(self, **policy: Any) -> Images:  # noqa: ANN401  fields of all types
        """Return the provision of a worker, with changes to the policy."""
        changed = replace(self.policy, **policy)
        return Images(changed, lambda _: self.store, self.root / uuid.uuid4().hex, ROOMY)

    def attempt(self, *, bundle: str = "", **spec: Any) -> LiveAttempt:  # noqa: ANN401  as above
        """Return an attempt at a job with some fields."""
        grant = some_grant()
        grant = replace(grant, spec={**grant.spec, **spec}, bundle_digest=bundle or None)
        made = attempt_of(grant, self.root / uuid.uuid4().hex)
        self.keys |= {spec.get("image_tar") or _key(made, spec.get("dockerfile") or "")}
        return made

    def project(self, **files: str) -> LiveAttempt:
        """Return an attempt with a project of its own that has a Dockerfile."""
        made = self.attempt(bundle=uuid.uuid4().hex * 2, dockerfile="Dockerfile")
        for name, text in files.items():
            (made.folders.work / name).write_text(text)
        return made

    def again(self, earlier: LiveAttempt) -> LiveAttempt:
        """Return another attempt at the same job."""
        made = attempt_of(earlier.grant, self.root / uuid.uuid4().hex)
        for file in earlier.folders.work.iterdir():
            (made.folders.work / file.name).write_bytes(file.read_bytes())
        return made

    def ready(self, attempt: LiveAttempt, images: Images | None = None) -> RunSpec:
        """Prepare the image and return the start."""
        image = attempt.grant.spec.get("image")
        spec = make_spec(self.root, ("true",), image=image, memory_mb=256)
        return (images or self.images).provide(spec, attempt, docker_runner())

    def run(self, spec: RunSpec, *command: str) -> bytes:
        """Run a command in the prepared image, and return its output."""
        job = Job(spec, docker_runner().start(replace(spec, command=command)))
        self.jobs.append(job)
        assert job.result().code == 0, job.output
        return job.output

    def keep(self, data: bytes, digest: str) -> None:
        """Put a saved image into the store."""
        self.store.put(keys.image(digest), data)

    def close(self) -> None:
        """Remove everything that was made."""
        for job in self.jobs:
            job.handle.remove()
        for key in self.keys:
            remove_images(self.engine, *images_named(self.engine, key))


def said(attempt: LiveAttempt) -> str:
    """Return the content of an attempt's log."""
    return attempt.folders.log.read_text(encoding="utf-8")


@contextmanager
def image_desk(root: Path) -> Iterator[ImageDesk]:
    """Yield a desk; remove the images that it made."""
    require_docker()
    with closing(docker.from_env()) as engine:
        desk = ImageDesk(root, engine, Counting(root / "store"))
        try:
            yield desk
        finally:
            desk.close()
