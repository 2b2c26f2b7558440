"""What a table leaves out on a narrow terminal, and what it breaks."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from forge_client.cli.show.live import grid
from forge_client.cli.show.output import Column, brief, table
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
