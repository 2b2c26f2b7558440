"""The pages of docs/start that are typed: every command, as written, gives the answer there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.client.own_up import in_a_folder_of_its_own
from support.client.typed import answers, sessions
from support.warm.door import warm_program

START = Path(__file__).parents[3] / "docs" / "start"


@pytest.mark.parametrize("page", ["first-hour.md", "second-hour.md"])
def test_page_shows_what_a_terminal_shows(
    page: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    typed = list(sessions((START / page).read_text(encoding="utf-8")))
    programs = tmp_path / "bin"
    programs.mkdir()
    with (
        in_a_folder_of_its_own(tmp_path) as forge,
        warm_program("forge_client.main", programs / "forge"),
    ):
        env = forge.environment()
        env["PATH"] = f"{programs}:{env['PATH']}"
        try:
            seen = list(answers(typed, tmp_path, env))
        finally:
            forge("down")
    assert len(seen) == len(typed) > 20
    for one, (output, code) in zip(typed, seen, strict=True):
        with subtests.test(one.command.partition("\n")[0]):
            assert code == one.exit_code, output
            assert re.fullmatch(one.pattern(), output), output
