"""What a process logs, and what it must not log."""

from __future__ import annotations

import json

import pytest
import structlog
from forge_schema.program.log import configure_log


@pytest.fixture(autouse=True)
def as_before() -> object:
    yield
    structlog.reset_defaults()


def fail() -> None:
    token = "fgw_1_" + "secret"
    raise ValueError(str(len(token)))


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_shows_no_local_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv("FORGE_LOG", form)
    configure_log()
    try:
        fail()
    except ValueError as error:
        structlog.get_logger().error("failed", exc_info=error)
    written = capsys.readouterr().err
    assert "ValueError: 12" in written
    assert "in fail" in written
    assert "fgw_1_secret" not in written


def test_json_is_an_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_log("json")
    structlog.get_logger().info("took", job=7)
    structlog.get_logger().warning("lost")
    first, second = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (first["event"], first["job"], first["level"]) == ("took", 7, "info")
    assert (second["event"], second["level"]) == ("lost", "warning")
