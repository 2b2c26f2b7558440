"""Scalars in TensorBoard's event files become metrics, each once, whatever the files hold."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.database.pool import DatabaseUnreachable
from forge_worker.attempt import LiveAttempt
from forge_worker.files.formats.records import RECORD_BYTES, SUM, masked
from forge_worker.job_io.metrics_tail import MetricsTail
from forge_worker.job_io.tensorboard import MOST_FILES, scalars
from hypothesis import given, settings
from hypothesis import strategies as st
from support.workers.attempts import MetricsQueue, attempt_of, some_grant

if TYPE_CHECKING:
    from pathlib import Path

# Written by tensorboardX 2.6.5.
PLAIN = base64.b64decode(
    "GAAAAAAAAACjf0siCSiFIrMDwtpBGg1icmFpbi5FdmVudDoydT/SpxgAAAAAAAAAo39LIgnYjyKzA8LaQSoNCgsKBGxv"
    "c3MVAACAP1srm7QaAAAAAAAAABKb2C0JX5QiswPC2kEQASoNCgsKBGxvc3MVAAAAP3p4YR4aAAAAAAAAABKb2C0J8pgi"
    "swPC2kEQAioNCgsKBGxvc3MVq6qqPrajej4ZAAAAAAAAAIvxCCgJ1p0iswPC2kEQAyoMCgoKA2FjYxUAAMB/Hfdq+g=="
)
# Written by TensorBoard 2.21.0, with tensors as TensorFlow 2 has them: three scalars and a vector.
TENSORS = base64.b64decode(
    "SAAAAAAAAAD+kkidCcvdILMDwtpBGg1icmFpbi5FdmVudDoyUi4KLHRlbnNvcmJvYXJkLnN1bW1hcnkud3JpdGVyLmV2"
    "ZW50X2ZpbGVfd3JpdGVyKjRb+z8AAAAAAAAAUWV2YQkAAACktknaQRD///////////8BKikKJwoKZXBvY2hfbG9zc0IK"
    "CAESACoEAACAPkoNCgkKB3NjYWxhcnMgAVhXqgE2AAAAAAAAAE9XjO8JAAAApLZJ2kEQByopCicKCmVwb2NoX2xvc3NC"
    "CggBEgAiBAAAAD9KDQoJCgdzY2FsYXJzIAFqIaiVOgAAAAAAAAASleriCQAAAKS2SdpBEAgqLQorCgplcG9jaF9sb3Nz"
    "Qg4IAhIAMgiamZmZmZm5P0oNCgkKB3NjYWxhcnMgAfY41FhCAAAAAAAAAHnzbqoJAAAApLZJ2kEQCSo1CjMKCmVwb2No"
    "X2xvc3NCFggBEgQSAggDIgwAAAAAAACAPwAAAEBKDQoJCgdzY2FsYXJzIAE9VWku"
)
STEPS: list[dict[str, Any]] = [
    {"loss": 1.0, "step": 0},
    {"loss": 0.5, "step": 1},
    {"loss": 1 / 3, "step": 2},
]
LINES: list[dict[str, Any]] = [*STEPS, {"acc": "NaN", "step": 3}]
NAME = "events.out.tfevents.9999999999.host"
# Writes three steps with a library, and dies; Keras and TensorFlow 2 write the last form.
BIN = os.environ.get("FORGE_TEST_TORCH_BIN", "")
DIES = """
import os, signal, sys
first = int(sys.argv[1])
{make}
for step in range(first, first + 3):
    {add}
writer.close()
os.kill(os.getpid(), signal.SIGKILL)
"""
PLAIN_WRITER = ('writer = SummaryWriter("runs/one")', 'writer.add_scalar("loss", 1 / step, step)')
WRITERS = {
    "torch": ("from torch.utils.tensorboard import SummaryWriter", *PLAIN_WRITER),
    "tensorboardx": ("from tensorboardX import SummaryWriter", *PLAIN_WRITER),
    "keras": (
        "import numpy; from tensorboard.summary import Writer",
        'writer = Writer("logs/train")',
        'writer.add_scalar("loss", numpy.float32(1 / step), step)',
    ),
}


@pytest.fixture
def attempt(tmp_path: Path) -> LiveAttempt:
    return attempt_of(some_grant(), tmp_path)


def finish(attempt: LiveAttempt, queue: MetricsQueue) -> list[dict[str, Any]]:
    """Read what is there, as an agent that has just adopted the job."""
    adopted = LiveAttempt(attempt.grant, attempt.folders, claimed_s=attempt.claimed_s)
    MetricsTail(adopted, queue).finish()  # type: ignore[arg-type]
    return queue.lines


def write(attempt: LiveAttempt, data: bytes, name: str = f"runs/one/{NAME}") -> Path:
    path = attempt.folders.work / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def close(lines: list[dict[str, Any]]) -> list[Any]:
    return [pytest.approx(line) if "acc" not in line else line for line in lines]


def test_scalars_of_both_forms_are_metrics(attempt: LiveAttempt) -> None:
    write(attempt, PLAIN)
    write(attempt, TENSORS, f"runs/validation/{NAME}.v2")
    expected = [(-1, 0.25), (7, 0.5), (8, 0.1)]
    assert finish(attempt, MetricsQueue()) == [
        *close(LINES),
        *({"validation/epoch_loss": value, "step": step} for step, value in expected),
    ]


@pytest.mark.skipif(not BIN, reason="FORGE_TEST_TORCH_BIN is not set")
@pytest.mark.parametrize("library", list(WRITERS))
def test_each_attempt_has_the_scalars_that_it_wrote_itself(library: str, tmp_path: Path) -> None:
    load, make, add = WRITERS[library]
    program = DIES.format(make=f"{load}\n{make}", add=add)
    restored: list[tuple[Path, Path]] = []
    for number, first in enumerate((1, 3)):
        attempt = attempt_of(some_grant(), tmp_path / str(number))
        for file, place in restored:
            (attempt.folders.checkpoint / place).parent.mkdir(parents=True)
            shutil.copy(file, attempt.folders.checkpoint / place)
            began_s = int(file.name.split(".")[3])
            os.utime(attempt.folders.root / "lease.json", (began_s + 1, began_s + 1))
        died = subprocess.run(
            [f"{BIN}/python", "-W", "ignore", "-c", program, str(first)],
            cwd=attempt.folders.checkpoint,
            check=False,
        )
        assert died.returncode == -signal.SIGKILL
        assert finish(attempt, MetricsQueue()) == [
            {"loss": pytest.approx(1 / step), "step": step} for step in range(first, first + 3)
        ]
        kept = attempt.folders.checkpoint
        restored = [(file, file.relative_to(kept)) for file in kept.rglob("events.*")]


def test_half_written_file_gives_each_scalar_once(attempt: LiveAttempt) -> None:
    queue = MetricsQueue()
    tail = MetricsTail(attempt, queue)  # type: ignore[arg-type]
    for end in (5, 50, 79, 80, 160, len(PLAIN)):
        write(attempt, PLAIN[:end])
        tail.finish()
    assert queue.lines == close(LINES)
    assert finish(attempt, queue) == close(LINES)


def test_lost_answer_stores_nothing_twice_and_loses_nothing(attempt: LiveAttempt) -> None:
    queue = MetricsQueue()
    write(attempt, PLAIN)
    queue.loses_answer = True
    with pytest.raises(DatabaseUnreachable):
        finish(attempt, queue)
    # Without a note of what was sent, these lines would get the numbers of those.
    attempt.folders.metrics.write_text('{"step": 1, "total": 2}\n{"step": 2, "total": 2}\n')
    found = finish(attempt, queue)
    assert found == [*close(LINES), {"step": 1, "total": 2}, {"step": 2, "total": 2}]


def test_job_that_reports_metrics_itself_is_not_counted_twice(attempt: LiveAttempt) -> None:
    attempt.folders.metrics.write_text('{"step": 1, "loss": 0.5}\n')
    write(attempt, PLAIN)
    queue = MetricsQueue()
    for _ in range(2):
        assert finish(attempt, queue) == [{"step": 1, "loss": 0.5}]


def test_files_of_an_earlier_attempt_and_links_are_not_read(attempt: LiveAttempt) -> None:
    write(attempt, PLAIN, "events.out.tfevents.1000000000.host")
    place = write(attempt, PLAIN, "notes")
    (attempt.folders.work / NAME).symlink_to(place)
    os.mkfifo(attempt.folders.output / NAME)
    assert finish(attempt, MetricsQueue()) == []


def test_no_more_files_are_read_than_places_can_be_kept(attempt: LiveAttempt) -> None:
    for number in range(MOST_FILES + 2):
        write(attempt, PLAIN[:80], f"{number}/events.out.tfevents.99999999{number:02}.host")
    queue = MetricsQueue()
    for _ in range(2):
        assert len(finish(attempt, queue)) == MOST_FILES


def test_damaged_record_is_skipped_and_a_damaged_length_ends_the_file(attempt: LiveAttempt) -> None:
    data = bytearray(PLAIN)
    # In the first scalar, and in the length of the third one.
    data[70] ^= 1
    data[122] ^= 1
    # An image, say: longer than what is read of a record.
    length = (RECORD_BYTES + 1).to_bytes(8, "little")
    data[80:80] = length + SUM.pack(masked(length)) + bytes(RECORD_BYTES + 1 + SUM.size)
    write(attempt, bytes(data))
    assert finish(attempt, MetricsQueue()) == [STEPS[1]]


@settings(deadline=None)
@given(st.binary(max_size=80))
def test_no_event_breaks_the_reader(data: bytes) -> None:
    assert isinstance(scalars(data)[1], list)
