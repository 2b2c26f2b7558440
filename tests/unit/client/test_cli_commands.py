"""The `forge` command finds each of its commands by name, and loads no other."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import forge_client
import pytest
from forge_client.cli.commands import PLACES, app
from forge_client.cli.options.command_line import COMMANDS
from support.client.loaded import few
from typer.testing import CliRunner

if TYPE_CHECKING:
    from pathlib import Path

HEAVY = ("forge_client.cli.jobs", "forge_client.sdk.client", "httpx")
# What no everyday command needs through a server, though each is installed.
EXPENSIVE = {
    *("asyncio", "boto3", "click", "psycopg", "pydantic_settings", "pygments"),
    *("rich", "sqlmodel", "structlog", "yaml"),
}
READS_FOLDERS = {"pathspec", "platformdirs", "tarfile"}
LOADED = f"import sys, forge_client.cli.commands; print([m for m in {HEAVY} if m in sys.modules])"


@pytest.mark.parametrize("name", PLACES)
def test_each_command_has_a_help_of_its_own(name: str) -> None:
    done = CliRunner().invoke(app, [name, "--help"])
    assert done.exit_code == 0, done.output
    assert f" {name} " in done.output


def test_the_help_lists_every_command() -> None:
    listed = CliRunner().invoke(app, ["--help"]).output
    assert [name for name in PLACES if f" {name} " not in listed] == []


def test_the_options_of_submit_are_in_boxes_that_fit_on_a_screen() -> None:
    lines = (
        CliRunner().invoke(app, ["submit", "--help"], env={"COLUMNS": "120"}).output.splitlines()
    )
    boxes = [at for at, line in enumerate(lines) if line.startswith(("╭", "╰"))]
    assert max(end - begin for begin, end in zip(boxes[::2], boxes[1::2], strict=True)) <= 20
    assert [line for line in lines if "Checkpoints ─" in line]


@pytest.mark.parametrize(
    ("words", "said"),
    [("up", "back to the queue. Jobs and results are"), ("worker add", "Until it has connected,")],
)
def test_the_help_breaks_its_lines_where_the_terminal_ends(words: str, said: str) -> None:
    done = CliRunner().invoke(app, [*words.split(), "-h"], env={"COLUMNS": "400"})
    assert said in done.output


def test_a_mistyped_command_is_named_right() -> None:
    done = CliRunner().invoke(app, ["sumbit"])
    assert done.exit_code == 2
    assert "did you mean `forge submit`?" in done.output


def test_a_command_is_loaded_only_when_it_is_wanted() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("names", "most", "heavy"),
    [
        (("ps", "show", "cancel", "retry"), 225, READS_FOLDERS),
        (("logs",), 220, READS_FOLDERS),
        (("submit",), 300, set()),
    ],
)
def test_what_every_day_needs_is_light_to_import(
    names: tuple[str, ...], most: int, heavy: set[str]
) -> None:
    """Each module takes a fifth of a millisecond or more; a heavy library brings a hundred."""
    code = (
        "import sys, forge_client.cli.commands; from forge_client.cli.commands import _loaded;"
        f"[_loaded(name) for name in {names}];"
        "import forge_client.http.backend, httpcore;"
        "print(*(name for name, module in sys.modules.items() if module))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert not (EXPENSIVE | heavy) & {name.partition(".")[0] for name in loaded}
    assert few(loaded, most)


def test_a_command_without_stderr_does_what_it_does_with_it() -> None:
    """So with `id=$(forge submit … 2>&-)`: a script that fails would submit again."""
    code = "import sys; from forge_client.main import main; sys.argv[1:] = ['--version']; main()"
    command = '"$0" -c "$1" 2>&- <&-'
    done = subprocess.run(
        ["/bin/sh", "-c", command, sys.executable, code], stdout=subprocess.PIPE, check=True
    )
    assert done.stdout


def test_a_folder_that_was_removed_under_a_shell_is_named(tmp_path: Path) -> None:
    words = ["--url", "http://127.0.0.1:1", "submit", ".", "--", "true"]
    code = f"import sys; from forge_client.main import main; sys.argv[1:] = {words}; main()"
    # As of the installed command, the current folder is none to import from.
    command = ["/bin/sh", "-c", 'rmdir "$PWD" && "$0" -P -c "$1"', sys.executable, code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert b"the current folder no longer exists" in done.stderr


def test_the_package_offers_what_it_promises() -> None:
    assert all(hasattr(forge_client, name) for name in forge_client.__all__)
    assert not hasattr(forge_client, "nothing")
    assert {*forge_client.__all__} == {*dir(forge_client)}


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("jobs", "ps"),
        ("kill", "cancel"),
        ("notify", "notification list"),
        ("workers", "worker list"),
        ("pause", "queue pause"),
        ("watch", "ps --watch"),
        ("cp", "artifacts"),
    ],
)
def test_a_word_of_another_tool_gets_the_command_that_does_it(word: str, meant: str) -> None:
    done = CliRunner().invoke(app, [word, "7"])
    assert done.exit_code == 2
    assert f"did you mean `forge {meant}`?" in " ".join(done.output.split())
    assert not COMMANDS.keys() & {*PLACES}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("template delete x", "has no command 'delete'; did you mean 'remove'?"),
        ("key rm x", "has no command 'rm'; did you mean 'revoke'?"),
        ("tag paper 7", "has no command 'paper': did you mean `forge tag add paper 7`?"),
        ("worker lst", "has no command 'lst'; did you mean 'list'?"),
        ("sweep ls", "has no command 'ls'; did you mean 'list'?"),
        ("sweep my-sweep", "write run, resume, list, show or compare"),
        ("report waiting", "write list or show"),
        ("sweep delete x", "write run, resume, list, show or compare"),
        ("schedule add 0 3 -- true", "the cron expression needs quotes, as in '0 3 * * 1-5'"),
        ("submit --mem 4G -- true", "--mem; did you mean --memory?"),
        ("submit --gres=gpu:1 -- true", "--gres; did you mean --gpu?"),
        ("submit --array 0-9 -- true", "forge benchmark --matrix"),
        ("submit --retries 0 -- true", "--retries; did you mean --max-failures?"),
        ("submit --gpus a100:1 -- true", "as in --gpus 1 --gpu-model a100"),
        ("ps --limit 5", "--limit; did you mean --count?"),
        ("ps -n", "-n needs a value"),
        ("submit . --wait=2 -- true", "--wait takes no value"),
        ("ps -a", "did you mean `forge ps archived:yes,no`?"),
        ("cancel --all", "did you mean `forge cancel state:queued,held,running`?"),
        ("artifacts 1 --only *.pt", "--only; did you mean `forge artifacts JOB PATH`?"),
        ("report gpu_hours", "did you mean `forge report show gpu_hours`?"),
        ("ps --format json", "--format; did you mean --output?"),
        ("logs --lines 5 1", "--lines; did you mean --tail?"),
        ("ps --priority 5", "there is no option --priority"),
        ("ps --count 0", "--count: must be at least 1"),
        ("benchmark . --matrix lr=0.1, 0.2 -- true", "(0.2); values have no spaces between them"),
    ],
)
def test_a_verb_or_an_option_of_another_tool_gets_the_one_that_does_it(
    typed: str, said: str
) -> None:
    done = CliRunner().invoke(app, typed.split())
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


def test_what_is_wrong_with_an_option_is_said_plainly() -> None:
    done = CliRunner().invoke(app, ["submit", "--gpu", "two"])
    assert (done.exit_code, "write a whole number" in done.output) == (2, True), done.output
