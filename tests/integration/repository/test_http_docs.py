"""docs/http-api.md names every path, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from forge_functions import errors
from forge_functions.server import whole_app
from support.http.server import server_settings

PAGE = Path(__file__).parents[3] / "docs" / "http-api.md"
ROW = re.compile(r"^\| `([A-Z]+) (/[^`]*)` \|", re.MULTILINE)


def test_the_page_has_every_path_and_no_other() -> None:
    document = whole_app(server_settings("postgresql://none", "file:///none")).openapi()
    offered = {
        (method.upper(), path)
        for path, methods in document["paths"].items()
        for method in methods
        if path != "/health"
    }
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert len(rows) == len(set(rows))
    assert set(rows) == offered


def test_the_page_has_every_status_that_a_path_declares() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## Errors")[2].partition("\n## ")[0]
    told = {int(status) for status in re.findall(r"^\| (\d{3}) \|", table, re.MULTILINE)}
    assert set(errors.DESCRIPTIONS) <= told
