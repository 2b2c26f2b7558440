"""What `forge` answers without typer, and that it says the same as the whole command."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any, cast

import pytest
from forge_client.cli.commands import app
from forge_client.cli.quick.answers import described_by_models, plainly_described
from forge_client.cli.quick.arguments import Declined, commands, parsed
from forge_client.errors import ClientError
from forge_client.http import logins
from forge_client.main import answered
from forge_client.plain import place
from forge_client.plain.place import refuse_proxied
from forge_client.plain.wire import NotPlain
from forge_client.project.listing import Listing
from forge_client.project.submit import SILENT, Parcel, PreparedSubmit, checked
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


WRITTEN = (
    *('"7"', '"90m"', '"3.5GiB"', '"2..8"', '"8..2"', '"./runs/"', '"a b"', '""', '"1KiB"', '"|"'),
    *("0", "1", "2", "-1", "99999999999", "0.5", "2.0", "nan", "inf", "true", "false"),
    *('["a"]', '["a", "a"]', '["./a/", "b,c"]', "[]", "[1]", '[""]', '["cd", "x"]', '["A=1"]'),
    *('{A = "1"}', "{A = 1}", "{}", '{gpus = 1, memory = "1GiB"}', "1979-05-27", "00:05:00"),
)
TYPED = ("7", "1.5", "90m", "3.5GiB", "2..8", "./runs/", "a,b", "A=1", "FORGE_X", "-1", "0", "x=")


def _same_or_left(
    folder: Path, file: str, given: dict[str, Any], command: list[str] | None
) -> bool:
    """Tell whether a job is described plainly, and check that it is what the models make of it."""
    (folder / "forge.toml").write_text(file)
    plain = plainly_described(given, folder, command)
    if plain is None:
        return False
    project, request = described_by_models(given, folder, command)
    assert not project.connection.model_dump(exclude_none=True)
    assert not project.matrix
    made, wanted = (
        {name: value for name, value in one.spec(owner="ann", name="x").items() if value != {}}
        for one in (plain, request)
    )
    assert made == wanted, (file, given)
    assert (plain.include, plain.limit) == (project.include, project.limit)
    for name in ("extras", "groups", "requirements", "image", "dockerfile", "checkpoint_dir"):
        assert (getattr(plain, name) or None) == (getattr(request, name) or None), (file, given)
    return True


def test_a_job_that_is_described_plainly_is_what_the_models_make_of_it(tmp_path: Path) -> None:
    """Each key with each value: whatever the models refuse, or know more of, is left to them."""
    options = {one["name"]: one for one in SUBMIT}
    served: set[str] = set()
    for name, key in commands()["keys"].items():
        table = f"[{key['table']}]\n" if "table" in key else ""
        for value in WRITTEN:
            if _same_or_left(tmp_path, f"{table}{name} = {value}\n", {}, ["python", "-c", ""]):
                served.add(name)
        for typed in TYPED if name in options else ():
            is_flag, many = (options[name].get(word) for word in ("flag", "many"))
            given = {name: True if is_flag else [typed] if many else typed}
            _same_or_left(tmp_path, "", given, ["python a.py"])
    assert served == commands()["keys"].keys() - {"image_tar"}


def test_options_lie_above_a_forge_toml_as_the_models_have_it(tmp_path: Path) -> None:
    files = (
        'command = "python a.py"\nname = "a"\nimage = "a"\nsecrets = ["A", "B"]\n',
        'include = [".env"]\nlimit = "1GiB"\nextras = "a,b"\n[env]\nA = "1"\n[labels]\nz = "e"\n',
        'nodes = "2..8"\n[resources]\ngpus = 2\ncpus = 1.5\n[stall]\nidle_gpu = "1h"\n',
    )
    given: list[dict[str, Any]] = [
        *({}, {"gpus": "0", "memory": "1GiB"}, {"dockerfile": "d"}, {"no_install": True}),
        *({"nodes": "1"}, {"env": ["A=2", "B=3"]}, {"secrets": ["B", "C"]}, {"labels": ["z=*"]}),
        *({"include": ["*.log"], "limit": "2GiB"}, {"groups": ["c"]}, {"name": "b", "mixed": True}),
    ]
    for file in ("".join(files), *files):
        for options in given:
            assert _same_or_left(tmp_path, file, options, ["true"]), (file, options)
    assert _same_or_left(tmp_path, files[0], {}, None)


def test_what_the_queue_refuses_has_its_line_in_forge_toml(tmp_path: Path) -> None:
    class Refusing:
        def check(self, _specs: object) -> None:
            raise ClientError("gpu_model: no", code="spec_invalid")

    (tmp_path / "forge.toml").write_text("[resources]\ngpu_model = '|'\n")
    for given, wanted in (
        ({}, "forge.toml: line 2, column 1: gpu_model: no"),
        ({"gpu_model": "a100"}, "^gpu_model: no"),
    ):
        plain = plainly_described(given, tmp_path, ["true"])
        parcel = Parcel(tmp_path, Listing(tmp_path, ()))
        ready = PreparedSubmit([plain], [], None, SILENT, [], parcel)
        with pytest.raises(ClientError, match=wanted):
            checked(cast("Any", Refusing()), ready)


@pytest.mark.parametrize(
    "file",
    [
        *(
            "",
            "name = ",
            "command = []",
            'command = "a | b"',
            "gpus = 1",
            "[resources]\nname = 'a'",
        ),
        *("none = 1", "resources = 1", "after = 7", "[connection]\nurl = 'http://a'", "repeat = 2"),
        *("[matrix]\nlr = [1]", "[resources]\ngpus = 99", "image_tar = 'a.tar'", "[a.b]"),
        *("\xff", "[[resources]]"),
    ],
)
def test_a_forge_toml_that_needs_more_is_left_to_the_models(file: str, tmp_path: Path) -> None:
    command = None if "command" in file or not file else ["true"]
    (tmp_path / "forge.toml").write_text(file, encoding="latin-1")
    assert plainly_described({}, tmp_path, command) is None


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
