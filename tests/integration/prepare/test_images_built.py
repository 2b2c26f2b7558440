"""Images built from a project's Dockerfile: once, behind our network, within limits."""

from __future__ import annotations

import io
import os
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.states import Reason
from forge_worker.attempt import Stop, Stopped
from forge_worker.prepare.images import _key
from forge_worker.runners.images import own_images
from forge_worker.runners.images.building import BuildFailed
from forge_worker.runners.images.dockerfile import DockerfileRefused
from forge_worker.runners.images.reference import ImageRefused
from forge_worker.runners.runner import ImageMissing
from support.at_once import at_once
from support.engine.image_desk import ImageDesk, image_desk, said
from support.engine.images import BASE_IMAGE
from support.engine.small_image import images_named, remove_images, short, small_image
from support.workers.runners import docker_only

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.waiting import Eventually


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[ImageDesk]:
    docker_only("nothing is built with it")
    with image_desk(tmp_path) as desk:
        yield desk


def containers(desk: ImageDesk, mark: str) -> list[str]:
    """Return the containers, running or not, whose command has a word."""
    found = desk.engine.api.containers(all=True)
    return [entry["Id"] for entry in found if mark in entry["Command"]]


def test_project_is_built_once(desk: ImageDesk) -> None:
    dockerfile = (
        f"FROM {BASE_IMAGE} AS one\nRUN echo first > /first && echo said\n"
        f"FROM {BASE_IMAGE}\nCOPY --from=one /first /got/\nCOPY data /got/\n"
    )
    attempt = desk.project(Dockerfile=dockerfile, data="of the project")
    several = [attempt, desk.again(attempt), desk.again(attempt)]
    starts = at_once(*(lambda a=one: desk.ready(a) for one in several))
    assert len({start.image for start in starts}) == 1
    (log,) = [said(one) for one in several if "building Dockerfile" in said(one)]
    assert "forge: said" in log
    assert "Successfully built" in log
    assert desk.run(starts[0], "cat", "/got/first", "/got/data") == b"first\nof the project"
    # Neither another worker nor a later one builds it again.
    later = desk.again(attempt)
    assert desk.ready(later, desk.provision()).image == starts[0].image
    assert "building" not in said(later)
    found = desk.engine.images.get(str(starts[0].image))
    assert found.labels["forge.image"] == "build"
    assert found.tags[0].startswith("forge-build:")
    # No stage is left without a name.
    key = found.tags[0].partition(":")[2]
    assert images_named(desk.engine, key) == [f"forge-build:{key}", f"forge-build:{key}.0"]


@pytest.mark.parametrize(
    ("dockerfile", "why"),
    [
        (f"FROM {BASE_IMAGE}\nRUN : 7f3a1c; echo so it is >&2; exit 3\n", "non-zero code: 3"),
        (f"FROM {BASE_IMAGE}\nBEGIN\n", "unknown instruction: BEGIN"),
        (f"FROM {BASE_IMAGE}\nCOPY absent /\n", "COPY failed"),
    ],
)
def test_failing_build_is_told_with_its_last_words(
    desk: ImageDesk, dockerfile: str, why: str
) -> None:
    attempt = desk.project(Dockerfile=dockerfile)
    with pytest.raises(BuildFailed, match=r"Dockerfile does not build|rejected") as failed:
        desk.ready(attempt)
    assert why in failed.value.message
    if "so it is" in dockerfile:
        assert failed.value.message.endswith("\n  so it is")
        assert "forge: so it is\n" in said(attempt)
        assert containers(desk, "7f3a1c") == []


def test_what_a_build_prints_makes_no_image_ours(desk: ImageDesk) -> None:
    """A failing build leaves a name on its own last image, and on none that it only mentions."""
    with small_image(desk.engine, base=b"x") as name:
        foreign, _ = desk.engine.images.build(
            fileobj=io.BytesIO(f"FROM {name}\nENV A={name}\n".encode()), rm=True
        )
        short = str(foreign.id).removeprefix("sha256:")
        lie = f"printf ' ---> {short}\\nStep 8/9 : FROM x\\n ---> {short}\\n'"
        first = f"FROM {BASE_IMAGE} AS one\nRUN echo {name}\n"
        texts = [
            f"{first}FROM {BASE_IMAGE}\nRUN echo {name} > /x; {lie}; exit 3\n",
            f"{first}FROM {BASE_IMAGE}\nRUN echo {name} > /x\nRUN exit 3\n",
            f"{first}FROM {BASE_IMAGE}\nRUN echo {name} > /y; {lie}\nCOPY absent /\n",
        ]
        try:
            for text, parts in zip(texts, (1, 2, 2), strict=True):
                attempt = desk.project(Dockerfile=text)
                with pytest.raises(BuildFailed, match=r"code: 3|COPY failed"):
                    desk.ready(attempt)
                key = _key(attempt, "Dockerfile")
                ours = [f"forge-build:{key}.{number}" for number in range(parts)]
                assert images_named(desk.engine, key) == ours
            foreign.reload()
            assert foreign.tags == []
        finally:
            desk.engine.images.remove(str(foreign.id))


@pytest.mark.skipif(os.geteuid() != 0, reason="gives the machine another address: needs root")
def test_build_reaches_no_metadata_address_and_keeps_to_its_memory(desk: ImageDesk) -> None:
    program = (
        "import socket\n"
        "import os\n"
        "places = ('memory/memory.limit_in_bytes', 'memory.max')\n"
        "places = [f'/sys/fs/cgroup/{place}' for place in places]\n"
        "limit = next(open(place).read() for place in places if os.path.exists(place))\n"
        "print('limit', int(limit) >> 20)\n"
        "for host, port in (('198.18.77.78', PORT), ('169.254.77.78', PORT)):\n"
        "    try:\n"
        "        socket.create_connection((host, port), 2)\n"
        "        print('reached', host)\n"
        "    except TimeoutError:\n"
        "        print('no way to', host)\n"
    )
    addresses = ("198.18.77.78", "169.254.77.78")
    for address in addresses:
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    try:
        with socket.create_server(("", 0)) as server:
            port = server.getsockname()[1]
            attempt = desk.project(
                Dockerfile=f"FROM {BASE_IMAGE}\nCOPY look.py /\nRUN python3 /look.py\n",
                **{"look.py": program.replace("PORT", str(port))},
            )
            desk.ready(attempt)
    finally:
        for address in addresses:
            subprocess.run(["ip", "address", "del", f"{address}/32", "dev", "lo"], check=True)
    log = said(attempt)
    assert "forge: reached 198.18.77.78\n" in log
    assert "forge: no way to 169.254.77.78\n" in log
    assert "forge: limit 256\n" in log


def test_build_that_takes_too_long_or_is_not_wanted_ends(
    desk: ImageDesk, eventually: Eventually
) -> None:
    slow = f"FROM {BASE_IMAGE}\nRUN echo begun; sleep 301\n"
    attempt = desk.project(Dockerfile=slow)
    with pytest.raises(BuildFailed, match="longer than the limit of 1 s"):
        desk.ready(attempt, desk.provision(build_limit_s=1.0))
    cancelled = desk.project(Dockerfile=slow)

    def cancel() -> None:
        eventually(lambda: "begun" in said(cancelled))
        cancelled.request_stop(Stop(Reason.CANCELLED))

    def build() -> None:
        with pytest.raises(Stopped):
            desk.ready(cancelled)

    at_once(cancel, build)
    eventually(lambda: containers(desk, "sleep 301") == [])


def test_dockerfile_that_is_not_there_is_named(desk: ImageDesk) -> None:
    with pytest.raises(ImageMissing, match="the project has no file Dockerfile"):
        desk.ready(desk.project())
    linked = desk.project()
    (linked.folders.work / "Dockerfile").symlink_to("/etc/passwd")
    with pytest.raises(ImageMissing, match="no file Dockerfile"):
        desk.ready(linked)
    # The engine would read what comes after that.
    long = desk.project(Dockerfile=f"FROM {BASE_IMAGE}\n" + "#\n" * (1 << 19) + "FROM other\n")
    with pytest.raises(DockerfileRefused, match="larger than 1 MiB"):
        desk.ready(long)


def test_operators_rules_hold_for_builds(desk: ImageDesk) -> None:
    attempt = desk.project(Dockerfile=f"FROM {BASE_IMAGE}\n")
    with pytest.raises(ImageRefused, match="builds no images"):
        desk.ready(attempt, desk.provision(allow_builds=False))
    with pytest.raises(ImageRefused, match="does not allow forge-test-base"):
        desk.ready(attempt, desk.provision(allowed_images=("debian",)))
    nowhere = desk.project(Dockerfile="FROM forge-no-such:1\n")
    with pytest.raises(ImageMissing, match="may not pull"):
        desk.ready(nowhere, desk.provision(pull="never"))
    with pytest.raises(ImageRefused, match="reserved for the worker"):
        desk.ready(desk.project(Dockerfile=f"FROM forge-tar:{'a' * 64}\n"))
    fetching = desk.project(Dockerfile=f"FROM {BASE_IMAGE}\nADD http://169.254.169.254/x /\n")
    with pytest.raises(DockerfileRefused, match="outside the build's network"):
        desk.ready(fetching)


def test_oldest_of_our_images_make_room_and_no_other(
    desk: ImageDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_image(desk.engine, base=b"x" * 100_000) as base:
        attempts = [desk.project(Dockerfile=f"FROM {base}\nRUN echo {n} > /n\n") for n in range(3)]
        starts = [desk.ready(attempt) for attempt in attempts]
        desk.run(starts[2], "cat", "/n")  # whose container is still there
        desk.ready(attempts[0])  # used last
        # Tests beside this one have images of ours too.
        ours = f"forge-{os.urandom(4).hex()}"
        own = [f"{ours}:{_key(attempt, 'Dockerfile')}" for attempt in attempts]
        for start, name in zip(starts, own, strict=True):
            tag = name.partition(":")[2]
            desk.engine.api.tag(str(start.image), ours, tag)
            remove_images(desk.engine, f"forge-build:{tag}")
        for name in (own[1], own[2], own[0]):
            own_images.kept(desk.engine, name)
        monkeypatch.setattr(own_images, "OWN", (ours,))
        try:
            assert own_images.make_room(desk.engine, 0) == []  # all too fresh
            monkeypatch.setattr(own_images, "FRESH_S", -1)
            assert own_images.make_room(desk.engine, 1 << 40) == []
            # The oldest goes first, one with a container stays, and so does every other image.
            gone = own_images.make_room(desk.engine, 1)
            assert [short(name) for name in gone if name.endswith(tuple(own))] == [own[1], own[0]]
            assert images_named(desk.engine, ours) == [own[2]]
            assert images_named(desk.engine, base) == [base]
        finally:
            desk.close()
            desk.jobs.clear()
            remove_images(desk.engine, *images_named(desk.engine, ours))
