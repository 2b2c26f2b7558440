"""A metrics file that is appended to, written anew, replaced, cut off, or no file at all."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from forge_worker.attempt import LiveAttempt
from forge_worker.job_io import metrics_file
from forge_worker.job_io.metrics_file import LINE_BYTES
from forge_worker.job_io.metrics_tail import MetricsTail
from support.workers.attempts import MetricsQueue, attempt_of, some_grant

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Write = Callable[["Job", str], None]


def steps(*numbers: int) -> str:
    return "".join(json.dumps({"step": n, "loss": n / 2}) + "\n" for n in numbers)


class Job:
    """A job's metrics file, and what the queue has of it."""

    def __init__(self, folder: Path) -> None:
        self.attempt = attempt_of(some_grant(), folder / "attempt")
        self.file = self.attempt.folders.metrics
        self.queue = MetricsQueue()
        self.tail = MetricsTail(self.attempt, self.queue)  # type: ignore[arg-type]

    def appends(self, text: str) -> None:
        with self.file.open("a") as file:
            file.write(text)

    def writes(self, text: str) -> None:
        self.file.write_text(text)

    def replaces(self, text: str) -> None:
        new = self.file.with_name("new")
        new.write_text(text)
        new.replace(self.file)

    def rotates(self, text: str) -> None:
        if self.file.exists():
            self.file.rename(self.file.with_name(f"metrics.{self.file.stat().st_ino}"))
        self.appends(text)

    def looks(self) -> list[int]:
        """Return the steps that are stored after another look."""
        if not self.tail.idle():
            self.tail.step()
        return self.stored

    def adopted(self) -> None:
        """Have another agent continue."""
        again = LiveAttempt(
            self.attempt.grant, self.attempt.folders, claimed_s=self.attempt.claimed_s
        )
        self.tail = MetricsTail(again, self.queue)  # type: ignore[arg-type]

    @property
    def stored(self) -> list[int]:
        return [line["step"] for line in self.queue.lines if "step" in line]

    @property
    def log(self) -> str:
        return self.attempt.folders.log.read_text()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a last line without a line feed at the second look, however soon that comes."""
    monkeypatch.setattr(metrics_file, "STANDS_S", 0.0)


ANEW = [Job.writes, Job.replaces, Job.rotates]


@pytest.mark.parametrize("write", ANEW)
def test_one_line_that_is_written_anew_each_time_is_read_each_time(job: Job, write: Write) -> None:
    for step in range(1, 13):
        write(job, steps(step))
        assert job.looks() == [*range(1, step + 1)]
    assert job.tail.finish()
    assert job.stored == [*range(1, 13)]


@pytest.mark.parametrize("write", ANEW)
def test_a_history_that_is_written_anew_each_time_is_stored_once(job: Job, write: Write) -> None:
    for last in range(1, 13):
        # It may be looked at while it is written.
        for shown in (0, last // 2, last):
            write(job, steps(*range(1, shown + 1)))
            job.looks()
        assert job.stored == [*range(1, last + 1)]


@pytest.mark.parametrize("write", ANEW)
def test_an_agent_that_continues_knows_what_was_read_before(job: Job, write: Write) -> None:
    job.appends(steps(*range(1, 200)))
    job.looks()
    job.adopted()
    assert job.looks() == [*range(1, 200)]
    write(job, steps(*range(1, 201)))
    assert job.looks() == [*range(1, 201)]
    job.adopted()
    write(job, steps(300))
    assert job.looks()[-1] == 300
    assert len(job.stored) == 201


def test_what_was_written_until_a_file_was_replaced_comes_first(job: Job) -> None:
    job.appends(steps(1, 2))
    job.looks()
    job.appends(steps(3))
    job.rotates(steps(4))
    assert job.looks() == [1, 2, 3, 4]
    job.appends(steps(5))
    job.file.unlink()
    assert job.looks() == [1, 2, 3, 4, 5]
    job.writes(steps(6))
    assert job.looks() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("head", ["", '{"config": "' + "x" * 500 + '"}\n'])
def test_a_file_of_the_same_size_with_other_content_is_read(job: Job, head: str) -> None:
    for step in (11, 22, 33):
        job.writes(head + steps(step))
        job.looks()
    assert job.stored == [11, 22, 33]
    assert len([line for line in job.queue.lines if "config" in line]) == bool(head)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("write", ANEW)
def test_an_object_without_a_line_feed_is_read_once_it_stands_still_or_is_written_anew(
    job: Job, write: Write
) -> None:
    for step in (1, 2, 3):
        write(job, json.dumps({"step": step}))
        job.looks()
        assert job.looks() == [*range(1, step + 1)]
    job.appends("\n" + steps(4))
    assert job.looks() == [1, 2, 3, 4]
    job.appends('{"step": 5, ')
    job.looks()
    job.looks()
    assert job.tail.idle()
    job.appends('"loss": 1}\n')
    assert job.looks() == [1, 2, 3, 4, 5]
    assert job.tail.finish()
    assert (job.stored, job.tail.skipped) == ([1, 2, 3, 4, 5], 0)


def test_a_file_that_is_cut_off_is_read_from_its_beginning(job: Job) -> None:
    job.appends(steps(*range(1, 6)))
    job.looks()
    os.truncate(job.file, len(steps(1, 2)))
    assert job.looks() == [1, 2, 3, 4, 5]
    job.appends(steps(6))
    assert job.looks() == [1, 2, 3, 4, 5, 6]
    os.truncate(job.file, 0)
    job.looks()
    job.appends(steps(1, 2))
    # The same lines at the same place are the same points.
    assert job.looks() == [1, 2, 3, 4, 5, 6]
    job.appends(steps(30))
    assert job.looks() == [1, 2, 3, 4, 5, 6, 30]


def link(file: Path) -> None:
    target = file.with_name("target")
    target.write_text(steps(9))
    file.symlink_to(target)


@pytest.mark.parametrize(
    ("put", "what"),
    [(link, "a link"), (os.mkfifo, "a pipe"), (os.mkdir, "a folder")],
)
def test_what_is_no_file_is_not_read_and_that_is_said_once(
    job: Job, put: Callable[[Path], Any], what: str
) -> None:
    job.appends(steps(1))
    job.looks()
    job.file.unlink()
    put(job.file)
    for _ in range(3):
        job.looks()
    job.adopted()
    assert job.tail.finish()
    assert job.stored == [1]
    said = f"$FORGE_METRICS_FILE is {what}, which Forge does not read"
    assert job.log.count("forge: ") == job.log.count(said) == 1


@pytest.mark.parametrize(
    ("text", "number", "why", "skipped"),
    [
        (json.dumps({"step": 1, "loss": 2}, indent=1) + "\n", 1, "is not a JSON object", 4),
        ("step,loss\n1,0.5\n2,0.25\n", 1, "is not a JSON object", 3),
        (steps(1) + "\n\n" + "step 2\n" + steps(3) + "[4]\n", 4, "is not a JSON object", 2),
        (steps(1) + '{"x": "' + "y" * 70_000 + '"}\n' + steps(2), 2, "is longer than 64 KiB", 1),
        ("x" * 3_000_000 + "\n" + steps(2), 1, "is longer than 64 KiB", 1),
        ("", 0, "", 0),
    ],
)
def test_lines_that_cannot_be_used_are_said_once_with_the_number_of_the_first(
    job: Job, text: str, number: int, why: str, skipped: int
) -> None:
    job.appends(text)
    job.looks()
    job.appends("not JSON either\n" if "JSON" in why else steps(8))
    job.looks()
    job.adopted()
    assert job.tail.finish()
    job.tail.close()
    assert job.log.count("$FORGE_METRICS_FILE") == bool(why)
    if why:
        assert f"line {number} of $FORGE_METRICS_FILE {why}" in job.log
    assert skipped == 0 or job.queue.lines == [*filter(None, map(_object, text.splitlines()))] + (
        [] if "JSON" in why else [json.loads(steps(8))]
    )


def _object(line: str) -> Any:  # noqa: ANN401  whatever JSON holds
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and len(line) <= LINE_BYTES else None


def test_more_metrics_than_are_summed_up_are_said_once(job: Job) -> None:
    for most in (64, 65, 70):
        job.appends(json.dumps({"step": 1, **{f"m{n}": n for n in range(most)}}) + "\n")
        job.looks()
        assert job.log.count("more than 64 metrics") == (most > 64)
