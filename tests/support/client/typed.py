"""The terminal sessions of a document: what is typed, and the answers that must come."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT_CODE = re.compile(r"^# exit code (\d+)$")
ANYTHING = "…"
END = "\x1e"


@dataclass
class Typed:
    """A command, and its answer: `…` stands for anything, on a line of its own for any lines."""

    command: str
    answer: list[str] = field(default_factory=list)
    exit_code: int = 0

    def pattern(self) -> str:
        lines = (
            r"(?:.*\n)*" if line == ANYTHING else re.escape(line).replace(ANYTHING, ".*") + r" *\n"
            for line in self.answer
        )
        return "".join(lines)


def sessions(page: str) -> Iterator[Typed]:
    """Yield the commands of a page in order."""
    for block in BLOCK.findall(page):
        typed: Typed | None = None
        for line in block.splitlines():
            if line.startswith("$ "):
                if typed:
                    yield typed
                typed = Typed(line.removeprefix("$ "))
            elif typed and line.startswith("> "):
                typed.command += "\n" + line.removeprefix("> ")
            elif typed and (code := EXIT_CODE.match(line)):
                typed.exit_code = int(code[1])
            elif typed:
                typed.answer.append(line)
        if typed:
            yield typed


def answers(
    commands: list[Typed], folder: Path, env: Mapping[str, str], shell: Sequence[str] = ("bash",)
) -> Iterator[tuple[str, int]]:
    """Type the commands into one shell; yield each one's output and exit code."""
    script = "".join(f"{one.command}\nprintf '{END}%s{END}' $?\n" for one in commands)
    ended = subprocess.run(
        shell,
        input=script,
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    parts = ended.stdout.split(END)
    for output, code in zip(parts[::2], parts[1::2], strict=False):
        # The last line of a file may have no end.
        yield output if output.endswith("\n") or not output else f"{output}\n", int(code)
