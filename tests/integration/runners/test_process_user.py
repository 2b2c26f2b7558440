"""Jobs that are processes of another user than their worker, which must be root for that."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import psutil
import pytest
from forge_schema.shell import STDOUT
from forge_worker.runners.entry import find
from forge_worker.runners.owners import JobUser, UserUnusable, job_user
from forge_worker.runners.process.runner import ProcessHandle, ProcessRunner
from forge_worker.runners.runner import Mount
from forge_worker.shells.command import ShellCommand
from support.services import require
from support.workers.runners import Bench
from support.workers.worker import bed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.waiting import Eventually

USER = 65532
# A worker's token, its process, and its list of jobs.
TRIES = f"""
test "$(id -u) $(id -G)" = "{USER} {USER}" && echo "runs as another user in $HOME"
echo kept > "$FORGE_OUTPUT_DIR/result" && touch "$FORGE_CHECKPOINT_DIR/state"
for closed in "$1" "/proc/$2/environ" "/proc/$2/mem" "/proc/$PPID/environ" "/proc/$PPID/mem"
do head -c 1 "$closed" > /dev/null 2>&1 && echo "read $closed"; done
ls "$3" > /dev/null 2>&1 && echo "listed $3"
for other in "$2" "$PPID"; do kill -0 "$other" 2> /dev/null && echo "may signal $other"; done
grep -q "NoNewPrivs:.1" /proc/self/status && echo "gains nothing"
"""
RESUMES = """
state="$FORGE_CHECKPOINT_DIR/state"
test -e "$state" && echo more >> "$state" && exit
echo some > "$state"; echo ready; exec sleep 86399
"""


@pytest.fixture
def place() -> Iterator[Path]:
    require(os.geteuid() == 0, "root")
    # Not below pytest's folder, which another user cannot enter.
    with TemporaryDirectory(prefix="forge-user-") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.fixture
def bench(place: Path) -> Iterator[Bench]:
    bench = Bench(ProcessRunner(JobUser(USER, USER, (), place)), place)
    yield bench
    bench.close()


def test_a_job_of_another_user_reaches_nothing_of_its_worker(
    place: Path, database_url: str, eventually: Eventually
) -> None:
    token = place / "token"
    token.write_text("fgw_secret")
    token.chmod(0o600)
    with bed("process", place, database_url) as made:
        worker = made.worker(process_user=USER)
        tried = (str(token), str(worker.process.pid), str(worker.folder / "jobs"))
        job = made.submit("sh", "-c", TRIES, "sh", *tried)
        made.succeeds(job)
        said = re.sub(r"in \S+", "in its folder", made.log(job).decode())
        assert said.splitlines() == ["runs as another user in its folder", "gains nothing"]
        assert made.artifacts(job) == {"result": b"kept\n"}
        # A checkpoint that comes back is the job's own again.
        resumed = made.submit("sh", "-c", RESUMES)
        made.says(resumed, "ready")
        eventually(lambda: made.jobs.checkpoints(resumed))
        made.queue.preempt(resumed)
        made.succeeds(resumed)


def test_a_shell_inside_is_the_jobs_user(bench: Bench) -> None:
    job = bench.run("sh", "-c", "echo ready; exec sleep 86397")
    job.expect(b"ready")
    entry = find(job.spec.labels)
    assert entry is not None
    command = ShellCommand(entry, ["sh", "-c", "id -u; id -G"], "mark", None)
    assert command.wait(60) == 0
    assert os.read(command.outputs[STDOUT], 100).split() == [b"65532", b"65532"]
    command.close()


def test_the_job_ends_with_its_shim(bench: Bench, eventually: Eventually) -> None:
    job = bench.run("sh", "-c", "echo ready; exec sleep 86398")
    job.expect(b"ready")
    assert isinstance(job.handle, ProcessHandle)
    program = psutil.Process(job.handle.pid)
    assert program.uids() == (USER, USER, USER)
    parent = program.parent()
    assert parent is not None
    parent.kill()
    eventually(lambda: not program.is_running() or program.status() == psutil.STATUS_ZOMBIE)


def test_only_the_way_to_what_a_job_reads_is_open(bench: Bench) -> None:
    hidden, cache = bench.root / "caches", bench.root / "caches" / "ann"
    cache.mkdir(parents=True)
    for folder in (hidden, cache):
        folder.chmod(0o700)
    mounts = (Mount(cache, PurePosixPath("/cache"), writable=True, given=True),)
    job = bench.run("sh", "-c", f"touch {cache}/model", mounts=mounts)
    assert job.result().code == 0
    assert (cache / "model").stat().st_uid == USER
    assert stat.S_IMODE(hidden.stat().st_mode) == 0o711


@pytest.mark.parametrize(
    ("name", "why"),
    [("root", "all rights"), ("0", "all rights"), ("no-such-user", "no user"), ("65532", "enter")],
)
def test_a_user_that_jobs_cannot_have_is_refused(place: Path, name: str, why: str) -> None:
    place.chmod(0o700)
    with pytest.raises(UserUnusable, match=why):
        job_user(name, place / "worker")


def test_without_root_there_is_only_the_workers_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert job_user("", tmp_path) is None
    with pytest.raises(UserUnusable, match="only a worker that is root"):
        job_user("65532", tmp_path)
