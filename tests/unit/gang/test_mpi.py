"""The members of an MPI program obey one another and no stranger."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack, closing, suppress
from multiprocessing import AuthenticationError
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from forge_worker.inside import mpi
from support.ports import free_port
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

HOSTS = "forge-rank-0:1,forge-rank-1:1"
# Like the real one, it has its agent start a daemon on each host, and waits for them.
MPIRUN = """#!/bin/sh
[ "$1" = --version ] && exit 0
for rank in 0 1; do
    "$OMPI_MCA_plm_rsh_agent" -x "forge-rank-$rank" 'DAEMON' || exit
done
"""


class Members:
    """Starts the members of one run as processes, beside an mpirun of the test's own."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self.port = free_port()
        self._folder = folder
        self._running = running

    def mpirun(self, daemon: str) -> None:
        (self._folder / "mpirun").write_text(MPIRUN.replace("DAEMON", daemon))
        (self._folder / "mpirun").chmod(0o755)

    def start(self, rank: int, *words: str) -> subprocess.Popen[str]:
        told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port), "NODE_RANK": str(rank)}
        path = f"{self._folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        made = subprocess.Popen(
            [sys.executable, mpi.__file__, *words],
            env={**told, "PATH": path, mpi.SECRET: "5ecret"},
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._running.enter_context(made)
        self._running.callback(made.kill)
        return made


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    with ExitStack() as running:
        yield Members(tmp_path, running)


def test_a_stranger_is_sent_away_and_does_not_hold_up_the_others(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    members.mpirun("echo rank $NODE_RANK says ${FORGE_GANG_SECRET:-nothing}")
    head = members.start(0, "head", HOSTS, "./solve")
    monkeypatch.setenv(mpi.SECRET, "wrong")

    def knock() -> socket.socket | None:
        with suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", members.port))
        return None

    silent = eventually(knock)
    assert silent is not None
    with closing(silent), socket.create_connection(("127.0.0.1", members.port)) as stranger:
        with pytest.raises(AuthenticationError):
            mpi.authentic(stranger, first=False)
        member = members.start(1, "member", "1")
        assert (head.wait(60), member.wait(60)) == (0, 0)
    assert [one.communicate()[0] for one in (head, member)] == [
        f"rank {rank} says nothing\n" for rank in (0, 1)
    ]


def test_a_machine_without_mpi_ends_the_run(members: Members) -> None:
    members.mpirun("no-such-daemon --daemonize -x")
    head = members.start(0, "head", HOSTS, "./solve")
    members.start(1, "member", "1")
    assert head.wait(60) == 127
    assert "rank 0 has no daemon of mpirun: no-such-daemon" in head.communicate()[0]
