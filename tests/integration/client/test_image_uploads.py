"""Saved images on their way to the store, and who may read them there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_client import ClientError
from forge_client.direct.backend import DirectBackend
from forge_client.http.backend import HttpBackend
from forge_client.http.server import Server
from forge_client.project.forge_toml import Project
from forge_client.project.image_tar import ImageTarUnfit, read
from forge_client.project.request import Request
from forge_client.project.submission import no_bar, upload_images, with_images
from forge_client.settings import Connection
from forge_functions.objects.access import may_get, may_put
from forge_schema.queue.own_leases import OwnLease, OwnLeases
from forge_schema.storage import keys, open_store
from support.client.reaching import key
from support.engine.image_registry import one_file
from support.http.server import served, server_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from forge_client.backend import Backend
    from support.queue.rig import Rig

TAR = "ef" * 32


@pytest.fixture(params=["direct", "http"])
def backend(request: pytest.FixtureRequest, rig: Rig, tmp_path: Path) -> Iterator[Backend]:
    store_url = (tmp_path / "store").as_uri()
    if request.param == "direct":
        with DirectBackend(Connection(rig.url, store_url), owner="ann") as direct:
            yield direct
        return
    with (
        served(server_settings(rig.url, store_url)) as url,
        HttpBackend(Server(url, key(rig))) as http,
    ):
        yield http


def test_saved_image_is_uploaded_once_for_all_its_jobs(backend: Backend, tmp_path: Path) -> None:
    file = tmp_path / "image.tar"
    file.write_bytes(one_file("manifest.json", b"[]" * 700_000))
    asked = [Request(name=name, image_tar=str(file)) for name in ("a", "b")]
    requests, images = with_images(asked)
    (image,) = images
    assert {request.image_tar for request in requests} == {image.digest}
    moved: list[int] = []
    assert not backend.has_image(image)
    backend.upload_image(image, moved.append)
    assert sum(moved) == image.size
    assert upload_images(backend, images, bar=no_bar) == {image: False}
    store = open_store((tmp_path / "store").as_uri())
    assert store.get(keys.image(image.digest)) == file.read_bytes()
    # With the SHA-256 known to the store, the file is no longer needed.
    assert with_images(requests) == (requests, [])


def test_file_that_docker_did_not_save_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no image")
    (tmp_path / "other").write_bytes(one_file("a", b"b"))
    for name in ("none", "text", "other"):
        with pytest.raises(ImageTarUnfit) as refused:
            read(tmp_path / name, no_bar)
        assert "docker save" in refused.value.hint


def test_one_way_to_an_image_takes_the_place_of_another(tmp_path: Path) -> None:
    (tmp_path / "forge.toml").write_text('command = "x"\nimage_tar = "../saved.tar"\n')
    request = Project.read(tmp_path).request()
    assert request.image_tar == str(tmp_path / "../saved.tar")
    built = request.changed({"dockerfile": "docker/Dockerfile"})
    assert (built.image, built.image_tar, built.dockerfile) == (None, None, "docker/Dockerfile")
    named = built.changed({"image": "debian", "name": "n"})
    assert named.changed({"priority": 3}).fields().items() >= {"image": "debian"}.items()
    assert "dockerfile" not in named.fields()


def test_two_ways_at_once_are_refused(backend: Backend) -> None:
    spec = {"name": "x", "owner": "ann", "command": ["true"]}
    with pytest.raises(ClientError, match="only one of"):
        backend.check([{**spec, "image": "debian", "image_tar": TAR}])


def test_holder_of_a_lease_reads_its_jobs_image_and_no_other(rig: Rig, tmp_path: Path) -> None:
    store = open_store((tmp_path / "store").as_uri())
    rig.submit(image_tar=TAR)
    rig.submit(name="plain")
    worker = rig.worker()
    with_tar, without = (
        OwnLeases(rig.database, worker.id).lease(grant.fence) for grant in worker.claim(2)
    )
    assert isinstance(with_tar, OwnLease)
    assert isinstance(without, OwnLease)
    assert may_get(with_tar, keys.image(TAR), store)
    assert not may_get(with_tar, keys.image("ab" * 32), store)
    assert not may_get(without, keys.image(TAR), store)
    assert not may_put(with_tar, keys.image(TAR))
