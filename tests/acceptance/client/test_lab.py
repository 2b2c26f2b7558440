"""A lab of six machines: the page is typed on network namespaces, which reach only each other."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from support.client.typed import answers, sessions
from support.services import require

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[3] / "docs" / "start" / "lab.md"
ADDRESSES = {"forge": "10.87.31.1", "gpu-1": "10.87.31.2", "desk": "10.87.31.3"}
# As a machine's own sshd would: a shell there, in the home of its user.
SSH = """#!/bin/sh
name=$1; shift; [ "$1" = sh ] && set -- || set -- -c "$*"
cd {root}/$name && exec ip netns exec {prefix}-$name env -i {around} HOME={root}/$name \\
  XDG_STATE_HOME={root}/$name/state FORGE_JOIN_DIR={root}/$name/worker sh "$@"
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextmanager
def network(prefix: str) -> Iterator[None]:
    """Connect a namespace for each machine by a bridge in the server's."""
    with ExitStack() as made:
        for name in ADDRESSES:
            ip("netns", "add", f"{prefix}-{name}")
            made.callback(ip, "netns", "del", f"{prefix}-{name}")
        inside = ("-n", f"{prefix}-forge")
        ip(*inside, "link", "add", "lan", "type", "bridge")
        ip(*inside, "addr", "add", f"{ADDRESSES['forge']}/24", "dev", "lan")
        for name in ("gpu-1", "desk"):
            own = ("-n", f"{prefix}-{name}")
            ip(*own, "link", "add", "eth", "type", "veth", "peer", "name", name)
            ip(*own, "link", "set", name, "netns", f"{prefix}-forge")
            ip(*own, "addr", "add", f"{ADDRESSES[name]}/24", "dev", "eth")
            ip(*own, "link", "set", "eth", "up")
            ip(*own, "link", "set", "lo", "up")
            ip(*inside, "link", "set", name, "master", "lan", "up")
        for device in ("lan", "lo"):
            ip(*inside, "link", "set", device, "up")
        yield


def machines(root: Path, prefix: str) -> Path:
    """Make each machine's home, and return the folder of a program that reaches them."""
    packages = root / "packages"
    for folder in ("bin", "packages", *ADDRESSES):
        (root / folder).mkdir()
    # What the worker needs, as a package index would give it, but not Forge itself.
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("forge_queue", "_forge_queue", "__editable__")):
            (packages / path.name).symlink_to(path)
    around = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin", "LOGNAME": "ann",
        "PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PYTHONPATH": packages,
        "FORGE_ALLOW_PROCESSES": "true", "FORGE_CPUS": "2",
    }  # fmt: skip
    words = " ".join(f"{name}={value}" for name, value in around.items())
    ssh = root / "bin" / "ssh"
    ssh.write_text(SSH.format(root=root, prefix=prefix, around=words))
    ssh.chmod(0o755)
    return ssh.parent


def end_what_runs(root: Path) -> None:
    files = [*root.glob("forge/lab/state/*.pid"), *root.glob("*/worker/state/lock")]
    for pid in [int((file.read_text().split() or ["0"])[0]) for file in files]:
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            process = psutil.Process(pid)
            os.kill(pid, signal.SIGTERM)
            process.wait(60)


def test_the_page_makes_a_service_of_bare_machines(
    empty_database_url: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    require(os.geteuid() == 0 and shutil.which("ip"), "root, for network namespaces")
    page = PAGE.read_text("utf-8").replace("forge.lab", ADDRESSES["forge"])
    typed, prefix = list(sessions(page)), f"forge-{os.getpid()}"
    with network(prefix):
        programs = machines(tmp_path, prefix)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FORGE_")}
        path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        home = {"HOME": str(tmp_path / "forge"), "XDG_STATE_HOME": str(tmp_path / "forge" / "xdg")}
        env = {**kept, **home, "PATH": path, "DATABASE": empty_database_url}
        shell = ["ip", "netns", "exec", f"{prefix}-forge", "bash"]
        try:
            seen = list(answers(typed, tmp_path / "forge", env, shell))
        finally:
            end_what_runs(tmp_path)
    assert len(seen) == len(typed) > 10
    for one, (output, code) in zip(typed, seen, strict=True):
        with subtests.test(one.command.partition("\n")[0]):
            assert code == one.exit_code, output
            assert re.fullmatch(one.pattern(), output), output
