"""The next job's inputs are fetched and its environment is built while this one computes."""

from __future__ import annotations

import hashlib
import os
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from docker import from_env
from forge_schema.queue.inputs import Uploads
from forge_schema.storage import keys
from support.engine.small_image import images_named, remove_images, saved, small_image
from support.waiting import eventually
from support.wheels import project
from support.workers.http_bed import http_bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workers.worker import Bed


@pytest.fixture(params=["direct", "HTTP"])
def bed(request: pytest.FixtureRequest, tmp_path: Path, database_url: str) -> Iterator[Bed]:
    if request.param == "direct":
        yield request.getfixturevalue("process")
        return
    with http_bed(tmp_path, database_url) as made:
        yield made


def test_the_next_jobs_environment_is_ready_before_the_slot_is_free(bed: Bed) -> None:
    worker = bed.worker(max_jobs=1, max_storing=0, prefetch_s=0.1)
    os.mkfifo(bed.root / "go")
    computing = bed.submit("cat", str(bed.root / "go"))
    eventually(lambda: bed.job(computing)["phase"] == "running")
    folder = project(bed.root / "p", "fetched_ahead", "1.0")
    following = bed.submit("python", "main.py", folder=folder, requirements="requirements.txt")
    eventually(lambda: f"job={following}" in worker.output and "prefetched" in worker.output)
    # It is still in the queue, for any worker.
    assert (bed.job(following)["state"], bed.leases()) == ("ready", 1)
    assert list((worker.folder / "envs").glob("*/complete"))
    assert list((worker.folder / "ahead").iterdir()) == []
    (bed.root / "go").write_text("")
    bed.succeeds(following)
    assert b"has 1.0" in bed.log(following)
    assert b"forge: installing" not in bed.log(following)


def test_the_next_jobs_image_is_loaded_before_the_slot_is_free(docker: Bed) -> None:
    with closing(from_env()) as engine, small_image(engine) as name:
        tar = saved(engine, name, docker.root / "image.tar")
        digest = hashlib.sha256(tar.read_bytes()).hexdigest()
        # Only the saved one is left.
        remove_images(engine, name)
        docker.store.put_file(keys.image(digest), tar)
        Uploads(docker.database).add("ann", digest)
        worker = docker.worker(max_jobs=1, max_storing=0, prefetch_s=0.1)
        computing = docker.submit("sh", "-c", "until [ -e go ]; do sleep 0.1; done")
        eventually(lambda: docker.job(computing)["phase"] == "running")
        following = docker.submit("sh", "-c", "echo up", image_tar=digest)
        eventually(lambda: f"job={following}" in worker.output and "prefetched" in worker.output)
        assert (docker.job(following)["state"], docker.leases()) == ("ready", 1)
        assert images_named(engine, digest) != []
        (folder,) = worker.folder.glob(f"jobs/{computing}-*")
        (folder / "work" / "go").touch()
        docker.succeeds(following)
        assert docker.log(following) == b"up\n"
        remove_images(engine, f"forge-tar:{digest}")
