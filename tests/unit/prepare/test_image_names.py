"""Image names, and the messages about a pull."""

from __future__ import annotations

import pytest
from forge_worker.runners.images.image import PullProgress
from forge_worker.runners.images.reference import is_own, normal, parse
from forge_worker.runners.runner import ImageMissing

PIN = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("name", "local"),
    [
        ("debian", "debian:latest"),
        ("docker.io/library/debian:12", "debian:12"),
        ("index.docker.io/me/train", "me/train:latest"),
        ("registry.example/me/train:3.1_x", "registry.example/me/train:3.1_x"),
        ("localhost:5000/a/b__c", "localhost:5000/a/b__c:latest"),
        (f"debian@{PIN}", f"debian@{PIN}"),
        (f"registry.example/me/train:3@{PIN}", f"registry.example/me/train@{PIN}"),
    ],
)
def test_name_as_the_engine_lists_it(name: str, local: str) -> None:
    assert parse(name).local == local
    assert local in parse(name).spellings
    assert all(parse(other).local == local for other in parse(name).spellings)


@pytest.mark.parametrize(
    ("asked", "docker", "podman"),
    [
        ("debian", "debian:latest", "docker.io/library/debian:latest"),
        ("docker.io/debian:12", "debian:12", "docker.io/library/debian:12"),
        ("me/train:1", "me/train:1", "docker.io/me/train:1"),
        # Built or loaded with Podman.
        ("train:1", "train:1", "localhost/train:1"),
        ("me/train:1", "me/train:1", "localhost/me/train:1"),
        ("localhost/train:1", "localhost/train:1", "localhost/train:1"),
        ("registry.example/me/train:1", "registry.example/me/train:1", None),
        ("localhost:5000/train", "localhost:5000/train:latest", None),
        (f"debian@{PIN}", f"debian@{PIN}", f"docker.io/library/debian@{PIN}"),
        (f"debian:12@{PIN}", f"debian@{PIN}", f"localhost/debian@{PIN}"),
    ],
)
def test_image_is_found_as_each_engine_lists_it(
    asked: str, docker: str, podman: str | None
) -> None:
    for listed in filter(None, (docker, podman)):
        assert parse(asked).is_in(["other:1", "<none>:<none>", listed])
    assert normal(docker) == normal(parse(asked).full)


@pytest.mark.parametrize(
    ("asked", "listed"),
    [
        ("train:1", "registry.example/train:1"),
        ("train:1", "train:2"),
        ("train", "localhost/other:latest"),
        # A name with a registry is never one of Docker Hub's, nor the other way round.
        ("localhost/train:1", "train:1"),
        ("registry.example/train:1", "localhost/train:1"),
        (f"debian@{PIN}", "debian:latest"),
    ],
)
def test_another_image_is_not_taken_for_it(asked: str, listed: str) -> None:
    assert not parse(asked).is_in([listed])


@pytest.mark.parametrize(
    ("listed", "own"),
    [
        ("forge-build:a", True),
        ("docker.io/library/forge-tar:a", True),
        ("localhost/forge-build:a.0", True),
        ("me/forge-build:a", False),
        ("registry.example/forge-tar:a", False),
        ("forge-builder:a", False),
        ("<none>:<none>", False),
    ],
)
def test_forges_own_images_are_known_under_every_engines_name(listed: str, own: bool) -> None:  # noqa: FBT001  a case
    assert is_own(listed) is own


@pytest.mark.parametrize(
    "name", ["", PIN, "Debian", "a:", "a@", "a@sha256:0", "a b", "-a", "a/../b", "a\n", "http://a"]
)
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(ImageMissing, match="not the name of an image"):
        parse(name)


def test_a_thousand_steps_of_a_pull_are_a_few_lines() -> None:
    told: list[str] = []
    progress = PullProgress("a:1", told.append, every_s=3600)
    progress({"status": "Pulling from a", "id": "1"})
    for layer in ("x", "y"):
        progress({"status": "Pulling fs layer", "progressDetail": {}, "id": layer})
    for done in range(1000):
        detail = {"current": done * 2000, "total": 2_000_000}
        progress({"status": "Downloading", "progressDetail": detail, "id": "x"})
    progress.every_s = 0
    progress({"status": "Already exists", "progressDetail": {}, "id": "y"})
    assert told == ["pulling a:1", "pulling a:1: 1 of 2 layers, 1.9 MiB of 1.9 MiB"]
    progress({"status": "Download complete", "progressDetail": {}, "id": "x"})
    progress({"status": "Pull complete", "progressDetail": {}, "id": "x"})
    progress.end()
    assert told[-1].startswith("pulled a:1: 2 of 2 layers, 1.9 MiB of 1.9 MiB in ")


def test_pull_without_sizes_is_told_without_them() -> None:
    """What Podman 5.4.2 says of three parts: nothing is ever unpacked, nor has it a size."""
    told: list[str] = []
    progress = PullProgress("a:1", told.append, every_s=0)
    for part in ("x", "y", "z"):
        for status in ("Pulling fs layer", "Download complete"):
            progress({"status": status, "progressDetail": {}, "id": part})
    progress.end()
    assert set(told[:-1]) == {"pulling a:1"}
    assert told[-1].startswith("pulled a:1 in ")
