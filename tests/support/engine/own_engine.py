"""A Docker engine of the test's own, which can be killed and restarted any number of times.

It has its own network namespace, since an engine takes over the bridges that it finds.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import psutil
from support.engine.images import BASE_IMAGE
from support.services import require
from support.waiting import eventually
from support.workers.runners import require_docker

if TYPE_CHECKING:
    from collections.abc import Iterator

IMAGE = "forge-test-small:latest"
# A shell and little more: an engine takes ten seconds to load the tests' own image.
PROGRAMS = "/bin/sh /bin/sleep /bin/true"
PACKS = f"tar -chf - {PROGRAMS} $(ldd {PROGRAMS} | grep -o '/lib[^ ]*' | sort -u) 2>/dev/null"
FILL = 'docker run --rm --network none "$3" sh -c "$1" | docker -H "$2" import - "$4"'
CONFIG = 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
END_S = 60
# Seen with 26.1.5 and containerd 1.7; 20.10 knows.
FORGETS = 26


class OwnEngine:
    """All its files are in `root`; `live_restore` keeps containers running without the engine."""

    name = "engine"

    def __init__(self, root: Path, *, live_restore: bool) -> None:
        self.url = f"unix://{root}/s"
        self._root = root
        self.live_restore = live_restore
        self._log: IO[bytes] = (root / "log").open("wb")
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start the engine, and wait until it answers."""
        root = self._root
        (root / "config.toml").write_text(CONFIG)
        address = root / "c"
        places = ["--root", root / "images", "--state", root / "tasks", "--address", address]
        self._run("containerd", "--config", root / "config.toml", *places)
        eventually(address.exists)
        own = ["--data-root", root / "data", "--exec-root", root / "exec", "-p", root / "pid"]
        flags = ["--bridge", "none", "--iptables=false", "--ip-forward=false", "--ip-masq=false"]
        keeps = f"--live-restore={str(self.live_restore).lower()}"
        engine = ["dockerd", "-H", self.url, "--containerd", address, *own, *flags, keeps]
        self._run("unshare", "--net", *engine)
        eventually(lambda: self.docker("version").returncode == 0)

    def kill(self) -> None:
        """Kill the engine as a crash would; its containers stay."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        self._processes.clear()
        (self._root / "c").unlink(missing_ok=True)

    def stop(self) -> None:
        """Stop the engine in order; without `live_restore`, its containers end too."""
        if self._processes:
            self._processes[-1].send_signal(signal.SIGTERM)
            self._processes[-1].wait(END_S)
        self.kill()

    def forgets(self) -> bool:
        """Tell whether a restarted engine does not know how a container ended meanwhile."""
        version = self.docker("version", "--format", "{{.Server.Version}}").stdout
        return int(version.partition(".")[0]) >= FORGETS

    def docker(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a docker command on the engine."""
        command = ["docker", "-H", self.url, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def containers(self) -> list[str]:
        """Return the names of all its containers, running or not."""
        return self.docker("ps", "-a", "--format", "{{.Names}}").stdout.split()

    def running(self) -> list[str]:
        """Return the names of its containers that run."""
        return self.docker("ps", "--format", "{{.Names}}").stdout.split()

    def main_process(self, name: str) -> int:
        """Return the process id, on this machine, of a container's first process."""
        return int(self.docker("inspect", name, "--format", "{{.State.Pid}}").stdout)

    def mounts(self) -> list[str]:
        """Return the mounts that containers use."""
        mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        return [place for place in mounted if place.startswith(f"{self._root}/data/")]

    def close(self) -> None:
        """Stop the engine and remove everything it created."""
        if self._processes:
            for name in self.containers():
                self.docker("rm", "-f", name)
        self.stop()
        self._log.close()
        for process in psutil.process_iter(["cmdline"]):
            if any(str(self._root) in word for word in process.info["cmdline"] or []):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if (place := line.split()[1]).startswith(str(self._root)):
                subprocess.run(["umount", "-l", place], check=False)
        shutil.rmtree(self._root, ignore_errors=True)

    def _run(self, *words: object) -> None:
        command = list(map(str, words))
        process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        self._processes.append(process)


class OwnPodman(OwnEngine):
    """Podman's service, spoken to as Docker is; its containers never end with it."""

    name = "podman"

    def start(self) -> None:
        """Start the service, and wait until it answers."""
        places = ["--root", self._root / "data", "--runroot", self._root / "run"]
        self._run("podman", *places, "system", "service", "--time=0", self.url)
        eventually(lambda: self.docker("version").returncode == 0)


@contextmanager
def own_engine(*, live_restore: bool) -> Iterator[OwnEngine]:
    """Start an engine that has a small image; remove all of it at the end."""
    require_docker()
    require(os.geteuid() == 0 and shutil.which("dockerd"), "root, and dockerd")
    # Not below pytest's folder: a socket's path must be short.
    engine = OwnEngine(Path(tempfile.mkdtemp(prefix="forge-e-")), live_restore=live_restore)
    try:
        engine.start()
        subprocess.run(
            ["sh", "-c", FILL, "sh", PACKS, engine.url, BASE_IMAGE, IMAGE],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        yield engine
    finally:
        engine.close()
