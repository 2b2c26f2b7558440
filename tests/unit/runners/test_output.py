"""A job's output on its way from the pipe to the log."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from forge_worker.files.small_files import held
from forge_worker.runners.process.output import Output
from support.workers.attempts import attempt_of, some_grant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.waiting import Eventually

LINES = b"".join(b"line %d\n" % n for n in range(5000))

# At the limit of a file's size the kernel kills a process in the middle of its write.
KILLED = """
import resource, signal, sys
from pathlib import Path
from forge_worker.runners.process.output import Output

signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_001, 10_001))
Output(int(sys.argv[1]), Path(sys.argv[2])).drain()
"""


class Copied:
    """A pipe with a log at its end."""

    def __init__(self, log: Path) -> None:
        self.source, self.sink = os.pipe()
        self.log = log
        self.output = Output(self.source, log)


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[Copied]:
    log = tmp_path / "log"
    log.touch()
    with opened(log) as copied:
        yield copied


@contextlib.contextmanager
def opened(log: Path) -> Iterator[Copied]:
    copied = Copied(log)
    try:
        yield copied
    finally:
        copied.output.close()
        os.close(copied.source)
        os.close(copied.sink)


def test_a_kill_in_the_middle_of_a_write_loses_nothing(copied: Copied) -> None:
    os.write(copied.sink, LINES)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(copied.source), copied.log],
        pass_fds=[copied.source],
        check=False,
    )
    assert killed.returncode == -signal.SIGXFSZ
    assert copied.log.stat().st_size == 10_001
    copied.output.drain()
    assert copied.log.read_bytes() == LINES


def test_the_worker_and_the_job_take_turns_at_the_log(
    tmp_path: Path, eventually: Eventually
) -> None:
    attempt = attempt_of(some_grant(), tmp_path / "attempt")
    attempt.note("one")
    log = attempt.folders.log
    with opened(log) as copied, ThreadPoolExecutor(2) as threads:
        os.write(copied.sink, b"output\n")
        with log.open("rb") as other, held(other):
            both = [threads.submit(copied.output.drain), threads.submit(attempt.note, "two")]
            eventually(lambda: waiting_for(log) == 2)
        for one in both:
            one.result()
    assert sorted(log.read_bytes().splitlines()) == [b"forge: one", b"forge: two", b"output"]


def waiting_for(path: Path) -> int:
    """Count who waits for the lock on a file."""
    locks = Path("/proc/locks").read_text(encoding="utf-8").splitlines()
    return sum("->" in lock and f":{path.stat().st_ino} " in lock for lock in locks)


def test_a_log_that_cannot_be_written_does_not_hold_up_the_job() -> None:
    with opened(Path("/dev/full")) as copied:
        for _ in range(3):
            os.write(copied.sink, LINES)
            copied.output.drain()
        lost = 3 * len(LINES)
        assert copied.output.error.startswith(f"at least {lost} bytes of output were lost: ")
        with pytest.raises(BlockingIOError):
            os.read(copied.source, 1)


def test_the_end_of_output_is_noticed(tmp_path: Path) -> None:
    source, sink = os.pipe()
    (tmp_path / "log").touch()
    output = Output(source, tmp_path / "log")
    assert not output.turn()
    assert not output.ended
    os.close(sink)
    assert not output.turn()
    assert output.ended
    output.close()
    os.close(source)
