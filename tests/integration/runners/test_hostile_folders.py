"""A job that swaps its folders for links while root gives them away or removes them."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest
from forge_worker.files.placing import give_in_order
from forge_worker.files.safe_files import remove_tree
from forge_worker.runners.owners import give, give_mounted
from forge_worker.runners.runner import Mount
from support.services import require
from support.workers.runners import Bench, docker_runner, require_docker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDERS = ("work", "output", "checkpoint", "control")
WALKS = 300
# A folder and a link to the victim change places, as fast as the kernel does it.
SWAPS = """
import ctypes, os, sys
libc, exchange = ctypes.CDLL(None), 2
here = -100
for folder in sys.argv[2:]:
    os.makedirs(f"/forge/{folder}/d", exist_ok=True)
    open(f"/forge/{folder}/d/file", "w").close()
    os.symlink(sys.argv[1], f"/forge/{folder}/l")
names = [(f"/forge/{f}/d".encode(), f"/forge/{f}/l".encode()) for f in sys.argv[2:]]
print("ready", flush=True)
while True:
    for one, other in names:
        libc.renameat2(here, one, here, other, exchange)
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    require_docker()
    require(os.geteuid() == 0, "root")
    bench = Bench(docker_runner(), tmp_path)
    yield bench
    bench.close()


def test_root_changes_nothing_outside_of_folders_that_a_job_swaps_for_links(bench: Bench) -> None:
    victim = bench.root / "victim"
    victim.mkdir(mode=0o755)
    (victim / "file").touch(mode=0o644)
    job = bench.python(SWAPS, str(victim), *FOLDERS)
    job.expect(b"ready")
    for _ in range(WALKS):
        give(job.spec.folders, 65532, 65532)
        for folder in job.spec.folders:
            give_in_order(folder, 65532, 65532)
            with_link = Mount(folder / "d", PurePosixPath("/cache"), given=True)
            try:
                give_mounted([with_link], 65532, 65532)
            except OSError:
                continue
    for folder in job.spec.folders:
        remove_tree(folder)
    for place, mode in ((victim, 0o755), (victim / "file", 0o644)):
        seen = place.stat()
        assert (seen.st_uid, seen.st_gid, seen.st_mode & 0o777) == (0, 0, mode)
