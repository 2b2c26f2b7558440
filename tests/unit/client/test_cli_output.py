"""The command's output and exit codes."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from forge_client.cli.show import output
from forge_client.cli.show.output import Format
from forge_client.cli.show.standing import why_in_a_list
from forge_client.cli.show.waiting import exit_code, wait_for
from forge_client.errors import BY_EXIT_CODE, MEANINGS, ClientError, ExitCode, InvalidInput
from forge_client.http.objects import UrlRefused
from forge_client.results.endings import TWICE, ending
from forge_schema.model.errors import KINDS
from support.client.backends import NOON, FakeBackend, ended, job

DOCUMENT = Path(__file__).parents[3] / "docs" / "exit-codes.md"
ROWS = [{"id": 1, "at": datetime(2026, 1, 2, tzinfo=UTC), "text": "a [b] c" * 40}]
COLUMNS: list[output.Column] = [("ID", lambda r: r["id"]), ("TEXT", lambda r: r["text"])]


def test_json_is_one_list_and_jsonl_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    output.show(ROWS * 2, COLUMNS, Format.JSON)
    rows = json.loads(capsys.readouterr().out)
    assert [row["at"] for row in rows] == ["2026-01-02T00:00:00+00:00"] * 2
    output.show(ROWS * 2, COLUMNS, Format.JSONL)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows


def test_a_table_in_a_pipe_is_neither_coloured_nor_cut(capsys: pytest.CaptureFixture[str]) -> None:
    output.show([{"id": "failed", "text": ROWS[0]["text"]}], COLUMNS, Format.TABLE)
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert printed.splitlines() == ["ID     TEXT", f"failed {ROWS[0]['text']}"]


def test_what_others_typed_does_not_speak_to_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evil = "a\x1b]0;owned\x07\x1b[31m\x9b2J\rb\nc"
    output.show([{"name": evil}], [("NAME", lambda row: row["name"])], Format.TABLE)
    printed = capsys.readouterr().out
    assert not set(printed) & set("\x1b\x07\x9b\r")
    assert "]0;owned" in printed
    assert len(printed.splitlines()) == len(["title", "row"])


def test_an_empty_list_is_still_json(capsys: pytest.CaptureFixture[str]) -> None:
    output.show([], COLUMNS, Format.JSON)
    assert json.loads(capsys.readouterr().out) == []


def test_every_exit_code_is_documented() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = [line.split("|")[1:4] for line in text.splitlines() if line.startswith("| ")][1:]
    listed = [(int(code), name.strip(" `"), kind.strip(" `")) for code, name, kind in rows]
    assert {(code, name) for code, name, _ in listed} == {
        (code.value, code.name) for code in ExitCode
    }
    kinds: list[type[ClientError]] = [ClientError, *BY_EXIT_CODE.values()]
    assert {kind: code for code, _, kind in listed if kind} == {
        kind.__name__: kind.exits_with for kind in kinds
    }
    assert set(MEANINGS) == set(ExitCode)


@pytest.mark.parametrize("code", [*KINDS, "job_failed"])
def test_an_error_is_of_the_class_of_its_code_also_in_another_process(code: str) -> None:
    error = ClientError("it is so", hint="do this", code=code)
    expected = BY_EXIT_CODE.get(error.exit_code, ClientError)
    assert type(error) is expected
    assert error.exit_code == expected.exits_with
    sent = pickle.loads(pickle.dumps(error))  # noqa: S301 - made in the line itself
    assert type(sent) is expected
    assert (sent.message, sent.hint, sent.code) == ("it is so", "do this", code)


def test_a_class_of_its_own_is_caught_with_those_of_its_exit_code() -> None:
    for kind in (InvalidInput, UrlRefused):
        error = kind("it is so")
        assert error.exit_code == kind.exits_with != ExitCode.FAILED
        assert isinstance(error, BY_EXIT_CODE[error.exit_code])


@pytest.mark.parametrize(
    ("state", "reason", "own", "expected"),
    [
        ("succeeded", "succeeded", 0, 0),
        ("dead", "exit_code", 3, 3),
        ("dead", "exit_code", -9, 137),
        ("dead", "oom", 137, 137),
        ("failed", "timeout", 143, 124),
        ("failed", "image_missing", None, 125),
        ("dead", "worker_lost", None, 125),
        ("cancelled", "cancelled", 143, 125),
    ],
)
def test_waiting_exits_with_the_jobs_own_code(
    state: str, reason: str, own: int | None, expected: int
) -> None:
    assert exit_code(job(state=state, reason=reason, exit_code=own)) == expected


FAILED = {"exit_code": 1, "finished_at": NOON + timedelta(seconds=0.3)}


def test_following_writes_output_as_it_is_and_tells_the_rest_on_stderr(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    backend = FakeBackend(
        [
            job(state="ready", attempt=0),
            job(worker="w1"),
            job(state="ready"),
            job(attempt=2, worker="w2"),
            # Who writes without having been seen to run is asked for once more.
            job(attempt=2, worker="w2"),
            job(attempt=2, state="succeeded"),
        ],
        history=[ended(1, "worker_lost")],
    )
    _writes(backend, {2: (b"\xff\xfe\n", 1), 4: (b"no newline", 2)})
    assert wait_for(backend.as_backend(), 1) == 0
    printed = capsysbinary.readouterr()
    assert printed.out == b"\xff\xfe\nno newline"
    assert printed.err.decode().splitlines() == [
        "job 1 'x' is queued, but no worker is connected",
        "— attempt 1 on worker w1 —",
        "— attempt 1 was interrupted (worker lost) after 0 s; waiting for a worker to continue —",
        "— attempt 2 on worker w2 —",
        "job 1 'x' succeeded",
    ]


def test_following_says_when_the_next_try_comes_and_how_many_are_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    waits: dict[str, Any] = {"state": "scheduled", "due_in_s": 20.4}
    last: dict[str, Any] = {
        "reason": "exit_code",
        "exit_code": 1,
        "detail": "x = 1\nmore\n  …",
    }
    backend = FakeBackend(
        [
            job(state="ready", attempt=0),
            job(**waits, retries_left=2),
            job(**{**waits, "due_in_s": 7.0}, retries_left=2),
            job(state="ready", retries_left=2),
            # It came and went between two looks at the state.
            job(attempt=2, **waits, retries_left=1),
            job(attempt=4, state="dead", **last),
        ],
        history=[ended(n, "exit_code", worker=f"w{n}", **FAILED) for n in (1, 2, 3, 4)],
    )
    _writes(backend, {2: (b"one\n", 1), 5: (b"two\n", 2)})
    assert wait_for(backend.as_backend(), 1) == 1
    failed = "failed with exit code 1 after 0.3 s"
    assert capsys.readouterr().err.splitlines()[1:] == [
        "— attempt 1 on worker w1 —",
        f"— attempt 1 {failed}; retrying in 20 s (2 retries left) —",
        "— attempt 2 on worker w2 —",
        f"— attempt 2 {failed}; retrying in 20 s (1 retry left) —",
        "— attempt 3 on worker w3 —",
        f"— attempt 3 {failed} —",
        "— attempt 4 on worker w4 —",
        "job 1 'x' failed after 4 attempts: exit code 1: x = 1. See: forge logs 1 --tail 20",
    ]


@pytest.mark.parametrize(
    ("state", "reason", "code", "detail", "says"),
    [
        ("succeeded", "succeeded", 0, None, "succeeded"),
        ("cancelled", "cancelled", 143, "cancelled on request", "was cancelled"),
        ("cancelled", "dependency_failed", None, "job 7 failed", "was cancelled: job 7 failed"),
        (
            "failed",
            "exit_code",
            127,
            "x: not found",
            "127: x: not found; correct it and submit again, or `forge rerun 1 -- COMMAND`",
        ),
        (
            "failed",
            "exit_code",
            1,
            f"{TWICE}: x\ny",
            f"after 1 attempt: exit code 1: {TWICE}: x",
        ),
        ("dead", "oom", 137, "over 1 MiB", "out of memory (exit code 137): over 1 MiB"),
    ],
)
def test_an_end_is_one_sentence(
    state: str, reason: str, code: int | None, detail: str | None, says: str
) -> None:
    status = job(state=state, reason=reason, exit_code=code, detail=detail)
    assert ending(status).startswith("job 1 'x' ")
    assert ending(status).endswith(says)


def test_a_list_says_why_in_the_first_words() -> None:
    failed = job(state="failed", reason="exit_code", exit_code=1, detail="ValueError: 3\nmore")
    assert why_in_a_list(failed) == "exit code 1: ValueError: 3"
    assert not why_in_a_list(job(state="cancelled", reason="cancelled", detail="on request"))


def _writes(backend: FakeBackend, at: dict[int, tuple[bytes, int]]) -> None:
    """Have output be there from a look on, counted from 1, each of an attempt."""
    looks = count(1)

    def write() -> None:
        if piece := at.get(next(looks)):
            backend.write(piece[0], token=piece[1], attempt=piece[1])

    backend.look = write


def test_ctrl_c_detaches_and_says_how_to_come_back(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    backend = FakeBackend([job()])

    def interrupt() -> None:
        raise KeyboardInterrupt

    backend.look = interrupt
    assert wait_for(backend.as_backend(), 7) == ExitCode.INTERRUPTED
    told = capsysbinary.readouterr().err.decode()
    assert "forge logs -f 7" in told
    assert "forge cancel 7" in told
