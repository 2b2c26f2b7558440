"""Redaction: which text is masked, and what the log shipper sends."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from forge_schema import zstd
from forge_schema.storage.store import StoreUnreachable
from forge_worker.attempt import Redactor
from forge_worker.job_io import logs
from forge_worker.job_io.logs import LogShipper
from hypothesis import given
from hypothesis import strategies as st
from support.workers.attempts import CountingStore, attempt_of, some_grant

if TYPE_CHECKING:
    from pathlib import Path

    from forge_schema.model.attempt_records import LogChunkRecord
    from forge_schema.model.lease import Fence
    from forge_worker.attempt import LiveAttempt

KEY = "-----BEGIN KEY-----\nabcdefghijkl\n  mnopqrstuvwx\nend\n"


@pytest.mark.parametrize(
    ("secrets", "text", "covered"),
    [
        (["hunter2"], "it is hunter2!", "it is *******!"),
        (["abab"], "xababababx", "x********x"),
        (["abcd", "cdef"], "abcdef", "******"),
        (["abcd", "abcdef"], "abcdeg abcdef", "****eg ******"),
        (["pässword"], "pässword", "*********"),
        ([KEY], "got mnopqrstuvwx, and end", "got ************, and end"),
        ([], "hunter2", "hunter2"),
    ],
)
def test_secrets_are_covered_byte_by_byte(secrets: list[str], text: str, covered: str) -> None:
    assert Redactor(secrets).text(text) == covered


@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=4, max_size=6), max_size=3))
def test_what_may_begin_a_secret_is_doubtful_and_nothing_else(
    text: str, secrets: list[str]
) -> None:
    redactor, data = Redactor(secrets), text.encode()
    begun = [n for s in secrets for n in range(1, len(s)) if data.endswith(s[:n].encode())]
    assert redactor.doubtful(data) == max(begun, default=0) <= max(redactor.reach, 0)


class Doors:
    """A gateway and a store that lose every second answer, after the act or before it."""

    def __init__(self, root: Path) -> None:
        self.store = CountingStore(root)
        self.rows: dict[int, LogChunkRecord] = {}
        self._turns = itertools.count()

    def record(self, _fence: Fence, chunk: LogChunkRecord) -> bool:
        assert self.rows.setdefault(chunk.number, chunk) == chunk
        if next(self._turns) % 2 == 0:
            raise StoreUnreachable("the answer was lost")
        return True

    def stored(self) -> bytes:
        rows = [self.rows[number] for number in sorted(self.rows)]
        assert [row.start for row in rows] == [
            sum(row.bytes for row in rows[:n]) for n in range(len(rows))
        ]
        return b"".join(zstd.decompress(self.store.get(row.key)) for row in rows)


def shipper(attempt: LiveAttempt, doors: Doors) -> LogShipper:
    return LogShipper(attempt, doors.store, doors, period_s=1)  # type: ignore[arg-type]  # one verb is all it needs


def step(loop: LogShipper) -> None:
    """Ship everything, however often an answer is lost."""
    while True:
        with suppress(StoreUnreachable):
            return loop.step()


@pytest.mark.parametrize("chunk", [1, 3, 7, 1 << 20])
def test_no_cut_lets_a_secret_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(logs, "CHUNK_BYTES", chunk)
    secrets = ["hunter2hunter3", "nter3xyz"]  # also one within a false start of itself
    whole = b"a hunter2hunter2hunter3xyz b hunt er hunter2hunter3 c nter3xy"
    doors = Doors(tmp_path / "store")
    attempt = attempt_of(some_grant(), tmp_path / "attempt")
    attempt.redactor = redactor = Redactor(secrets)
    loop = shipper(attempt, doors)
    for at in range(0, len(whole), 5):
        with attempt.folders.log.open("ab") as log:
            log.write(whole[at : at + 5])
        # A restarted agent continues from its saved state.
        loop = shipper(attempt, doors) if at % 3 == 0 else loop
        step(loop)
        assert len(whole[: at + 5]) - len(doors.stored()) <= redactor.reach
    loop.end()
    step(loop)
    assert doors.stored() == redactor.cover(whole)
