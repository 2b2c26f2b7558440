"""Images from saved tars: verified first, loaded once, under no name but ours."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from typing import TYPE_CHECKING

import pytest
from forge_schema.storage import StoreError, keys
from forge_worker.runners.engines import kind_of
from forge_worker.runners.images.reference import ImageRefused
from forge_worker.runners.images.saved_image import SavedImageUnsound
from forge_worker.runners.runner import ImageMissing
from support.at_once import at_once
from support.engine.image_desk import ImageDesk, image_desk, said
from support.engine.small_image import images_named, remove_images, saved, short, small_image

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[ImageDesk]:
    with image_desk(tmp_path) as desk:
        yield desk


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def packed(**files: object) -> bytes:
    """Return a tar of files: bytes as they are, all else as JSON."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in files.items():
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            info = tarfile.TarInfo(name.replace("_", "."))
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return made.getvalue()


def test_saved_image_is_loaded_once_and_renames_nothing(desk: ImageDesk) -> None:
    """Two images of one name: the one saved must not take the name of the one that is here."""
    with small_image(desk.engine, which=b"saved") as name:
        data = saved(desk.engine, name, desk.root / "image.tar").read_bytes()
        image_id = desk.engine.images.get(name).id
    digest = sha256(data)
    desk.keep(data, digest)
    with small_image(desk.engine, which=b"other") as other:
        remove_images(desk.engine, name)
        desk.engine.images.get(other).tag(name.partition(":")[0], "latest")
        attempts = [desk.attempt(image_tar=digest) for _ in range(3)]
        starts = at_once(*(lambda a=attempt: desk.ready(a) for attempt in attempts))
        if kind_of(desk.engine.info()).containerd:
            # Its ids are those of manifests, which `docker save` leaves out.
            image_id = starts[0].image
        assert [start.image for start in starts] == [image_id] * 3
        assert desk.store.downloads == 1
        assert sum("fetching the saved image" in said(one) for one in attempts) == 1
        assert desk.run(starts[0], "cat", "/which") == b"saved"
        # The name still refers to the same image, and the saved one has no name but ours.
        assert desk.engine.images.get(name).id == desk.engine.images.get(other).id
        assert images_named(desk.engine, digest) == [f"forge-tar:{digest}"]
        tags = desk.engine.images.get(str(image_id)).tags
        assert all(short(tag).startswith(f"forge-tar:{digest}") for tag in tags)
        assert not list(desk.images.folder.glob("*"))
        # Another worker of this machine finds it here.
        later = desk.attempt(image_tar=digest)
        assert desk.ready(later, desk.provision()).image == image_id
        assert desk.store.downloads == 1
        remove_images(desk.engine, name)


def test_damaged_tar_is_never_read(desk: ImageDesk) -> None:
    digest = sha256(b"what was meant")
    desk.keep(b"something else", digest)
    with pytest.raises(SavedImageUnsound, match=r"the store's copy of .* is damaged"):
        desk.ready(desk.attempt(image_tar=digest))
    assert desk.store.downloads == 2
    assert images_named(desk.engine, digest) == []
    assert not list(desk.images.folder.glob("*"))


def test_tar_that_the_store_lacks_is_final_and_one_that_is_away_is_not(
    desk: ImageDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ImageMissing, match="the store has no saved image abababababab"):
        desk.ready(desk.attempt(image_tar="ab" * 32))

    def away(*_: object, **__: object) -> None:
        raise StoreError("it does not answer")

    monkeypatch.setattr(desk.store, "get_file", away)
    with pytest.raises(StoreError):
        desk.ready(desk.attempt(image_tar="ab" * 32))


ENTRY = {"Config": "c.json", "RepoTags": ["debian:12"], "Layers": []}


@pytest.mark.parametrize(
    "data",
    [
        b"no tar at all" * 100,
        packed(a=b"x"),
        packed(manifest_json=[]),
        packed(manifest_json=[ENTRY]),
        packed(manifest_json=[ENTRY, ENTRY], c_json={}),
        packed(manifest_json={"Config": "c.json"}, c_json={}),
        packed(manifest_json=b"{", c_json={}),
        packed(manifest_json=[{"Config": 7}], c_json={}),
        packed(manifest_json=[{**ENTRY, "Layers": ["none"]}], c_json={}),
        packed(manifest_json=[ENTRY], c_json={}, **{"../up": b"x"}),
    ],
)
def test_tar_that_is_no_saved_image_is_refused(desk: ImageDesk, data: bytes) -> None:
    digest = sha256(data)
    desk.keep(data, digest)
    with pytest.raises(SavedImageUnsound) as refused:
        desk.ready(desk.attempt(image_tar=digest))
    assert "docker save" in refused.value.hint
    assert images_named(desk.engine, digest) == []


def test_tar_cut_short_is_refused(desk: ImageDesk) -> None:
    with small_image(desk.engine) as name:
        data = saved(desk.engine, name, desk.root / "image.tar").read_bytes()
    short = data[: len(data) // 2]
    desk.keep(short, sha256(short))
    with pytest.raises(SavedImageUnsound):
        desk.ready(desk.attempt(image_tar=sha256(short)))


def test_operators_rules_hold_for_tars(desk: ImageDesk) -> None:
    digest = sha256(b"x")
    desk.keep(b"x", digest)
    attempt = desk.attempt(image_tar=digest)
    with pytest.raises(ImageRefused, match="does not allow the saved image"):
        desk.ready(attempt, desk.provision(allowed_images=("debian:*",)))
    for glob in ("tar:*", f"tar:{digest}"):
        with pytest.raises(SavedImageUnsound):
            desk.ready(attempt, desk.provision(allowed_images=(glob,)))
    assert keys.image(digest) == f"images/{digest}.tar"
