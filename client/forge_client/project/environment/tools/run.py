"""Commands that a tool runs in an environment, such as `uv run`; and scripts that name packages."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forge_schema.model.bundles import list_text
from forge_schema.model.reading import words_of

from forge_client.project.environment.names import NOTHING, Picked
from forge_client.project.environment.tables import PROJECT, table, wrong

ENDING = ".py"
NOTEBOOK = ".ipynb"
# What runs a notebook and stores it after each cell, and the kernel that it runs in.
NOTEBOOK_PACKAGES = ("papermill", "ipykernel")
# The output of the cells goes to the job's log, and what the notebook was becomes an artifact.
NOTEBOOK_SCRIPT = (
    'notebook=$1; shift; exec python3 -m papermill --log-output --no-progress-bar -k python3 "$@"'
    ' "$notebook" "$FORGE_OUTPUT_DIR/${notebook##*/}"'
)
BLOCK = re.compile(
    r"^# /// (?P<type>[a-zA-Z0-9-]+)[ \t]*$\s(?P<content>(^#(| .*)$\s)+)^# ///[ \t]*$", re.MULTILINE
)
TOOLS = ("uv", "poetry", "pdm", "pipenv", "hatch", "pixi")
# These run a script in an environment with the packages that it lists itself.
TAKE_SCRIPTS = ("uv", "pdm")
# Options of `uv run` that ask for nothing but what a job has anyway.
CALM = {
    "--locked",
    "--frozen",
    "--no-sync",
    "--no-dev",
    "--active",
    "--exact",
    "-q",
    "--quiet",
    "--",
}
# Where a tool has the tasks of a project, if not in its pyproject.toml.
OF_TOOL = {"pixi": "pixi.toml", "pipenv": "Pipfile"}
# What a shell replaces in a line.
EXPANDED = re.compile(r"[$`*?~]")
AS_MODULE, AS_SCRIPT = {"-m", "--module"}, {"-s", "--script"}
VALUED = {"--extra", "--group"}
PYTHON = "python"


@dataclass(frozen=True)
class ScriptBlock:
    """What a script asks for: packages, a range of Pythons ("" for any), and settings of uv."""

    requirements: tuple[str, ...]
    python: str
    uv: Mapping[str, Any]

    def needs_export(self, name: str) -> bool:
        """Tell whether uv has to export it: its compiler obeys no sources and indexes in it.

        Nor does that know a script by anything but the end of its `name`.
        """
        return bool(self.uv.get("sources") or self.uv.get("index")) or not name.endswith(ENDING)


def block(path: Path) -> ScriptBlock | None:
    """Return the block in a script; None if it has none, or is no text.

    Raises:
        ClientError: it is malformed, or there are several.
    """
    try:
        text = list_text(path.read_bytes())
    except (OSError, UnicodeError):
        return None
    blocks = [match for match in BLOCK.finditer(text) if match["type"] == "script"]
    if not blocks:
        return None
    if len(blocks) > 1:
        raise wrong(f"{path}: it has {len(blocks)} blocks `# /// script`", "keep one of them")
    content = "\n".join(line.removeprefix("#")[1:] for line in blocks[0]["content"].splitlines())
    import tomllib  # noqa: PLC0415 - only for such a file

    try:
        return _block(tomllib.loads(content))
    except (tomllib.TOMLDecodeError, TypeError, AttributeError) as error:
        raise wrong(
            f"{path}: its block `# /// script` is not valid: {error}", "correct it"
        ) from error


def _block(document: dict[str, Any]) -> ScriptBlock:
    listed = document.get("dependencies", [])
    if not isinstance(listed, list) or not all(isinstance(line, str) for line in listed):
        raise TypeError("`dependencies` is not a list of text")
    uv = document.get("tool", {}).get("uv", {})
    return ScriptBlock(tuple(listed), str(document.get("requires-python", "")), uv)


@dataclass(frozen=True)
class ToolRun:
    """A command without the tool before it, and the extras and groups asked of the tool."""

    tool: str
    words: tuple[str, ...]
    picked: Picked = NOTHING
    is_script: bool = False

    @property
    def takes_script(self) -> bool:
        """Whether the tool would use the packages that the script lists itself."""
        return self.tool in TAKE_SCRIPTS and self.is_script


def without_tool(command: Sequence[str], files: Mapping[str, Path]) -> ToolRun | None:
    """Return a command without the tool that runs it; None if it has none, or needs it."""
    if run := _by_shebang(command, files):
        return run
    if len(command) < 3 or command[0] not in TOOLS or command[1] != "run":  # noqa: PLR2004 - with one word to run
        return None
    tool, rest = command[0], list(command[2:])
    taken = _of_uv(rest) if tool == "uv" else NOTHING
    options = command[2 : len(command) - len(rest)]
    if taken is None or not rest:
        return None
    if tool == "uv" and rest[0] in AS_MODULE:
        return ToolRun(tool, (PYTHON, "-m", *rest[1:]), taken) if rest[1:] else None
    if rest[0].startswith("-") or (tool == "hatch" and ":" in rest[0]):
        return None
    is_script = rest[0].endswith(ENDING) or bool(AS_SCRIPT & set(options))
    words: Sequence[str] | None = (PYTHON, *rest) if is_script else rest
    if rest[0] in (tasks := _tasks(tool, files)):
        words = _of_task(tasks[rest[0]], rest[1:])
    return ToolRun(tool, tuple(words), taken, is_script=is_script) if words else None


def _of_uv(words: list[str]) -> Picked | None:
    """Take the options of `uv run` off a command; None if it has others than are understood."""
    values: dict[str, list[str]] = {option: [] for option in VALUED}
    while words and words[0].startswith("-") and words[0] not in AS_MODULE:
        word, sign, value = words.pop(0).partition("=")
        if word in VALUED and (sign or words):
            values[word].append(value if sign else words.pop(0))
        elif word not in CALM | AS_SCRIPT:
            return None
    return Picked(tuple(values["--extra"]), tuple(values["--group"]))


def _by_shebang(command: Sequence[str], files: Mapping[str, Path]) -> ToolRun | None:
    """Return the command for a script whose first line says that `uv run` runs it."""
    name = command[0].removeprefix("./") if command else ""
    # Without an ending, a bare word is a program.
    if name not in files or not (name.endswith(ENDING) or name != command[0]):
        return None
    with files[name].open("rb") as file:
        first = file.readline(200)
    runs = first.startswith(b"#!") and b"uv run" in first
    return ToolRun("uv", (PYTHON, name, *command[1:]), is_script=True) if runs else None


def _tasks(tool: str, files: Mapping[str, Path]) -> dict[str, Any]:
    """Return what a tool runs that is not a program: tasks of the project, by their names.

    Raises:
        ClientError: the file that names them is malformed.
    """
    path, other = files.get(PROJECT), files.get(OF_TOOL.get(tool, ""))
    of_project = table(path, "tool", tool) if path else {}
    if tool == "hatch":
        of_project = of_project.get("envs", {}).get("default", {})
    found: dict[str, Any] = {}
    for document in (of_project, table(other) if other else {}):
        # Only those of the default environment are run without the tool, which knows the others.
        for part in (*document.get("feature", {}).values(), *document.get("target", {}).values()):
            found |= dict.fromkeys(part.get("tasks", {}))
        found |= document.get("tasks" if tool == "pixi" else "scripts", {})
    return found


def _of_task(task: object, more: Sequence[str]) -> tuple[str, ...] | None:
    """Return the words of a task that is a command; None if only its tool knows what it is."""
    line = task.get("cmd") if isinstance(task, dict) and task.keys() == {"cmd"} else task
    if not isinstance(line, str) or "{" in line:
        return None
    with suppress(ValueError):
        if not EXPANDED.search(line):
            return (*words_of(line), *more)
    return None if more else ("bash", "-c", line)


def is_notebook(command: Sequence[str] | None) -> bool:
    """Tell whether a command is a notebook, with papermill's options after it."""
    return bool(command and command[0].endswith(NOTEBOOK))


def notebook_command(command: Sequence[str]) -> list[str]:
    """Return the command that runs a notebook."""
    return ["sh", "-c", NOTEBOOK_SCRIPT, "sh", *command]
