"""A first hour with mistakes: types what strangers type, and prints all that they see.

    PYTHONPATH=tests .venv/bin/python -m acceptance.client.mistakes [--columns 60]

It is a program and no test, since only a reader can tell whether an answer helps.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
from contextlib import suppress
from pathlib import Path

from support.client.own_up import in_a_folder_of_its_own

TRAIN = """\
import threading
for epoch in range(200):
    print("epoch", epoch, flush=True)
    threading.Event().wait(0.1)
"""
# A line is typed as it is. After `^C at TEXT`, Ctrl-C is pressed once TEXT has come.
TYPED = """\
forge ps
forge up -d
forge
forge jobs
forge --help | head -5
forge ps
forge submit
forge submit train.py
forge submit . python train.py
forge submit nowhere -- python train.py
forge submit . --gpus two -- python train.py
forge submit . --gpu 1 -- python train.py
forge submit . --memory lots -- python train.py
forge submit . --nmae first -- python train.py
forge submit . --name 12 -- python train.py
forge submit . --name first -- pyhton train.py
forge submit . --name long -- python train.py
forge ps
forge ps --stat failed
forge ps state:faild
forge ps frist
forge ps | head -2
forge logs
forge logs 99
forge logs lon | head -2
forge logs -f long ^C at epoch 5
forge logs -f frist
forge log 1
forge show
forge show 99999999999999999999
forge show long
forge explain 1
forge status 2
forge cancel
forge cancel lo ^C at job?
forge cancel long --yes
forge cancel long
forge retry 2
forge retry first
forge submit . --wait -- python -c "import nothing"
forge submit . --wait -- sh -c "exit 3"
forge submit . --wait -- python train.py ^C at epoch 3
forge cancel @last
forge artifacts 2 --to /proc/nowhere
forge artifacts 2
forge result 2
forge metrics 2
forge checkpoints 2
forge code 2 --to .
forge exec 2 -- ls
forge benchmark . -- python train.py
forge benchmark . --matrix lr -- python train.py
forge benchmark . --matrix lr=1,2 -- true
forge sweep list
forge sweep show nothing
forge worker list
forge worker add gpu-1 | wc -l
forge worker add gpu-1 --expires soon
forge worker delete nobody
forge worker drain
forge queue pause nights
forge key create
forge key create --owner ann --role boss
forge report show cost --since yesterday
forge report show costs
forge template show nothing
forge template rm nothing
forge template keep empty
forge schedule add "every day" -- true
forge schedule add 0 3 * * 1 -- true
forge submit . --secret TOKEN=abc -- true
forge submit . --dependency afterok:1 -- true
forge submit . --after-ok nothing -- true
forge submit . --nodes 4..2 -- true
forge sweep run . -- python train.py
forge ps running
forge ps sweep:hel
forge approve --sweep nothing
forge login nowhere
forge notification add ops
forge notification add ops --webhook ftp://x
forge notification test nothing
forge doctor
forge --url http://127.0.0.1:1 ps
forge --url example ps
forge --dir /nowhere ps
forge db upgrade
forge up
forge dwon
"""


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
    os.close(ours)
    return seen.decode(errors="replace").replace("\r\n", "\n"), process.wait()


def main() -> None:
    """Start a Forge of its own, type everything, and print a transcript."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--columns", type=int, default=60)
    columns = parser.parse_args().columns
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        project = root / "hello"
        project.mkdir()
        (project / "train.py").write_text(TRAIN, encoding="utf-8")
        with in_a_folder_of_its_own(root) as forge:
            env = {**forge.environment(), "TERM": "xterm"}
            try:
                for line in TYPED.splitlines():
                    output, code = typed(line, project, env, columns)
                    sys.stdout.write(f"$ {line}\n{output}# exit code {code}\n\n")
                    sys.stdout.flush()
            finally:
                typed("forge down", project, env, columns)


if __name__ == "__main__":
    main()
