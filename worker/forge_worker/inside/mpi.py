#!/usr/bin/env python3
"""What each member of a gang runs when `mpirun` is its launcher: no machine needs ssh.

Rank 0 runs mpirun, with this file in place of ssh: the daemon that mpirun wants on a machine is
named to rank 0's program, which tells the program of that member; it starts the daemon, in its own
environment. All connections go to rank 0, and both sides prove that they know the run's secret.

This file runs with any Python from 3.8 on, so it imports only the standard library.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from threading import Condition, Thread
from typing import Any

SECRET = "FORGE_GANG_SECRET"  # noqa: S105  the name of a variable
HOST = "forge-rank-"
JOIN_S, RETRY_S = 120.0, 0.1
# Forge stops a member at once if rank 0 has failed, or once its worker counts as lost.
STOPPED_S = 300.0
# The most bytes of a command that is believed.
LONGEST = 1 << 20
FAILED, BY_SIGNAL = 1, 128
# A shell's exit codes.
NOT_STARTED = (126, 127)
# What Forge or the job's author may send to the program.
PASSED_ON = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")
# Open MPI tells its daemons rank 0's interface.
INTERFACES = re.compile(r'-mca oob_tcp_if_include "[^"]*"')
# A folder of this machine with a file for each process of the job, named by its process id.
RANKS = "FORGE_MPI_RANKS"
STOPPED = "stopped"
# Each process of the job, in its own member's folder and with the variables of all launchers. It
# names itself, since daemons and wrappers may stand between it and mpirun in any number. One that
# begins after the stop leaves at once.
EACH = """echo >"$FORGE_MPI_RANKS/$$" && cd "$FORGE_MPI_WORK" || exit
[ ! -e "$FORGE_MPI_RANKS/stopped" ] || exit 143
unset FORGE_MPI_RANKS
export RANK="${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"
export WORLD_SIZE="${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE}"
export LOCAL_RANK="${OMPI_COMM_WORLD_LOCAL_RANK:-$MPI_LOCALRANKID}"
[ -z "$GLOO_SOCKET_IFNAME" ] || export OMPI_MCA_btl_tcp_if_include="$GLOO_SOCKET_IFNAME"
exec "$@"
"""
# The words of Open MPI 4 and 5 about the process that failed first. MPICH has none for stderr.
EXITED = re.compile(rb"Process name: *\[\S*,(\d+)\]\s+Exit code: *(\d+)")
SIGNALLED = re.compile(rb"process rank (\d+) with PID \d+ on node \S+ exited on\s+signal (\d+)")
# Open MPI's complaint that its child was faster than itself.
FASTER = re.compile(rb"[^\n]*plm:\w+: Warning: setpgid\([^\n]*\n")
OPEN_MPI = re.compile(rb"\(Open MPI\) (\d+)")
# Since it takes an address of its own among those of another host for a container's, and drops it.
ONE_ADDRESS_EACH = 5
TAIL_BYTES, PIECE_BYTES, DRAIN_S = 1 << 15, 1 << 16, 5.0


class Daemon:
    """The daemon of mpirun on this machine; `stopping` is the signal to stop, if there was one."""

    def __init__(self) -> None:
        self.stopping = 0
        self._pid = 0
        self._ranks = Path()
        for name in PASSED_ON:
            signal.signal(getattr(signal, name), self._pass_on)

    def run(self, command: str) -> int:
        """Run it to its end, and return its exit code."""
        command = INTERFACES.sub("", command.replace(" --daemonize", " ", 1))
        own = {f"OMPI_MCA_{name}": value for name, value in network(interface()).items()}
        with tempfile.TemporaryDirectory() as ranks:
            self._ranks = Path(ranks)
            places = {"FORGE_MPI_WORK": str(Path.cwd()), RANKS: ranks}
            env = {**without_secret(), **as_root(), **own, **places}
            words = ["/bin/sh", "-c", command]
            with subprocess.Popen(words, env=env) as process:  # noqa: S603  the words of mpirun
                self._pid = process.pid
                code = process.wait()
                self._pid = 0
        return code

    def _pass_on(self, number: int, _: object) -> None:
        """Send a signal to the job's processes: mpirun would kill them after a second."""
        if not self._pid:
            sys.exit(BY_SIGNAL + number)
        self.stopping = number
        if number == signal.SIGTERM:
            (self._ranks / STOPPED).touch()
        for pid in programs(self._pid, self._ranks):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


class Head:
    """Rank 0's side: it knows the connections of the other members."""

    def __init__(self, nodes: int, daemon: Daemon) -> None:
        self._nodes = nodes
        self._daemon = daemon
        self._members: dict[int, Connection] = {}
        self._started: set[int] = set()
        self._changed = Condition()
        self._door = listening()
        Thread(target=self._accept, daemon=True).start()

    def all_joined(self) -> bool:
        """Return whether all members are there within JOIN_S."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._members) == self._nodes - 1, JOIN_S)

    def tell(self, code: int) -> None:
        """Tell all members how mpirun has ended."""
        for line in self._members.values():
            with suppress(OSError):
                say(line, code=code)

    def _accept(self) -> None:
        # Once all daemons have been named, the port is the job's.
        with suppress(OSError), self._door:
            while True:
                Thread(target=self._serve, args=(self._door.accept()[0],), daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        # A stranger, or one that left.
        with suppress(AuthenticationError, EOFError, OSError):
            line = authentic(accepted, first=True)
            message = heard(line)
            if "command" in message:
                say(line, code=self._start(int(message["rank"]), str(message["command"])))
            else:
                with self._changed:
                    self._members[int(message["rank"])] = line
                    self._changed.notify_all()

    def _start(self, rank: int, command: str) -> int:
        """Have a member start its daemon; return 0 at once if it would leave the foreground."""
        if " --daemonize" in command:
            Thread(target=self._run, args=(rank, command), daemon=True).start()
            return 0
        return self._run(rank, command)

    def _run(self, rank: int, command: str) -> int:
        self._started.add(rank)
        if len(self._started) == self._nodes:
            with suppress(OSError):
                self._door.shutdown(socket.SHUT_RDWR)
        code = self._daemon.run(command) if rank == 0 else self._run_there(rank, command)
        if code in NOT_STARTED:
            # mpirun would wait for it without end.
            sys.stderr.write(f"rank {rank} has no daemon of mpirun: {command.strip()}\n")
            os._exit(code)
        return code

    def _run_there(self, rank: int, command: str) -> int:
        with suppress(EOFError, OSError):
            say(self._members[rank], command=command)
            return int(heard(self._members[rank])["code"])
        return FAILED


def head(hosts: str, command: list[str]) -> int:
    """Run mpirun for the hosts, as `name:processes,…`, and return its exit code."""
    if shutil.which("mpirun") is None:
        sys.stderr.write("mpirun is missing in the image or environment of the job\n")
        return NOT_STARTED[1]
    daemon = Daemon()
    known = Head(len(hosts.split(",")), daemon)
    if not known.all_joined():
        sys.exit(f"not all ranks were there after {JOIN_S:.0f} s")
    count = str(sum(processes(hosts)))
    # A path without spaces, and without the colon that separates choices.
    options, env = mpirun(hosts, agent=os.path.relpath(__file__))
    whole = ["mpirun", *options, "-n", count, "/bin/sh", "-c", EACH, "forge", *command]
    # Only its agents need the secret; the job's processes start below the daemons.
    env = {**os.environ, **as_root(), **env}
    with subprocess.Popen(whole, env=env, stderr=subprocess.PIPE) as process:  # noqa: S603  the job's own words
        complaints = Complaints(process)
        try:
            code = process.wait()
        finally:
            process.terminate()
        output = complaints.read()
    if code and not daemon.stopping:
        sys.stderr.write(first_failed(output, processes(hosts)))
    known.tell(code)
    return code if code >= 0 else BY_SIGNAL - code


def processes(hosts: str) -> list[int]:
    """Return the number of processes of each machine."""
    return [int(host.rpartition(":")[2]) for host in hosts.split(",")]


class Complaints:
    """What mpirun writes to stderr, which is passed on and of which the end is kept."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None  # noqa: S101  it is a pipe
        self._pipe = process.stderr.fileno()
        self._tail = b""
        self._thread = Thread(target=self._pass_on, daemon=True)
        self._thread.start()

    def read(self) -> bytes:
        """Return the end of it; what outlives mpirun may hold the pipe open."""
        self._thread.join(DRAIN_S)
        return self._tail

    def _pass_on(self) -> None:
        with suppress(OSError):
            while piece := os.read(self._pipe, PIECE_BYTES):
                self._tail = (self._tail + piece)[-TAIL_BYTES:]
                left = FASTER.sub(b"", piece)
                while left:
                    left = left[os.write(2, left) :]


def first_failed(output: bytes, counts: list[int]) -> str:
    """Return the line about the process that failed first, as mpirun says; empty if it does not.

    Args:
        output: the end of what mpirun wrote to stderr.
        counts: the number of processes of each machine, which is what Forge calls a rank.
    """
    alone = max(counts) == 1
    if match := EXITED.search(output):
        how = f"exit code {int(match[2])}"
    elif match := SIGNALLED.search(output):
        how = by_signal(int(match[2]))
    else:
        return ""
    process = int(match[1])
    rank = next((n for n in range(len(counts)) if process < sum(counts[: n + 1])), process)
    return f"rank {rank} failed first: {how}{'' if alone else f' of process {process}'}\n"


def by_signal(number: int) -> str:
    """Return the words for the end of a process that a signal killed."""
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}"


def mpirun(hosts: str, agent: str) -> tuple[list[str], dict[str, str]]:
    """Return the options and variables with which this machine's mpirun starts its daemons."""
    env = {**os.environ, **as_root()}
    asked = ["mpirun", "--version"]
    version = subprocess.run(asked, env=env, stdout=subprocess.PIPE, check=False).stdout  # noqa: S603  fixed
    sys.stderr.write(strangers(version, os.environ.get("FORGE_GANG", "")))
    return (hydra if b"HYDRA" in version else open_mpi)(hosts, agent, interface())


def strangers(version: bytes, gang: str) -> str:
    """Return a warning if Open MPI will not connect two of these members; else an empty text.

    Args:
        version: what `mpirun --version` prints.
        gang: the value of `FORGE_GANG`.
    """
    number = OPEN_MPI.search(version)
    if not gang or number is None or int(number[1]) < ONE_ADDRESS_EACH:
        return ""
    ranks: dict[str, list[int]] = {}
    for peer in json.loads(gang)["members"]:
        ranks.setdefault(peer["address"], []).append(peer["rank"])
    together = next((same for same in ranks.values() if len(same) > 1), None)
    if together is None:
        return ""
    return (
        f"ranks {' and '.join(map(str, together))} have one address, and Open MPI"
        f" {number[1].decode()} connects no two hosts with one address over TCP: messages between"
        " them may wait for ever; run them on separate machines, or use MPICH or Open MPI 4\n"
    )


def hydra(hosts: str, agent: str, own: str) -> tuple[list[str], dict[str, str]]:
    """Return those of MPICH's Hydra, whose daemons stay in the foreground."""
    network = ["-iface", own] if own else []
    started = ["-launcher", "ssh", "-launcher-exec", agent, "-disable-hostname-propagation"]
    # The members have environments of their own.
    return [*started, "-genvnone", *network, "-hosts", hosts], {}


def open_mpi(hosts: str, agent: str, own: str) -> tuple[list[str], dict[str, str]]:
    """Return those of Open MPI 4 and 5."""
    parameters = {"plm": "rsh", "plm_rsh_agent": agent, "plm_rsh_no_tree_spawn": "1"}
    parameters.update({"opal_if_do_not_resolve": "1", **network(own)})
    newer = {"plm": "ssh", "plm_ssh_agent": agent, "plm_ssh_no_tree_spawn": "1"}
    # By shared memory alone: to read another process's memory is forbidden in many containers.
    parameters["btl_vader_single_copy_mechanism"] = "none"
    env = {f"OMPI_MCA_{name}": value for name, value in parameters.items()}
    env.update({f"PRTE_MCA_{name}": value for name, value in newer.items()})
    # A machine's jobs would otherwise all be bound to its first cores.
    return ["--bind-to", "none", "--map-by", "slot", "--host", hosts], env


def network(own: str) -> dict[str, str]:
    """Return Open MPI's parameters that keep it on the network that was checked."""
    return {"oob_tcp_if_include": own, "btl_tcp_if_include": own} if own else {}


def interface() -> str:
    """Return the name of the interface that was checked, or an empty text."""
    return os.environ.get("GLOO_SOCKET_IFNAME", "")


def member(rank: int) -> int:
    """Run the daemon for mpirun, and succeed with rank 0.

    If that fails, wait to be stopped: only rank 0 decides how the run ends.
    """
    daemon = Daemon()
    with suppress(EOFError, OSError):
        line = joined(rank)
        message = heard(line)
        if "command" in message:
            say(line, code=daemon.run(message["command"]))
            message = heard(line)
        if message["code"] == 0:
            return 0
    if not daemon.stopping:
        time.sleep(STOPPED_S)
    return BY_SIGNAL + daemon.stopping if daemon.stopping else 0


def agent(words: list[str]) -> int:
    """Stand in for ssh: have a member run a command, as in `[-option…] HOST COMMAND…`."""
    while words[0].startswith("-"):
        words = words[1:]
    host, *command = words
    line = authentic(socket.create_connection(place()), first=False)
    say(line, rank=int(host[len(HOST) :]), command=f" {' '.join(command)}")
    return int(heard(line)["code"])


def joined(rank: int) -> Connection:
    """Return the connection to rank 0, which begins to listen at about this time."""
    until = time.monotonic() + JOIN_S
    while True:
        try:
            line = authentic(socket.create_connection(place(), timeout=JOIN_S), first=False)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(RETRY_S)
        else:
            say(line, rank=rank)
            return line


def authentic(connected: socket.socket, *, first: bool) -> Connection:
    """Return a connection on which both sides have proved that they know the secret.

    Raises:
        AuthenticationError, EOFError, OSError: the other side has not.
    """
    connected.settimeout(None)
    line, secret = Connection(connected.detach()), os.environ[SECRET].encode()
    if first:
        deliver_challenge(line, secret)
        answer_challenge(line, secret)
    else:
        answer_challenge(line, secret)
        deliver_challenge(line, secret)
    return line


def say(line: Connection, **fields: object) -> None:
    """Send a message."""
    line.send_bytes(json.dumps(fields).encode())


def heard(line: Connection) -> dict[str, Any]:
    """Return the next message."""
    message: dict[str, Any] = json.loads(line.recv_bytes(LONGEST))
    return message


def place() -> tuple[str, int]:
    """Return where rank 0 listens."""
    return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def listening() -> socket.socket:
    """Return rank 0's socket, for both kinds of addresses where the machine has both."""
    both = socket.has_dualstack_ipv6() and ":" in place()[0]
    family = socket.AF_INET6 if both else socket.AF_INET
    return socket.create_server(place(), family=family, backlog=1024)


def without_secret() -> dict[str, str]:
    """Return this program's environment for the job's processes."""
    return {name: value for name, value in os.environ.items() if name != SECRET}


def as_root() -> dict[str, str]:
    """Return the variables without which Open MPI refuses to run as root, as containers do."""
    both = ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM")
    return {f"{maker}_{name}": "1" for maker in ("OMPI", "PRTE") for name in both}


def programs(daemon: int, ranks: Path) -> list[int]:
    """Return the job's processes: those that named themselves and descend from the daemon."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            rest = stat.read_text(errors="replace").rpartition(")")[2]
            parents[int(stat.parent.name)] = int(rest.split()[1])
    named = [int(file.name) for file in ranks.glob("[0-9]*")]
    return [pid for pid in named if below(daemon, pid, parents)]


def below(ancestor: int, pid: int, parents: dict[int, int]) -> bool:
    """Return whether a process descends from another."""
    while pid in parents and pid != ancestor:
        pid = parents[pid]
    return pid == ancestor


def main() -> None:
    """Be rank 0 (`head HOSTS COMMAND…`), another rank (`member RANK`), or take ssh's place."""
    role, *words = sys.argv[1:]
    if role == "head":
        sys.exit(head(words[0], words[1:]))
    sys.exit(member(int(words[0])) if role == "member" else agent([role, *words]))


if __name__ == "__main__":
    main()
