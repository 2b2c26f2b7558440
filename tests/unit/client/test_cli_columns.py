"""What a table leaves out on a narrow terminal."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from forge_client.cli.show.output import Column, table

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
