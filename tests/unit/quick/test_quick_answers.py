"""What `forge` answers without typer, and that it says the same as the whole command."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import nullcontext, redirect_stdout
from typing import TYPE_CHECKING

import pytest
from forge_client.cli.commands import app
from forge_client.cli.quick.answers import plainly_described
from forge_client.cli.quick.arguments import Declined, commands, parsed
from forge_client.http import logins
from forge_client.main import answered
from forge_client.plain import place
from forge_client.plain.place import refuse_proxied
from forge_client.plain.wire import NotPlain
from forge_client.project.request import Request
from forge_schema.model.spec import KEYS
from support.client import plain_table
from support.client.command_table import PLACE, text
from typer.testing import CliRunner

if TYPE_CHECKING:
    from pathlib import Path

# What none of them needs, each of which takes a tenth of their time or more.
EXPENSIVE = {
    *("asyncio", "dataclasses", "email", "http", "httpx", "inspect", "pathlib"),
    *("platformdirs", "psycopg", "pydantic", "rich", "ssl", "subprocess", "typer", "urllib"),
}
SHOWN = ("job_details", "report_rows", "waiting", "log_lines", "acting")
LOADED = f"""
import sys, forge_client.main
from forge_client.cli.quick import answers, arguments, completion, help
from forge_client.cli.show import {", ".join(SHOWN)}
import forge_client.findings
# Not what stands for a module that is not to be imported.
print(*(name for name, module in sys.modules.items() if getattr(module, "__spec__", None)))
import forge_client.cli.show.submitted
assert "pydantic" not in sys.modules
"""
PS, SUBMIT = (commands()["commands"][name]["parameters"] for name in ("ps", "submit"))


def test_the_table_of_commands_is_that_of_the_whole_command() -> None:
    wanted = "run PYTHONPATH=tests .venv/bin/python -m support.client.command_table"
    assert PLACE.read_text(encoding="utf-8") == text(), wanted


def test_what_is_asked_plainly_is_what_the_verbs_declare() -> None:
    wanted = "run PYTHONPATH=tests .venv/bin/python -m support.client.plain_table"
    assert plain_table.PLACE.read_text(encoding="utf-8") == plain_table.text(), wanted


@pytest.mark.parametrize("columns", ["72", "80", "100", "133", "400"])
def test_the_help_is_that_of_the_whole_command(
    columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    said = io.StringIO()
    with redirect_stdout(said):
        assert answered(["--help"])
    whole = CliRunner().invoke(app, ["--help"], prog_name="forge", env={"COLUMNS": columns})
    assert said.getvalue() == whole.output


@pytest.mark.parametrize("words", [[], ["help"]])
def test_what_every_day_needs_fits_on_one_screen(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert answered(words)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 25
    assert any(line.startswith("│ submit ") for line in lines)
    assert not any(line.startswith("│ doctor ") for line in lines)


def test_a_command_named_after_help_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["forge", "help", "sweep", "run"])
    assert not answered(["help", "sweep", "run"])
    assert sys.argv == ["forge", "sweep", "run", "--help"]


def test_a_narrow_terminal_is_left_to_the_whole_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert not answered(["--help"])


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("", {}),
        ("name:a* -n 3 owner:me", {"query": ["name:a*", "owner:me"], "count": "3"}),
        ("--mine --state failed -s running", {"mine": True, "state": ["failed", "running"]}),
        ("--output=json", {"form": "json"}),
    ],
)
def test_the_words_of_a_command_are_read(words: str, given: dict[str, object]) -> None:
    assert parsed(PS, words.split()) == given


@pytest.mark.parametrize(
    "words", ["-n3", "--none", "-n", "--help", "--", "-n=3", "--mine=yes", "-w3"]
)
def test_words_that_need_more_are_declined(words: str) -> None:
    with pytest.raises(Declined):
        parsed(PS, words.split())


@pytest.mark.parametrize(
    "words",
    [
        *("ps -w", "ps -o yaml", "ps -n 0", "logs -o json 1", "cancel name:a*", "ps --none"),
        *("submit . --", "submit . --dry-run -- true", "submit . --secret a -- true"),
        *("submit . --gpus many -- true", "submit . --after 1 -- true", "submit -h"),
    ],
)
def test_what_is_not_plain_is_left_to_the_whole_command(words: str) -> None:
    assert not answered(words.split())


def test_a_job_that_is_described_plainly_is_what_the_models_make_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"_s": "90m", "_mb": "3.5GiB"}
    plain = [one for one in SUBMIT if "field" in one]
    assert {"name", "gpus", "memory", "timeout", "image"} <= {one["name"] for one in plain}
    for one in plain:
        words = KEYS[one["name"]].words or ("7",)
        given = {one["name"]: texts.get(one["field"].removeprefix(one["name"]), words[0])}
        described = plainly_described(given, tmp_path, ["python", "-c", ""])
        whole = Request().changed({**given, "command": ["python", "-c", ""]})
        assert described
        wanted = whole.spec(owner="ann", name="x").items()
        made = described[1].spec(owner="ann", name="x")
        assert made == {name: value for name, value in wanted if value != {}}
    for command in (None, [], ["python a.py"], ["a", "|", "b"]):
        assert plainly_described({}, tmp_path, command) is None
    for name, value in (("env", ["A=1"]), ("gpus", "many"), ("memory", "much")):
        assert plainly_described({name: value}, tmp_path, ["true"]) is None
    monkeypatch.setenv("FORGE_QUEUE", "night")
    assert plainly_described({}, tmp_path, ["true"]) is None
    monkeypatch.delenv("FORGE_QUEUE")
    (tmp_path / "forge.toml").touch()
    assert plainly_described({}, tmp_path, ["true"]) is None


def test_what_is_typed_all_day_is_very_light_to_import() -> None:
    """Each module takes a fifth of a millisecond or more."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    standard = [name for name in loaded if name.partition(".")[0] in sys.stdlib_module_names]
    assert not EXPENSIVE & {name.partition(".")[0] for name in loaded}
    assert len(loaded) - len(standard) <= 50
    assert len(standard) <= 110


def test_the_key_of_a_login_and_of_a_file_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "https://forge.example/below"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("FORGE_URL", f"{url}/")
    with pytest.raises(FileNotFoundError):
        place.server_place()
    logins.keep(url, "fgk_login")
    assert place.server_place().headers == {"Authorization": "Bearer fgk_login"}
    (tmp_path / "key").write_text("fgk_file\n")
    monkeypatch.setenv("FORGE_API_KEY_FILE", str(tmp_path / "key"))
    assert place.server_place().headers == {"Authorization": "Bearer fgk_file"}
    monkeypatch.setenv("FORGE_API_KEY", "fgk_own")
    with pytest.raises(NotPlain):
        place.server_place()


@pytest.mark.parametrize(
    ("host", "refused"),
    [
        ("127.0.0.1:8080", False),
        ("localhost", False),
        ("[::1]:80", False),
        ("store.example:9000", True),
        # Its name only begins like this machine's.
        ("localhost.example", True),
    ],
)
def test_a_host_behind_a_proxy_is_left_to_the_whole_client(
    host: str, monkeypatch: pytest.MonkeyPatch, *, refused: bool
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    with pytest.raises(NotPlain) if refused else nullcontext():
        refuse_proxied(host)
