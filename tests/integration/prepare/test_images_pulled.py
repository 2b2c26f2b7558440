"""Images by name: pulled with progress in the job's log, pinned by digest, within the policy."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.states import Reason
from forge_worker.attempt import Stop, Stopped
from forge_worker.runners.images.image import ensure_image
from forge_worker.runners.images.reference import ImageRefused
from forge_worker.runners.runner import ImageMissing, StartFailed
from support.at_once import at_once
from support.engine.image_desk import ImageDesk, image_desk, said
from support.engine.image_registry import image_registry, one_file
from support.engine.images import BASE_IMAGE
from support.engine.small_image import layer, remove_images
from support.workers.runners import engine_kind, needs_plain_registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.engine.image_registry import Registry


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[ImageDesk]:
    with image_desk(tmp_path) as desk:
        yield desk


@pytest.fixture
def registry() -> Iterator[Registry]:
    needs_plain_registry()
    with image_registry() as registry:
        yield registry


def test_pull_is_told_in_the_log_and_the_digest_is_recorded(
    desk: ImageDesk, registry: Registry
) -> None:
    digest = registry.add("a/train", "1", layer(one=os.urandom(9)), one_file("w", os.urandom(9999)))
    name = f"{registry.host}/a/train:1"
    attempts = [desk.attempt(image=name) for _ in range(3)]
    try:
        starts = at_once(*(lambda a=attempt: desk.ready(a) for attempt in attempts))
        assert len({start.image for start in starts}) == 1
        # One of them pulled, and the others waited for it.
        (log,) = [said(attempt) for attempt in attempts if "pulled" in said(attempt)]
        size = "[0-9.]+ [KMG]iB"
        came = "" if engine_kind().podman else f": 2 of 2 layers, {size} of {size}"
        assert re.search(rf"pulled {re.escape(name)}{came} in", log)
        assert log.startswith(f"forge: pulling {name}\n")
        assert f"{registry.host}/a/train@{digest}" in log
        # What was there already needs no word in a job's log.
        assert sorted(said(attempt) for attempt in attempts) == ["", "", log]
        assert desk.run(starts[0], "cat", "/one") != b""
        labels = desk.engine.containers.get(desk.jobs[0].spec.name).labels
        assert labels["forge.image"] == name
    finally:
        remove_images(desk.engine, name, f"{registry.host}/a/train@{digest}")


def test_pinned_image_is_the_one_that_runs(desk: ImageDesk, registry: Registry) -> None:
    first = registry.add("pin", "1", layer(which=b"first"))
    second = registry.add("pin", "1", layer(which=b"second"))
    name = f"{registry.host}/pin"
    try:
        pinned = desk.ready(desk.attempt(image=f"{name}@{first}"))
        assert desk.run(pinned, "cat", "/which") == b"first"
        moved = desk.ready(desk.attempt(image=f"{name}:1"))
        assert desk.run(moved, "cat", "/which") == b"second"
        # A pinned image is requested only once, whatever the policy says about others.
        registry.asked.clear()
        always = desk.provision(pull="always")
        assert desk.ready(desk.attempt(image=f"{name}@{first}"), always).image == pinned.image
        assert registry.asked == []
        # A registry that answers with another image than the one asked for is not believed.
        wrong = "sha256:" + "0" * 64
        registry.objects[f"/v2/pin/manifests/{wrong}"] = registry.objects[
            f"/v2/pin/manifests/{second}"
        ]
        with pytest.raises(StartFailed, match="could not be pulled"):
            desk.ready(desk.attempt(image=f"{name}@{wrong}"))
    finally:
        remove_images(desk.engine, f"{name}@{first}", f"{name}:1", f"{name}@{second}")


def test_an_image_that_is_no_longer_needed_is_not_pulled(
    desk: ImageDesk, registry: Registry
) -> None:
    registry.add("unwanted", "1", layer(one=os.urandom(9)))
    attempt = desk.attempt(image=f"{registry.host}/unwanted:1")
    attempt.request_stop(Stop(Reason.CANCELLED))
    with pytest.raises(Stopped):
        desk.ready(attempt)


@pytest.mark.parametrize(
    ("globs", "image"),
    [
        (("*",), BASE_IMAGE),
        (("forge-test-*",), BASE_IMAGE),
        (("docker.io/library/forge-test-base",), "forge-test-base"),
        (("forge-test-base:latest",), "docker.io/library/forge-test-base"),
    ],
)
def test_image_that_the_operator_allows(
    desk: ImageDesk, globs: tuple[str, ...], image: str
) -> None:
    images = desk.provision(allowed_images=globs, pull="never")
    assert desk.ready(desk.attempt(image=image), images).image


@pytest.mark.parametrize(
    ("globs", "image"),
    [
        (("forge-test-base",), "forge-test-base:other"),
        (("registry.example/us/*", "tar:*"), BASE_IMAGE),
        ((), BASE_IMAGE),
        (("*",), "forge-tar:" + "a" * 64),
        (("*",), "docker.io/library/forge-build:" + "a" * 64),
    ],
)
def test_image_that_the_operator_does_not_allow(
    desk: ImageDesk, globs: tuple[str, ...], image: str
) -> None:
    images = desk.provision(allowed_images=globs, pull="never")
    with pytest.raises(ImageRefused):
        desk.ready(desk.attempt(image=image), images)


def test_image_is_never_had_by_its_id(desk: ImageDesk) -> None:
    """Nor by the beginning of its id, which the engine would take for a name."""
    image_id = desk.engine.images.get(BASE_IMAGE).id
    assert image_id is not None
    images = desk.provision(pull="never")
    with pytest.raises(ImageRefused, match="not by its id"):
        desk.ready(desk.attempt(image=image_id), images)
    for part in (image_id[7:19], image_id[7:27]):
        with pytest.raises(ImageMissing):
            desk.ready(desk.attempt(image=part), images)
    # The operator's own default may be an id.
    own = desk.provision(pull="never", default_image=image_id, allowed_images=())
    assert desk.ready(desk.attempt(image=image_id), own).image == image_id


def test_image_that_vanished_before_the_start_is_another_attempts_to_make(desk: ImageDesk) -> None:
    with pytest.raises(StartFailed, match="no longer on this machine"):
        ensure_image(desk.engine, "sha256:" + "0" * 64, replace(desk.policy))
