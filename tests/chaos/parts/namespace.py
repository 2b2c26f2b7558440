"""A network namespace for a group of workers: this machine's loopback, on a link to cut.

Connections from inside to 127.0.0.1 go to 127.0.0.1 of the machine, so its processes use the same
addresses as those outside.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = ("ip", "iptables", "nsenter")
LOCALNET = "/proc/sys/net/ipv4/conf/{}/route_localnet"
CUT = {"dropped": ("-j", "DROP"), "refused": ("-p", "tcp", "-j", "REJECT")}


class Namespace:
    """A namespace and its link; `outside` is the machine's end of the link."""

    def __init__(self) -> None:
        token = secrets.token_hex(3)
        self.name, self.outside, self.inside = f"forge-{token}", f"fg{token}o", f"fg{token}i"
        net = f"10.213.{secrets.randbelow(256)}.{4 * secrets.randbelow(64)}".rsplit(".", 1)
        base, last = net[0], int(net[1])
        self._here, self._there = f"{base}.{last + 1}", f"{base}.{last + 2}"

    @property
    def enter(self) -> list[str]:
        """The command prefix that runs a command inside."""
        return ["nsenter", f"--net=/run/netns/{self.name}"]

    def make(self) -> None:
        """Create the namespace and its link."""
        _run("ip", "netns", "add", self.name)
        cable = ("ip", "link", "add", self.outside, "type", "veth", "peer", "name", self.inside)
        _run(*cable, "netns", self.name)
        _run("ip", "addr", "add", f"{self._here}/30", "dev", self.outside)
        _run("ip", "link", "set", self.outside, "up")
        Path(LOCALNET.format(self.outside)).write_text("1", encoding="ascii")
        _run("iptables", "-w", "-t", "nat", "-A", *self._to_loopback)
        self._within("ip", "addr", "add", f"{self._there}/30", "dev", self.inside)
        for link in ("lo", self.inside):
            self._within("ip", "link", "set", link, "up")
        self._within("sh", "-c", f"echo 1 >{LOCALNET.format('all')}")
        nat = ("iptables", "-w", "-t", "nat", "-A")
        there = ("-p", "tcp", "-d", "127.0.0.1", "-j", "DNAT", "--to-destination", self._here)
        self._within(*nat, "OUTPUT", *there)
        self._within(*nat, "POSTROUTING", "-o", self.inside, "-j", "SNAT", "--to", self._there)

    @property
    def _to_loopback(self) -> tuple[str, ...]:
        where = ("PREROUTING", "-i", self.outside, "-p", "tcp", "-d", self._here)
        return (*where, "-j", "DNAT", "--to-destination", "127.0.0.1")

    def cut(self, how: str) -> None:
        """Block outgoing traffic: `dropped`, or `refused` with an error to the sender."""
        self._within("iptables", "-w", "-A", "OUTPUT", "-d", self._here, *CUT[how])

    def mend(self) -> None:
        """Let all traffic pass again."""
        self._within("iptables", "-w", "-F", "OUTPUT")

    def remove(self) -> None:
        for words in (
            ("iptables", "-w", "-t", "nat", "-D", *self._to_loopback),
            ("ip", "link", "del", self.outside),
            ("ip", "netns", "del", self.name),
        ):
            subprocess.run(words, check=False, stderr=subprocess.DEVNULL)

    def _within(self, *words: str) -> None:
        _run(*self.enter, *words)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


@contextmanager
def namespace() -> Iterator[Namespace | None]:
    """Create a namespace and remove it when the block ends; None if that is not allowed."""
    if os.geteuid() != 0 or not all(map(shutil.which, PROGRAMS)):
        yield None
        return
    made = Namespace()
    try:
        yield made if _made(made) else None
    finally:
        made.remove()


def _made(space: Namespace) -> bool:
    try:
        space.make()
    except (OSError, subprocess.CalledProcessError):
        return False
    return True
