"""The members of an MPI program obey one another and no stranger."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack, closing, suppress
from multiprocessing import AuthenticationError
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.lease import NAMES_RANK
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


SAID = {
    # Open MPI 4.1.4
    "   Process name: [[2949,1],1]\n  Exit code:    5\n": (
        "rank 0 failed first: exit code 5 of process 1"
    ),
    "mpirun noticed that process rank 2 with PID 0 on node vm exited on signal 9 (Killed).\n": (
        "rank 1 failed first: killed by SIGKILL of process 2"
    ),
    # Open MPI 5.0.7 and 5.0.11, which break lines where their text becomes too long.
    "   Process name: [prterun-vm-26671@1,3]\n   Exit code:    5\n--\n": (
        "rank 2 failed first: exit code 5 of process 3"
    ),
    "prterun noticed that process rank 3 with PID 26701 on node vm exited on\nsignal 11"
    " (Segmentation fault).\n": "rank 2 failed first: killed by SIGSEGV of process 3",
    "prterun was unable to find the executable\n": "",
}


@pytest.mark.parametrize("said", SAID)
def test_the_rank_that_failed_first_is_named_as_mpirun_says(said: str) -> None:
    # Machines with two, one and one process.
    told = mpi.first_failed(said.encode(), [2, 1, 1])
    assert told == (f"{SAID[said]}\n" if SAID[said] else "")
    assert not told or NAMES_RANK.match(told)


def test_machine_and_process_are_one_if_each_has_one() -> None:
    said = b"   Process name: [prterun-vm-26671@1,3]\n   Exit code:    5\n"
    assert mpi.first_failed(said, [1, 1, 1, 1]) == "rank 3 failed first: exit code 5\n"


@pytest.mark.parametrize("daemons", [1, 2, 3])
def test_a_stop_reaches_the_programs_alone_below_any_number_of_daemons(
    tmp_path: Path, daemons: int
) -> None:
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    env = {**os.environ, mpi.RANKS: str(ranks), "FORGE_MPI_WORK": str(tmp_path)}
    words = ["/bin/sh", "-c", mpi.EACH, "forge", "sleep", "600"]
    for _ in range(daemons):
        # Each waits for what it started.
        words = ["/bin/sh", "-c", '"$@"; exit', "daemon", *words]
    with subprocess.Popen(words, env=env) as daemon:
        try:
            (pid,) = eventually(lambda: mpi.programs(daemon.pid, ranks))
            eventually(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
            # A stranger's file names a process that is not below the daemon.
            (ranks / str(os.getpid())).touch()
            assert mpi.programs(daemon.pid, ranks) == [pid]
            os.kill(pid, 15)
            assert daemon.wait(60) == 143
        finally:
            daemon.kill()


def test_a_program_that_begins_after_the_stop_leaves_at_once(tmp_path: Path) -> None:
    (tmp_path / mpi.STOPPED).touch()
    env = {**os.environ, mpi.RANKS: str(tmp_path), "FORGE_MPI_WORK": str(tmp_path)}
    done = subprocess.run(["/bin/sh", "-c", mpi.EACH, "forge", "echo", "ran"], env=env, check=False)
    assert done.returncode == 143


def test_only_a_warning_of_mpirun_about_itself_is_left_out(
    capfd: pytest.CaptureFixture[str],
) -> None:
    warns = (
        "[vm:1] plm:ssh: Warning: setpgid(2,2) failed in parent with errno=Permission denied(13)"
    )
    script = f"echo one >&2; echo '{warns}' >&2; printf 'half 10%%\\r' >&2"
    with subprocess.Popen(["/bin/sh", "-c", script], stderr=subprocess.PIPE) as process:
        said = mpi.Complaints(process).read()
    assert capfd.readouterr().err == "one\nhalf 10%\r"
    assert said.endswith(b"half 10%\r")


def gang_at(*addresses: str) -> str:
    members = [{"rank": rank, "address": address} for rank, address in enumerate(addresses)]
    return json.dumps({"rank": 0, "members": members})


@pytest.mark.parametrize(
    ("version", "addresses", "warned"),
    [
        ("mpirun (Open MPI) 5.0.7", ("192.0.2.1", "192.0.2.2", "192.0.2.1"), True),
        ("mpirun (Open MPI) 5.0.7", ("192.0.2.1", "192.0.2.2"), False),
        ("mpirun (Open MPI) 4.1.4", ("192.0.2.1", "192.0.2.1"), False),
        ("HYDRA build details:\n    Version: 5.0.2", ("192.0.2.1", "192.0.2.1"), False),
    ],
)
def test_members_whom_open_mpi_will_not_connect_are_named(
    version: str, addresses: tuple[str, ...], *, warned: bool
) -> None:
    warning = mpi.strangers(version.encode(), gang_at(*addresses))
    assert ("ranks 0 and 2 have one address" in warning) is warned
