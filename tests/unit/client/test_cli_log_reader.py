"""Reading a log while it is written: nothing lost or repeated, and in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_client import ClientError
from forge_client.results.log_reader import LogPart, LogPiece, LogReader, follow
from forge_client.sdk.job import Job
from forge_schema.model.job import JobStatus
from hypothesis import given
from hypothesis import strategies as st
from support.client.backends import FakeBackend, job

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTPUT = st.lists(st.tuples(st.integers(1, 3), st.binary(min_size=1, max_size=5)), max_size=12)


def read(reader: LogReader, *, final: bool = True) -> bytes:
    return b"".join(piece.data for piece in reader.new(final=final))


@given(OUTPUT, st.data())
def test_chunks_that_appear_in_any_order_are_read_in_order_and_once(
    output: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    backend, whole = FakeBackend(), FakeBackend()
    for token, text in sorted(output, key=lambda one: one[0]):
        whole.write(text, token=token, attempt=token)
    reader = LogReader(backend.as_backend(), 1)
    seen = b""
    # Only the chunks of one token may overtake each other: a lease ends before the next begins.
    for token in (1, 2, 3):
        mine = [piece for piece in whole.pieces if piece[0].token == token]
        for piece in data.draw(st.permutations(mine)):
            backend.pieces.append(piece)
            seen += read(reader, final=False)
    assert seen + read(reader) == b"".join(text for _, text in whole.pieces)


def test_a_chunk_is_held_back_until_the_one_before_it_is_there() -> None:
    whole, backend = FakeBackend(), FakeBackend()
    whole.write(b"one")
    whole.write(b"two")
    reader = LogReader(backend.as_backend(), 1)
    backend.pieces.append(whole.pieces[1])
    assert read(reader, final=False) == b""
    backend.pieces.append(whole.pieces[0])
    assert read(reader, final=False) == b"onetwo"


def test_at_the_end_a_gap_is_told_with_its_length() -> None:
    whole, backend = FakeBackend(), FakeBackend()
    for text in (b"one", b"three", b"four"):
        whole.write(text)
    backend.pieces = [whole.pieces[0], whole.pieces[2]]
    pieces = list(LogReader(backend.as_backend(), 1).new(final=True))
    assert [(piece.data, piece.missing) for piece in pieces] == [(b"one", 0), (b"four", 5)]


def test_one_attempt_can_be_read_alone() -> None:
    backend = FakeBackend()
    backend.write(b"first", token=1, attempt=1)
    backend.write(b"second", token=2, attempt=2)
    assert read(LogReader(backend.as_backend(), 1, LogPart(attempt=2))) == b"second"


def test_following_reads_what_was_written_just_before_the_end() -> None:
    backend = FakeBackend([job(), job(), job(state="succeeded")])
    writes = iter([b"one\n", b"two\n", b"three\n"])
    backend.look = lambda: backend.write(next(writes))
    items = list(follow(backend.as_backend(), 1))
    assert b"".join(i.data for i in items if isinstance(i, LogPiece)) == b"one\ntwo\nthree\n"
    assert [i.state for i in items if isinstance(i, JobStatus)] == ["running", "succeeded"]


def test_following_goes_across_attempts() -> None:
    backend = FakeBackend(
        [job(), job(state="ready"), job(attempt=2), job(attempt=2, state="succeeded")]
    )
    tokens = iter([1, 1, 2, 2])
    backend.look = lambda: backend.write(b"x", token=(t := next(tokens)), attempt=t)
    items = list(follow(backend.as_backend(), 1))
    assert [i.attempt for i in items if isinstance(i, LogPiece)] == [1, 1, 2, 2]


def test_following_one_attempt_ends_with_it() -> None:
    backend = FakeBackend([job(), job(state="ready"), job(attempt=2)])
    items = list(follow(backend.as_backend(), 1, LogPart(attempt=1)))
    last = items[-1]
    assert isinstance(last, JobStatus)
    assert last.state == "queued"


def test_text_is_not_broken_where_a_chunk_ends_inside_a_letter() -> None:
    backend = FakeBackend()
    letters = "größer €".encode()
    for byte in letters:
        backend.write(bytes([byte]))
    backend.write(b"\xff")
    assert "".join(Job(backend.as_backend(), 1).logs()) == "größer €\N{REPLACEMENT CHARACTER}"


def test_the_tail_is_the_last_lines_whatever_the_chunks() -> None:
    backend = FakeBackend()
    for piece in (b"1\n2", b"2\n3\n", b"4"):
        backend.write(piece)
    assert Job(backend.as_backend(), 1).tail(2) == "3\n4"
    assert Job(backend.as_backend(), 1).tail() == "1\n22\n3\n4"


def test_following_goes_on_after_an_outage() -> None:
    backend = FakeBackend([job(), job(state="succeeded")], slowest_s=0.0)
    gone = ClientError("the database does not answer", code="database_unreachable")
    answers: Iterator[bytes | ClientError] = iter([b"one", gone, gone, b"two"])

    def look() -> None:
        match next(answers):
            case bytes(data):
                backend.write(data)
            case error:
                raise error

    backend.look = look
    told: list[str] = []
    items = list(follow(backend.as_backend(), 1, say=told.append))
    assert b"".join(i.data for i in items if isinstance(i, LogPiece)) == b"onetwo"
    assert told == ["the database does not answer; waiting until it does"]
    answers = iter([gone])
    with pytest.raises(ClientError):
        list(follow(backend.as_backend(), 1))
