"""Lines of a log, chosen by a pattern or counted from the end, wherever its chunks end."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from forge_client.cli.show.log_lines import LINE_BYTES, Shaping, pattern
from forge_client.cli.show.waiting import Teller, wait_for
from forge_client.errors import ClientError
from forge_client.results.log_reader import LogPart, LogPiece, LogReading
from forge_client.results.names import require_rank
from forge_schema.model.job import RunMember
from forge_schema.model.states import Phase
from hypothesis import given
from hypothesis import strategies as st
from support.client.backends import NOON, FakeBackend, ended, job

if TYPE_CHECKING:
    from forge_schema.model.stored import LogChunk

# Few letters, so that the pattern is there, and parted by chunk borders.
TEXT = st.text("ab\n\N{EURO SIGN}", max_size=30).map(str.encode)
OUTPUTS = st.lists(TEXT, max_size=3)
PATTERN = re.compile("ab|\N{EURO SIGN}$")


def stored(outputs: list[bytes], data: st.DataObject) -> FakeBackend:
    """Store what each attempt wrote, in chunks of any size."""
    backend = FakeBackend()
    for token, output in enumerate(outputs, 1):
        rest = output
        while rest:
            size = data.draw(st.integers(1, len(rest)))
            backend.write(rest[:size], token=token, attempt=token)
            rest = rest[size:]
    return backend


def pieces(backend: FakeBackend, part: LogPart | None = None) -> list[LogPiece]:
    reading = LogReading(backend.as_backend(), job(), part or LogPart())
    return list(reading.new(final=True))


def shaped(shaping: Shaping, found: list[LogPiece]) -> list[bytes]:
    lines = [line for piece in found for line in shaping.shaped(piece)]
    return [*lines, *shaping.rest()]


def lines_of(outputs: list[bytes]) -> list[bytes]:
    """Return the lines of all outputs, the last one of each with or without its newline."""
    return [
        line for output in outputs for line in output.removesuffix(b"\n").split(b"\n") if output
    ]


@given(OUTPUTS, st.data())
def test_a_pattern_finds_the_lines_that_have_it(outputs: list[bytes], data: st.DataObject) -> None:
    wanted = [line + b"\n" for line in lines_of(outputs) if PATTERN.search(line.decode())]
    assert shaped(Shaping(PATTERN), pieces(stored(outputs, data))) == wanted


@given(OUTPUTS, st.integers(0, 8), st.data())
def test_the_tail_is_the_last_lines_of_all_attempts(
    outputs: list[bytes], count: int, data: st.DataObject
) -> None:
    found = pieces(stored(outputs, data), LogPart(tail=count))
    assert not any(piece.missing for piece in found)
    whole = [line for output in outputs for line in output.splitlines(keepends=True)]
    last = whole[-count:] if count else []
    assert b"".join(piece.data for piece in found) == b"".join(last)


@dataclass(eq=False)
class Counting(FakeBackend):
    """Tells which chunks were fetched."""

    fetched: set[int] = field(default_factory=set)

    def log_bytes(self, wanted: LogChunk) -> bytes:
        self.fetched.add(wanted.number)
        return super().log_bytes(wanted)


def test_the_tail_fetches_no_more_than_it_shows() -> None:
    backend = Counting()
    for number in range(9):
        backend.write(b"%d\n" % number)
    assert b"".join(piece.data for piece in pieces(backend, LogPart(tail=2))) == b"7\n8\n"
    assert backend.fetched <= {6, 7, 8}


def test_what_was_stored_since_a_time_begins_in_the_middle() -> None:
    backend = FakeBackend()
    for minute in range(4):
        backend.write(b"%d\n" % minute, at=NOON + timedelta(minutes=minute))
    reading = LogReading(backend.as_backend(), job(), LogPart(since=NOON + timedelta(minutes=2)))
    assert [(one.data, one.missing) for one in reading.new(final=False)] == [
        (b"2\n", 0),
        (b"3\n", 0),
    ]
    backend.write(b"4\n", at=NOON + timedelta(minutes=4))
    assert [one.data for one in reading.new(final=False)] == [b"4\n"]


def test_ranks_are_read_at_once_and_their_lines_say_whose_they_are(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    two: dict[str, Any] = {"nodes": 2}
    backend = FakeBackend([job(**two), job(**two), job(state="succeeded", **two)])
    said = [(b"a\nb", 0), (b"x\n", 1), (b"c\nd", 0)]
    writes = iter(said)

    def write() -> None:
        data, rank = next(writes)
        backend.write(data, rank=rank, at=NOON)

    backend.look = write
    shaping = Shaping(times=True)
    assert wait_for(backend.as_backend(), 1, teller=Teller(backend.as_backend(), 1, shaping)) == 0
    time = "2026-11-21T12:00:00Z"
    assert capsysbinary.readouterr().out.decode().splitlines() == [
        f"[rank {rank}] {time} {line}" for rank, line in ((0, "a"), (1, "x"), (0, "bc"), (0, "d"))
    ]
    only = LogReading(backend.as_backend(), job(**two), LogPart(rank=1)).new(final=True)
    assert [piece.data for piece in only] == [b"x\n"]


def test_a_line_without_end_does_not_fill_the_memory() -> None:
    shaping = Shaping(re.compile("x$"))
    for _ in range(3):
        assert list(shaping.shaped(LogPiece(1, b"." * LINE_BYTES))) == []
    assert shaped(shaping, [LogPiece(1, b"..x\n")]) == [b"..x\n"]


def test_what_is_no_pattern_is_refused_in_words() -> None:
    with pytest.raises(ClientError, match="not a regular expression") as refused:
        pattern("(a")
    assert refused.value.exit_code == 2
    assert refused.value.hint.endswith(r"write '\(a'")


def test_each_move_of_a_job_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    moves = [
        job(state="ready", attempt=0),
        job(worker="w1", phase="claimed"),
        job(worker="w1", phase="preparing"),
        job(worker="w1", phase="running"),
        job(worker="w1", phase="running", progress=0.5),
        job(worker="w1", phase="running", asked="preempted"),
        job(state="ready"),
        job(attempt=2, worker="w2", phase="running"),
        job(attempt=2, state="succeeded"),
    ]
    backend = FakeBackend(moves, history=[ended(1, "preempted")]).as_backend()
    wait_for(backend, 1, teller=Teller(backend, 1, phases=True))
    assert [line.strip("— ") for line in capsys.readouterr().err.splitlines()] == [
        "job 1 'x' is queued, but no worker is connected",
        "attempt 1 on worker w1",
        "claimed",
        "preparing",
        "running",
        "asked to stop: preempted",
        "attempt 1 was interrupted (preempted) after 0 s; waiting for a worker to continue",
        "attempt 2 on worker w2",
        "running",
        "job 1 'x' succeeded",
    ]


def of_two(**changes: Any) -> dict[str, Any]:  # noqa: ANN401  fields of all types
    """Return the fields of a job on two machines."""
    members = [RunMember(rank=n, worker=f"gpu-{n}", phase=Phase.RUNNING) for n in range(2)]
    return {"nodes": 2, "worker": "gpu-0", "members": members, **changes}


@pytest.mark.parametrize(
    ("rank", "header"),
    [(None, "attempt 1 on workers gpu-0 and gpu-1"), (1, "attempt 1, rank 1 on worker gpu-1")],
)
@pytest.mark.parametrize("over", [False, True])
def test_the_header_names_the_workers_of_the_ranks_that_are_read(
    capsys: pytest.CaptureFixture[str], rank: int | None, header: str, *, over: bool
) -> None:
    if over:
        backend = FakeBackend([job(state="succeeded", nodes=2)])
        backend.history = [ended(1, "succeeded", rank=n, worker=f"gpu-{n}") for n in range(2)]
    else:
        backend = FakeBackend([job(**of_two())])
    Teller(backend.as_backend(), 1, part=LogPart(rank=rank)).piece(LogPiece(1, b"x\n"))
    assert capsys.readouterr().err.splitlines() == [f"— {header} —"]


def test_each_rank_has_a_colour_on_a_terminal() -> None:
    backend = FakeBackend()
    for rank in range(2):
        backend.write(b"x\n", rank=rank)
    reading = LogReading(backend.as_backend(), job(nodes=2), LogPart())
    assert shaped(Shaping(colour=True), list(reading.new(final=True))) == [
        b"\x1b[36m[rank 0]\x1b[0m x\n",
        b"\x1b[33m[rank 1]\x1b[0m x\n",
    ]


@pytest.mark.parametrize(
    ("nodes", "hint"),
    [
        (1, "it runs on one machine, which is rank 0"),
        (2, "its ranks are 0 to 1, one for each machine"),
    ],
)
def test_a_rank_that_a_job_does_not_have_is_refused(nodes: int, hint: str) -> None:
    require_rank(job(nodes=nodes), nodes - 1)
    with pytest.raises(ClientError, match=f"job 1 has no rank {nodes}") as refused:
        require_rank(job(nodes=nodes), nodes)
    assert refused.value.exit_code == 3
    assert hint in refused.value.hint
