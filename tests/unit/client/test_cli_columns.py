"""What a table leaves out on a narrow terminal, and what it breaks."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from forge_client.cli.jobs.runs import _show
from forge_client.cli.show.live import grid
from forge_client.cli.show.output import Column, Format, brief, table
from forge_schema.model.results import ANY_METRIC, Measured, Run
from forge_schema.model.states import StateWord
from rich.console import Console

COLUMNS: list[Column] = [
    ("ID", lambda j: j.id),
    ("NAME", lambda j: j.name),
    ("WHY", lambda j: j.why),
    ("OWNER", lambda j: j.owner),
    ("QUEUE", lambda j: j.queue),
]
DROP = ("OWNER", "QUEUE", "WHY")
ROWS = [
    SimpleNamespace(id=1, name="resnet", why="", owner="ann", queue="default"),
    SimpleNamespace(id=22, name="vgg", why="", owner="bartholomew", queue="night"),
]


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (33, ["ID", "NAME", "WHY", "OWNER", "QUEUE"]),
        (32, ["ID", "NAME", "OWNER", "QUEUE"]),
        (28, ["ID", "NAME", "QUEUE"]),
        (10, ["ID", "NAME"]),
        (1, ["ID", "NAME"]),
    ],
)
def test_an_empty_column_goes_first_and_then_the_least_important(
    width: int, titles: list[str]
) -> None:
    assert [title for title, _ in table(ROWS, COLUMNS, width, DROP)[0]] == titles


ALL = ["JOB", "NAME", "STATE", "loss", "loss.best", "accuracy", "accuracy.best", "result.loss"]
ALL += ["result.lr", "TIME", "COST", "REVISION"]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (200, ALL),
        (95, [title for title in ALL if title not in {"loss.best", "result.loss", "COST"}]),
        (80, ["JOB", "NAME", "STATE", "loss", "accuracy", "accuracy.best", "result.lr", "TIME"]),
    ],
)
def test_of_a_run_copies_go_before_what_tells_more(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    width: int,
    shown: list[str],
) -> None:
    run = Run(
        job_id=1,
        name="resnet-50-small",
        owner="ann",
        state=StateWord.SUCCEEDED,
        parameters={"lr": 0.1},
        metrics={
            "loss": Measured(last=0.25, min=0.25, max=4),
            "accuracy": Measured(last=0.5, min=0.1, max=0.75),
        },
        result={"loss": 0.25, "lr": 0.5},
        seconds=43,
        revision="0123456789",
        submitted_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    _show([run], None, [ANY_METRIC], Format.TABLE)
    titles = capsys.readouterr().out.splitlines()[0]
    assert [title for title in ALL if title in re.sub(r"\x1b\[\d*m", "", titles).split()] == shown


def test_a_word_that_is_too_long_is_broken_and_not_cut() -> None:
    console = Console(width=20)
    ident = "703e165f-842d-4da4-9b52-6a4f0d7c1a55"
    with console.capture() as shown:
        console.print(grid([[(ident, ""), ("an error", "")]], gap=1))
    text = shown.get()
    assert "…" not in text
    assert "".join(line[: line.find(" ")] for line in text.splitlines()) == ident


def test_a_long_value_is_cut_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"traceback": "line\n" * 50}
    assert brief(value) == "traceback=line" + " line" * 49
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert brief(value) == ("traceback=line" + " line" * 49)[:59] + "…"
    assert brief(0.5) == "0.5"
