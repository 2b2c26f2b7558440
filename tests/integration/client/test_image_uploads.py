"""Saved images on their way to the store, what becomes of damaged ones, and who may read them."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import pytest
from forge_client import ClientError
from forge_client.direct.backend import DirectBackend
from forge_client.errors import InvalidInput
from forge_client.http import Server
from forge_client.http.backend import HttpBackend
from forge_client.project.bundle import pack
from forge_client.project.forge_toml import Project
from forge_client.project.image_tar import read
from forge_client.project.request import Request
from forge_client.project.submission import no_bar, upload_images, with_images
from forge_client.settings import QueueConnection
from forge_functions.objects import may_get, may_put
from forge_schema.model.states import Reason
from forge_schema.queue.attempt_records import OwnLease, OwnLeases
from forge_schema.storage import keys, open_store
from support.client.reaching import key
from support.engine.image_registry import one_file
from support.http.server import served, server_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from forge_client.backend import Backend
    from support.queue.rig import Rig

    Kind = tuple[str, Callable[[], None], Callable[[], bool], str, Reason]

TAR = "ef" * 32


@pytest.fixture(params=["direct", "http"])
def backend(request: pytest.FixtureRequest, rig: Rig, tmp_path: Path) -> Iterator[Backend]:
    store_url = (tmp_path / "store").as_uri()
    if request.param == "direct":
        with DirectBackend(QueueConnection(rig.url, store_url), owner="ann") as direct:
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
    asked = [Request().changed({"name": name, "image_tar": str(file)}) for name in ("a", "b")]
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


def test_what_a_worker_found_damaged_is_sent_again_and_a_lie_forgets_nothing(
    backend: Backend, rig: Rig, tmp_path: Path
) -> None:
    """Bundles and images alike; a worker's word deletes nothing and takes nobody's right."""
    (tmp_path / "image.tar").write_bytes(one_file("manifest.json", b"[]"))
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("print(1)")
    image = read(tmp_path / "image.tar", no_bar)
    bundle = pack(tmp_path / "project", tmp_path / "bundle", limit_bytes=1 << 20)
    store = open_store((tmp_path / "store").as_uri())
    kinds: list[Kind] = [
        (keys.bundle(bundle.digest), partial(backend.upload_bundle, bundle),
         partial(backend.has_bundle, bundle), "bundle_digest", Reason.BUNDLE_CORRUPT),
        (keys.image(image.digest), partial(backend.upload_image, image),
         partial(backend.has_image, image), "image_tar", Reason.IMAGE_MISSING),
    ]  # fmt: skip
    for stored_as, upload, has, field, reason in kinds:
        digest = image.digest if field == "image_tar" else bundle.digest
        upload()
        whole = store.get(stored_as)
        # One byte less is seen at once.
        store.put(stored_as, whole[:-1])
        assert not has()
        upload()
        assert store.get(stored_as) == whole
        store.put(stored_as, bytes(len(whole)))
        assert has()
        worker = rig.worker(field)
        for said, sound in (
            ("it has no command", True),
            (f"the store's copy of {stored_as}", False),
        ):
            (job,) = backend.submit([{"name": "x", "command": ["ls"], field: digest}])
            (grant,) = [one for one in worker.claim() if one.job_id == job]
            rig.clock.set(datetime.now(UTC))
            rig.finish(grant, reason, detail=said)
            assert has() == sound
        assert store.size(stored_as) == len(whole)
        # It runs until it is replaced, and for all others whose right it is.
        assert backend.submit([{"name": "y", "command": ["ls"], field: digest, "delay_s": 900}])
        upload()
        assert has()
        assert store.get(stored_as) == whole
        (remedy, *_) = backend.explain(job, workers=0).remedies
        assert remedy.text == "submit it again, which replaces the stored copy"


def test_file_that_docker_did_not_save_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no image")
    (tmp_path / "other").write_bytes(one_file("a", b"b"))
    for name in ("none", "text", "other"):
        with pytest.raises(InvalidInput) as refused:
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
