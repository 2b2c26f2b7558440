"""A program for shells: commands that they start are forked from a warm process."""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from support.warm.process import Warm

if TYPE_CHECKING:
    from collections.abc import Iterator

# It hands its streams over and ends as the process does.
PROGRAM = """#!{python} -IS
import json, os, socket, sys
said = json.dumps({{"argv": sys.argv, "cwd": os.getcwd(), "env": dict(os.environ)}}).encode()
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
    door.connect({door!r})
    socket.send_fds(door, [said], [0, 1, 2])
    for stream in (0, 1, 2):
        os.close(stream)
    code = int(door.recv(16) or b"1")
os._exit(code if code >= 0 else 128 - code)
"""
REQUEST_BYTES = 1 << 20


@contextmanager
def warm_program(module: str, path: Path) -> Iterator[None]:
    """Make a program at `path` that runs one of ours, until the block ends."""
    door = path.with_suffix(".door")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(door))
        listening.listen()
        path.write_text(PROGRAM.format(python=sys.executable, door=str(door)), encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        Thread(target=_serve, args=(module, listening), daemon=True).start()
        yield
        listening.shutdown(socket.SHUT_RDWR)


def _serve(module: str, listening: socket.socket) -> None:
    while True:
        try:
            asked = listening.accept()[0]
        except OSError:
            return
        Thread(target=_answer, args=(module, asked), daemon=True).start()


def _answer(module: str, asked: socket.socket) -> None:
    with asked:
        said, streams, _, _ = socket.recv_fds(asked, REQUEST_BYTES, 3)
        words = json.loads(said)
        given = dict(zip(("stdin", "stdout", "stderr"), streams, strict=True))
        process = Warm(module, words["argv"], cwd=words["cwd"], env=words["env"], **given)
        for stream in streams:
            os.close(stream)
        asked.sendall(str(process.wait()).encode())
