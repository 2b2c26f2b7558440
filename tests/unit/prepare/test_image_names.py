"""Image names, and the messages about a pull."""

from __future__ import annotations

import pytest
from forge_worker.runners.images.image import PullProgress
from forge_worker.runners.images.reference import parse
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
