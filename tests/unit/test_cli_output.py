"""What the command prints, and with what it exits."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from forge_client import output
from forge_client.commands.waiting import exit_code, wait_for
from forge_client.exit_codes import MEANINGS, ExitCode
from forge_client.output import Format
from support.backends import FakeBackend, ended, job

DOCUMENT = Path(__file__).parents[2] / "docs" / "exit-codes.md"
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
    evil = "a\x1b]0;owned\x07\x1b[31m\x9b2J\rb"
    output.show([{"name": evil}], [("NAME", lambda row: row["name"])], Format.TABLE)
    printed = capsys.readouterr().out
    assert not set(printed) & set("\x1b\x07\x9b\r")
    assert "]0;owned" in printed


def test_an_empty_list_is_still_json(capsys: pytest.CaptureFixture[str]) -> None:
    output.show([], COLUMNS, Format.JSON)
    assert json.loads(capsys.readouterr().out) == []


def test_every_exit_code_is_documented() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    listed = [line.split("|")[1:3] for line in text.splitlines() if line.startswith("| ")][1:]
    assert {(int(code), name.strip(" `")) for code, name in listed} == {
        (code.value, code.name) for code in ExitCode
    }
    assert set(MEANINGS) == set(ExitCode)


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


def test_following_writes_output_as_it_is_and_tells_the_rest_on_stderr(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    backend = FakeBackend(
        [
            job(state="ready", attempt=0),
            job(worker="w1"),
            job(state="ready"),
            job(attempt=2, worker="w2"),
            job(attempt=2, state="succeeded"),
        ],
        history=[ended(1, "worker_lost")],
    )
    backend.write(b"\xff\xfe\n", token=1, attempt=1)
    backend.write(b"no newline", token=2, attempt=2)
    assert wait_for(backend.as_backend(), 1) == 0
    printed = capsysbinary.readouterr()
    assert printed.out == b"\xff\xfe\nno newline"
    told = printed.err.decode().splitlines()
    assert told[0] == "job 1 'x' is ready, but no worker is connected"
    assert "— attempt 1 ended: worker_lost; the job is ready again —" in told
    assert told.index("— attempt 1 on worker w1 —") < told.index("— attempt 2 on worker w2 —")
    assert told[-1] == "job 1 'x' succeeded"


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
