"""The table that the tests of libraries print."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a row for each library, also of tests that ran in other processes."""
    rows = list(_rows(terminalreporter))
    if not rows:
        return
    terminalreporter.section("libraries")
    terminalreporter.line("| library | versions | struck | steps it began with | attempts | end |")
    terminalreporter.line("|---|---|---|---|---|---|")
    for outcome, row in rows:
        terminalreporter.line(_line(outcome, row))


def _rows(reporter: pytest.TerminalReporter) -> Iterator[tuple[str, dict[str, Any]]]:
    for outcome in ("passed", "failed"):
        for report in reporter.stats.get(outcome, []):
            properties = dict(getattr(report, "user_properties", []))
            if report.when == "call" and "library" in properties:
                yield outcome, json.loads(properties["library"])


def _line(outcome: str, row: dict[str, Any]) -> str:
    differs = "".join(f", {key} {value}" for key, value in row.get("differs", {}).items())
    cells = (
        row["library"],
        row["versions"],
        ", ".join(row.get("struck", [])),
        ", ".join(map(str, row.get("began", []))),
        ", ".join(row.get("ended", [])),
        f"{outcome}: {row.get('state')}{differs}",
    )
    return f"| {' | '.join(cells)} |"
