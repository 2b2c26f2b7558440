"""A Ray cluster ends with its job's command, and members keep their part until its head is gone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from forge_worker.inside import ray_cluster
from support.ports import free_port
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN = "/own"
# Like the real one, it listens if it is the head, and some of what it starts survives a SIGTERM.
RAY = """#!{python}
import os, signal, socket, subprocess, sys
role, *words = sys.argv[1:]
if role == "health-check":
    sys.exit()
print("ray", role, *words, os.environ["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"], flush=True)
deaf = "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"
agent = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.DEVNULL)
print("agent", agent.pid, flush=True)
if "--head" in words:
    door = socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
signal.sigwait([signal.SIGTERM])
"""
# The check that all machines have joined is Python's; it imports ray.
MODULE = """
import os
def init(**given): pass
def nodes(): return [{"Alive": True}] * int(os.environ["ALIVE"])
"""


class Cluster:
    """Starts the members of one run as processes, beside a Ray of the test's own."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self.port = free_port()
        self._folder, self._running = folder, running
        (folder / "ray").write_text(RAY.format(python=sys.executable))
        (folder / "ray").chmod(0o755)
        (folder / "packages").mkdir()
        (folder / "packages" / "ray.py").write_text(MODULE)

    def start(self, *words: str, **told: str) -> subprocess.Popen[str]:
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port), "ALIVE": "2"}
        path = f"{self._folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        own = {"PATH": path, "PYTHONPATH": str(self._folder / "packages"), "TMPDIR": OWN}
        made = subprocess.Popen(
            [sys.executable, "-u", ray_cluster.__file__, *words],
            env={**where, **own, **told},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._running.enter_context(made)
        self._running.callback(made.kill)
        return made

    def head(self, *command: str, **told: str) -> subprocess.Popen[str]:
        return self.start("head", "2", "--num-cpus=1", "--", *command, **told)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as running:
        yield Cluster(tmp_path, running)


def line(process: subprocess.Popen[str], begins: str) -> str:
    """Return the rest of the next line that begins so."""
    assert process.stdout is not None
    return next(one for one in process.stdout if one.startswith(begins)).removeprefix(begins)


def gone(agent: str) -> bool:
    stat = Path(f"/proc/{int(agent)}/stat")
    return not stat.exists() or ") Z " in stat.read_text()


def test_the_cluster_ends_with_the_command_whose_exit_code_counts(cluster: Cluster) -> None:
    head = cluster.head("sh", "-c", "echo ran; exit 3")
    said = line(head, "ray ")
    assert f"start --block --temp-dir={OWN}/ray --head --port={cluster.port} " in said
    # Nobody is asked whether it may leave.
    assert said.endswith(" --num-cpus=1 0\n")
    agent = line(head, "agent ")
    assert line(head, "ran") == "\n"
    assert head.wait(60) == 3
    eventually(lambda: gone(agent))


@pytest.mark.parametrize(("command", "code"), [("no-such-program", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_run_has_the_exit_code_of_a_shell(
    cluster: Cluster, command: str, code: int
) -> None:
    assert cluster.head(command).wait(60) == code


def test_a_member_told_to_stop_stays_until_the_head_is_gone(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", cluster.port)) as head:
        member = cluster.start("member", "--num-cpus=1")
        said = line(member, "ray ")
        assert f"--temp-dir={OWN}/ray --address=127.0.0.1:{cluster.port} --num-cpus=1" in said
        agent = line(member, "agent ")
        member.send_signal(signal.SIGTERM)
        # It asks again and again whether the head still answers.
        for _ in range(3):
            head.accept()[0].close()
        assert member.poll() is None
        assert not gone(agent)
    assert member.wait(60) == 128 + signal.SIGTERM
    eventually(lambda: gone(agent))


def test_a_stop_reaches_the_command_and_not_the_cluster_below_it(cluster: Cluster) -> None:
    script = "trap 'echo saves; exit 0' TERM; echo waits; while :; do sleep 0.1; done"
    head = cluster.head("sh", "-c", script)
    line(head, "waits")
    head.send_signal(signal.SIGTERM)
    line(head, "saves")
    assert head.wait(60) == 0


def test_a_cluster_that_dies_stops_the_command(cluster: Cluster) -> None:
    head = cluster.head("sh", "-c", "echo waits; exec sleep 600")
    line(head, "waits")
    (ray,) = (pid for pid in ray_cluster.below(head.pid) if b"start" in cmdline(pid))
    os.kill(ray, signal.SIGKILL)
    assert "killed by signal 9" in line(head, "Ray's processes on rank 0 ended")
    assert head.wait(60) == 1


def cmdline(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def test_a_head_that_refuses_a_member_is_quoted(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ray_cluster, "JOIN_S", 0.5)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(cluster.port))
    check = ["sh", "-c", "echo AuthenticationError: token is missing; exit 1"]
    with socket.create_server(("127.0.0.1", cluster.port)):
        stopping = ray_cluster.RaySignals.__new__(ray_cluster.RaySignals)
        stopping.number = 0
        assert ray_cluster.joined(check, "the Ray head does not answer", None, stopping) == 1
    said = capfd.readouterr().err
    assert said.endswith("the Ray head does not answer: AuthenticationError: token is missing\n")
