"""`forge logs -f` beside a real worker, and `forge top` in a real terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from select import select
from typing import TYPE_CHECKING

import pytest
from support.client.command import FORGE, command
from support.workers.worker import bed

if TYPE_CHECKING:
    from pathlib import Path

    from support.client.command import Command
    from support.waiting import Eventually

NOISY = """
import os, sys, threading
attempt = os.environ["FORGE_ATTEMPT"]
for n in range(3):
    print(f"line {attempt}.{n}\\nnoise", flush=True)
    threading.Event().wait(0.3)
print("line end", end="", flush=True)
sys.exit(int(attempt) == 1)
"""
LINES = [*(f"line {a}.{n}" for a in (1, 2) for n in range(3))]


def test_logs_are_followed_from_the_queue_to_the_end(tmp_path: Path, database_url: str) -> None:
    (tmp_path / "bed").mkdir()
    with bed("process", tmp_path / "bed", database_url) as made:
        job = made.script(NOISY, max_failures=1)
        reach = {"FORGE_DATABASE_URL": database_url, "FORGE_STORE_URL": made.store.url}
        forge = command(tmp_path, **reach)
        with forge.started("logs", "-f", str(job), "--grep", "^line") as following:
            assert following.stderr
            said = following.stderr.readline()
            assert "is queued, but no worker is connected" in said
            made.worker()
            out, told = following.communicate(timeout=120)
        assert following.returncode == 0
        assert out.splitlines() == [*LINES[:3], "line end", *LINES[3:], "line end"]
        for move in (
            "attempt 1 on worker one-",
            "attempt 1 failed with exit code 1 after",
            "attempt 2 on",
        ):
            assert move in told
        assert "succeeded" in told
        last = forge("logs", str(job), "--tail", "2", "--since", "1h")
        assert (last.stdout, last.stderr.count("attempt 2")) == ("noise\nline end", 1)
        refused = forge("logs", str(job), "--grep", "(")
        assert (refused.returncode, "not a regular expression" in refused.stderr) == (2, True)


class Terminal:
    """A terminal of 40 lines, and what was written to it."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.seen = b""

    def shows(self, text: bytes) -> bool:
        """Read what is there, and tell whether a text was among all of it."""
        while select([self.master], [], [], 0)[0]:
            self.seen += os.read(self.master, 1 << 16)
        return text in self.seen

    def close(self) -> None:
        os.close(self.master)
        os.close(self.slave)


@pytest.mark.parametrize("end", ["q", "Ctrl-C"])
def test_top_shows_what_changes_and_leaves_the_terminal_as_it_was(
    tmp_path: Path, database_url: str, eventually: Eventually, end: str
) -> None:
    (tmp_path / "bed").mkdir()
    with bed("process", tmp_path / "bed", database_url) as made:
        reach = {"FORGE_DATABASE_URL": database_url, "FORGE_STORE_URL": made.store.url}
        environment = {**os.environ, **reach, "TERM": "xterm-256color"}
        terminal, ends = Terminal(), {"q": terminal_key, "Ctrl-C": interrupt}
        with subprocess.Popen(
            [FORGE, "top", "--every", "1s"],
            env=environment, cwd=tmp_path,
            stdin=terminal.slave, stdout=terminal.slave, stderr=terminal.slave,
        ) as process:  # fmt: skip
            eventually(lambda: terminal.shows(b"nothing waits"), 60)
            made.submit("true", name="comes")
            eventually(lambda: terminal.shows(b"'comes' waits for"), 60)
            assert termios.tcgetattr(terminal.slave) != terminal.before
            ends[end](terminal, process)
            assert process.wait(60) == 0
        assert terminal.shows(b"\x1b[?1049l")
        assert termios.tcgetattr(terminal.slave) == terminal.before
        terminal.close()


def terminal_key(terminal: Terminal, _process: subprocess.Popen[bytes]) -> None:
    os.write(terminal.master, b"xq")


def interrupt(_terminal: Terminal, process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)


def test_top_for_a_program_is_json(forge: Command, database_url: str, tmp_path: Path) -> None:
    reach = {"FORGE_DATABASE_URL": database_url, "FORGE_STORE_URL": tmp_path.as_uri()}
    assert '"states": {' in forge("top", "-o", "json", **reach).stdout
    assert "nothing waits" in forge("top", **reach).stdout
