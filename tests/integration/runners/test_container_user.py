"""The user of a job in a container has a name, whatever its image knows."""

from __future__ import annotations

import io
import os
import tarfile
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import docker
import pytest
from support.engine.images import BASE_IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workers.runners import Bench

ASKS = """
import getpass, grp, os, pathlib, pwd
user = pwd.getpwuid(os.getuid())
print(getpass.getuser(), user.pw_name, user.pw_uid, grp.getgrgid(os.getgid()).gr_name)
print(pathlib.Path.home(), os.path.expanduser("~"), os.access(pathlib.Path.home(), os.W_OK))
print(pwd.getpwuid(0).pw_name)
"""
# A worker that is not root gives jobs its own id.
ID, GROUP = (os.geteuid(), os.getegid()) if os.geteuid() else (65532, 65532)
MINE = f"forge forge {ID} forge\n/forge/work /forge/work True\nroot\n"
KNOWN = f"root:x:0:0:root:/root:/bin/sh\nann:x:{ID}:{GROUP}::/home/ann:/bin/sh\n"
TAKEN = "root:x:0:0::/:/bin/sh\nforge:x:999:999::/home/forge:/bin/sh"


@contextmanager
def image_with(files: dict[str, str], removes: str = "") -> Iterator[str]:
    """Make an image of the tests' with other lists of users."""
    with closing(docker.from_env()) as client:
        made = client.containers.create(BASE_IMAGE, ["sh", "-c", removes or "true"], user="0")
        try:
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w") as tar:
                for name, text in files.items():
                    entry = tarfile.TarInfo(name)
                    entry.size = len(text.encode())
                    tar.addfile(entry, io.BytesIO(text.encode()))
            made.put_archive("/etc", packed.getvalue())
            made.start()
            made.wait()
            image = made.commit()
        finally:
            made.remove(force=True)
        try:
            yield str(image.id)
        finally:
            client.images.remove(str(image.id), force=True)


@pytest.mark.parametrize(
    ("files", "removes", "told"),
    [
        ({}, "", MINE),
        ({}, "rm /etc/passwd /etc/group", MINE),
        (
            {"passwd": KNOWN, "group": f"root:x:0:\nteam:x:{GROUP}:\n"},
            "",
            MINE.replace(f"forge forge {ID} forge", f"ann ann {ID} team"),
        ),
        ({"passwd": TAKEN}, "", MINE.replace("forge forge", f"forge{ID} forge{ID}")),
    ],
    ids=["unknown", "without lists", "known", "name taken"],
)
def test_job_finds_the_name_of_its_user(
    bench: Bench, files: dict[str, str], removes: str, told: str
) -> None:
    with image_with(files, removes) as image:
        # The first job of an image, and another.
        for _ in range(2):
            job = bench.python(ASKS, image=image)
            assert job.result().code == 0, job.output
            assert job.output.decode() == told
            job.handle.remove()


def test_image_may_name_the_user(bench: Bench) -> None:
    with closing(docker.from_env()) as client:
        made = client.containers.create(BASE_IMAGE, "true")
        image = made.commit(conf={"Env": ["USER=maker", "LOGNAME=maker"]})
        made.remove()
        try:
            job = bench.run("sh", "-c", "echo $USER $LOGNAME; id -un; whoami", image=str(image.id))
            assert job.result().code == 0
            assert job.output == b"maker maker\nforge\nforge\n"
            job.handle.remove()
        finally:
            client.images.remove(str(image.id), force=True)
