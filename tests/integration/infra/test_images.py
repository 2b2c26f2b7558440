"""The images, built without a registry on the tests' base image, and run with little."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from forge_client import Client
from forge_schema.access.api_keys import Keys
from forge_schema.access.worker_tokens import WorkerTokens
from forge_schema.database.pool import Database
from forge_schema.model.states import Role, WorkerKind
from support.authorities import with_authorities
from support.cloud.cloudformation import INFRA
from support.engine.images import BASE_IMAGE
from support.ports import free_port
from support.waiting import eventually
from support.workers.runners import require_docker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PREFIX = "forge-test-made-"
SECRET = "0123456789abcdef" * 4
SOCKET = "/run/postgres"
# As Kubernetes and compose.yaml run them; the only places to write are in memory.
LITTLE = (
    *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
    *("--tmpfs=/tmp", "--tmpfs", "/var/lib/forge:uid=65532,gid=65532,mode=0700,exec"),
)
# The engine's network reaches neither the test's Postgres nor its loopback.
HERE = ("--network", "host")


def images() -> dict[str, str]:
    """Build the images, and return their names by the program's."""
    words = [
        sys.executable,
        str(INFRA / "release" / "images.py"),
        "--base",
        BASE_IMAGE,
        "--prefix",
        PREFIX,
    ]
    ended = subprocess.run(
        words, env=with_authorities(), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    names = [line.split(": ")[0] for line in ended.stdout.splitlines() if line.endswith(" MB")]
    return {name.removeprefix(PREFIX).partition(":")[0]: name for name in names}


def docker(*words: str) -> str:
    ended = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def reaching(url: str) -> list[str]:
    """Return the options that let a container use the database of a test."""
    (folder,) = parse_qs(urlsplit(url).query)["host"]
    # The socket alone: its folder is closed to others.
    socket = ".s.PGSQL.5432"
    within = f"FORGE_DATABASE_URL={url.replace(folder, SOCKET)}"
    return ["--volume", f"{folder}/{socket}:{SOCKET}/{socket}", "--env", within]


@contextmanager
def running(image: str, *options: str, **env: str) -> Iterator[str]:
    """Run an image until the block ends; yield the container's id."""
    said = [word for name, value in env.items() for word in ("--env", f"{name}={value}")]
    container = docker("run", "--detach", *LITTLE, *HERE, *options, *said, image).strip()
    try:
        yield container
    finally:
        subprocess.run(["docker", "logs", container], stdout=sys.stderr, check=False)
        docker("rm", "--force", container)


def healthy(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


def test_all_programs_run_from_their_images_without_root_on_a_read_only_disk(
    database_url: str, tmp_path: Path
) -> None:
    require_docker()
    built = images()
    assert set(built) == {"server", "sweeper", "worker"}
    for image in built.values():
        (found,) = json.loads(docker("image", "inspect", image))
        assert found["Config"]["User"] == "65532:65532"
    server, sweeper = free_port(), free_port()
    url = f"http://127.0.0.1:{server}"
    project = tmp_path / "project"
    project.mkdir()
    (project / "main.py").write_text("import os\nprint('as', os.getuid())\n", encoding="utf-8")
    given = {
        "FORGE_STORE_URL": "file:///var/lib/forge/store",
        "FORGE_SERVER_SECRET": SECRET,
        "FORGE_PORT": str(server),
    }
    database_here = reaching(database_url)
    with (
        Database(database_url) as database,
        running(built["server"], *database_here, **given),
        running(built["sweeper"], *database_here, FORGE_HEALTH_PORT=str(sweeper)),
    ):
        eventually(lambda: healthy(f"{url}/health"))
        eventually(lambda: healthy(f"http://127.0.0.1:{sweeper}/health"))
        _, key = Keys(database, actor="user:test").create("ann", Role.SUBMITTER)
        tokens = WorkerTokens(database, actor="user:test")
        _, token = tokens.create("one", kind=WorkerKind.EPHEMERAL)
        work = {"FORGE_URL": url, "FORGE_TOKEN": token, "FORGE_RUNNER": "process"}
        with Client(url=url, api_key=key) as client:
            job = client.submit(project, command=["python3", "main.py"])
            with running(built["worker"], **work, FORGE_ALLOW_PROCESSES="true") as worker:
                # It takes one job, and leaves.
                assert docker("wait", worker).strip() == "0"
            assert job.wait(timeout=60).state == "succeeded"
            assert "as 65532" in "".join(job.logs())


def test_an_archive_of_an_image_is_loaded_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_docker()
    monkeypatch.syspath_prepend(str(INFRA / "release"))
    import archives  # noqa: PLC0415  a folder of scripts

    name = f"{PREFIX}saved:{tmp_path.name}".lower()
    (tmp_path / "word").write_text("kept", encoding="utf-8")
    tar = subprocess.check_output(["tar", "-C", tmp_path, "-c", "word"])
    made = subprocess.check_output(["docker", "import", "-", name], input=tar).decode().strip()
    archives.save(name, tmp_path / "image.tar.gz")
    docker("image", "rm", name)
    assert name in docker("load", "--input", str(tmp_path / "image.tar.gz"))
    assert docker("image", "inspect", "--format", "{{.Id}}", name).strip() == made
    docker("image", "rm", name)


def test_packages_of_debian_are_named_as_other_tools_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(INFRA / "release"))
    import archives  # noqa: PLC0415  as above

    (found,) = archives.debian("libc6 2.36-9+deb12u10 amd64\n")
    assert found["purl"] == "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64"
