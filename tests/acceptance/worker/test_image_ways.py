"""Images as a user brings them: a saved tar, a Dockerfile, a name that the operator refuses."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING

import docker
from forge_schema.access.api_keys import Keys
from forge_schema.model.states import Role
from support.client.command import command
from support.engine.small_image import remove_images, saved, small_image
from support.workers.http_bed import http_bed
from support.workers.runners import require_docker

if TYPE_CHECKING:
    from pathlib import Path

    from support.workers.http_bed import HttpBed


OURS = re.compile("forge-(?:build|tar):[0-9a-f]{64}")


def test_images_by_tar_by_dockerfile_and_by_name(tmp_path: Path, database_url: str) -> None:
    require_docker()
    said: list[str] = []
    with (
        closing(docker.from_env()) as engine,
        http_bed(tmp_path, database_url, kind="docker") as at,
    ):
        try:
            with small_image(engine, which=b"the saved one") as name:
                saved(engine, name, tmp_path / "image.tar")
                allowed = f"tar:*,{name}"
                at.worker(default_image=name, allow_builds=True, allowed_images=allowed)
                _use(at, tmp_path, name, said)
        finally:
            remove_images(engine, *set(OURS.findall("".join(said))))


def _use(at: HttpBed, root: Path, base: str, said: list[str]) -> None:
    project = root / "project"
    project.mkdir()
    (project / "Dockerfile").write_text(f"FROM {base}\nRUN echo as built > /which; echo building\n")
    (project / "Bad").write_text(f"FROM {base}\nRUN echo no such luck; exit 7\n")
    forge = command(root)
    env = {
        "FORGE_URL": at.servers[0].url,
        "FORGE_API_KEY": Keys(at.database, actor="user:root").create("ann", Role.SUBMITTER)[1],
    }
    small = (
        "--memory",
        "128MB",
        "--disk",
        "100MB",
        "--cpus",
        "0.5",
        "--wait",
        "--",
        "cat",
        "/which",
    )

    def submitted(*way: str | Path) -> tuple[int, str, str]:
        done = forge("submit", project, *way, *small, **env)
        said.append(done.stdout)
        return done.returncode, done.stdout, done.stderr

    # A saved image is uploaded once, and runs.
    for told in ("uploaded", "already there"):
        code, log, narration = submitted("--image-tar", root / "image.tar")
        assert code == 0, narration
        assert told in narration.partition("image image.tar, ")[2]
        assert "the saved one" in log

    # A Dockerfile is built by the worker, with its output in the job's log.
    code, log, narration = submitted("--dockerfile", "Dockerfile")
    assert code == 0, narration
    assert "forge: building\n" in log
    assert "as built" in log

    # Errors are shown where the user looks, and are not retried.
    code, log, _ = submitted("--dockerfile", "Bad")
    assert code != 0
    assert "forge: Bad does not build: The command '/bin/sh -c echo no such luck; exit 7'" in log
    code, log, _ = submitted("--image", "debian:12")
    assert code != 0
    assert "forge: this worker's operator does not allow debian:12; allowed are tar:*" in log
    row, *_ = at.jobs.jobs(scope=["ann"], count=1)
    (attempt,) = at.jobs.attempts(row["job_id"])
    assert (attempt["reason"], row["state"]) == ("image_missing", "failed")
    assert "does not allow debian:12" in attempt["detail"]
