"""Temporary files and shared memory of a job that is a process go with it."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.spec import Resources
from forge_worker import attempt_folders
from forge_worker.attempt_folders import forget_path, short_path
from forge_worker.runners.owners import JobUser
from forge_worker.runners.process.runner import ProcessRunner
from support.services import require
from support.workers.runners import Bench, Job

if TYPE_CHECKING:
    from support.workers.worker import Bed

# A socket of `multiprocessing`, and one as deep as Ray's, have to fit into a path of 107 bytes.
USES = """
import multiprocessing.connection, os, pathlib, socket, tempfile
place = pathlib.Path(tempfile.gettempdir())
assert os.environ["TMPDIR"] == str(place)
multiprocessing.connection.Listener(family="AF_UNIX")
deep = place / "ray" / ("s" * 50) / "sockets"
deep.mkdir(parents=True)
socket.socket(socket.AF_UNIX).bind(str(deep / "raylet"))
(place / "left").write_text("x")
print(place, place.resolve(), flush=True)
"""
FILLS = """
import os, signal, tempfile
with tempfile.NamedTemporaryFile(delete=False) as file:
    for _ in range(40): file.write(os.urandom(1 << 20))
    file.flush()
    print("full", flush=True)
    while True: signal.pause()
"""
LEAVES = """
cd /dev/shm
echo x > $1; echo x > sem.$1; mkdir $1-folder; echo x > $1-folder/segment
ipcmk --shmem 4096
kill -KILL $$
"""


def test_process_has_a_folder_for_temporary_files_that_goes_with_it(process: Bed) -> None:
    worker = process.worker()
    job = process.script(USES)
    process.succeeds(job)
    short, whole = map(Path, process.log(job).decode().split())
    assert whole.is_relative_to(worker.folder / "jobs")
    assert len(str(short)) <= attempt_folders.LONGEST
    following = process.script("print('next')")
    process.succeeds(following)
    worker.leave()
    assert not whole.exists()
    assert not os.path.lexists(short)


def test_what_a_job_sets_itself_counts(process: Bed) -> None:
    process.worker()
    job = process.script("import os; print(os.environ['TMPDIR'])", env={"TMPDIR": "elsewhere"})
    process.succeeds(job)
    assert process.log(job) == b"elsewhere\n"


def test_temporary_files_count_as_disk_of_the_job(process: Bed) -> None:
    process.worker()
    job = process.script(
        FILLS, max_failures=0, resources=Resources(cpus=0.5, memory_mb=256, disk_mb=20)
    )
    assert process.ended(job)["reason"] == "disk_full"


def test_link_to_a_folder_that_is_gone_goes_with_the_next(tmp_path: Path) -> None:
    gone, here = tmp_path / ("gone" * 20), tmp_path / ("here" * 20)
    gone.mkdir()
    link = short_path(gone)
    gone.rmdir()
    short_path(here)
    assert not link.is_symlink()
    forget_path(here)


def test_somebody_elses_link_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    link = short_path(folder)
    assert link != folder
    link.unlink()
    link.symlink_to(tmp_path)
    try:
        assert short_path(folder) == folder
        forget_path(folder)
        assert link.is_symlink()
    finally:
        link.unlink()


@pytest.fixture
def mark() -> str:
    return f"forge-test-{uuid.uuid4().hex}"


def there(mark: str) -> set[str]:
    found = Path("/dev/shm").glob(f"*{mark}*")  # noqa: S108  where programs put it
    return {file.name.replace(mark, "") for file in found}


def segments() -> set[int]:
    rows = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return {int(row.split()[1]) for row in rows}


def test_shared_memory_of_the_jobs_own_user_goes_with_the_last_of_its_jobs(mark: str) -> None:
    require(os.geteuid() == 0, "root")
    # Nothing else on this machine runs as this user.
    uid = 60_000 + int(mark[-6:], 16) % 5_000
    others = [Path(f"/dev/shm/{mark}-{name}") for name in ("before", "another")]  # noqa: S108
    for other in others:
        other.touch()
    os.chown(others[0], uid, uid)
    with TemporaryDirectory(prefix="forge-user-") as folder:
        Path(folder).chmod(0o711)
        bench = Bench(ProcessRunner(JobUser(uid, uid, (), Path(folder))), Path(folder))
        try:
            waits: Job = bench.run("sh", "-c", "echo up; exec sleep 86396")
            waits.expect(b"up")
            job = bench.run("sh", "-c", LEAVES, "sh", mark)
            assert job.result().code == 137
            segment = int(job.output.split()[-1])
            assert there(mark) == {"", "sem.", "-folder", "-before", "-another"}
            assert segment in segments()
            waits.handle.stop()
            assert there(mark) == {"-before", "-another"}
            assert segment not in segments()
        finally:
            bench.close()
            for other in others:
                other.unlink()
