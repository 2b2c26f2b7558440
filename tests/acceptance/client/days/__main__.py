"""A stranger's day: types what newcomers type, mistakes included, and prints all that they see.

    PYTHONPATH=tests .venv/bin/python -m acceptance.client.days mistakes [--columns 60]

It is a program and no test, since only a reader can tell whether an answer helps. A day is a file
of lines beside this one. After `^C at TEXT`, Ctrl-C is pressed once TEXT has come.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from contextlib import suppress
from pathlib import Path

from support.client.own_up import in_a_folder_of_its_own
from support.ports import free_port

DAYS = Path(__file__).parent


def typed(line: str, folder: Path, env: dict[str, str], columns: int) -> tuple[str, int]:
    """Type a line into a terminal, and return what it shows and the exit code."""
    command, _, moment = line.partition(" ^C at ")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", "bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env=env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen, pressed = b"", False
    with suppress(OSError):  # the terminal's end
        while data := os.read(ours, 65_536):
            seen += data
            if moment and not pressed and moment.encode() in seen:
                os.write(ours, b"\x03")
                pressed = True
    code = process.wait()  # before the terminal goes, or its hang-up would end the shell
    os.close(ours)
    return seen.decode(errors="replace").replace("\r\n", "\n"), code


def type_day(day: str, columns: int) -> None:
    """Type a day in a home and a project of its own, and print a transcript."""
    with tempfile.TemporaryDirectory() as name, in_a_folder_of_its_own(Path(name)) as forge:
        project = shutil.copytree(DAYS / "project", Path(name) / "project")
        env = {**forge.environment(), "TERM": "xterm", "PORT": str(free_port())}
        try:
            for line in (DAYS / f"{day}.txt").read_text(encoding="utf-8").splitlines():
                output, code = typed(line, project, env, columns)
                sys.stdout.write(f"$ {line}\n{output}# exit code {code}\n\n")
                sys.stdout.flush()
        finally:
            typed("forge down", project, env, columns)


def main() -> None:
    """Read which day, and type it."""
    days = sorted(path.stem for path in DAYS.glob("*.txt"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("day", choices=days)
    parser.add_argument("--columns", type=int, default=60)
    arguments = parser.parse_args()
    type_day(arguments.day, arguments.columns)


if __name__ == "__main__":
    main()
