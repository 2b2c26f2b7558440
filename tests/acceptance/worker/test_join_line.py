"""The line of `forge worker add`, executed by sh with nothing around it."""

from __future__ import annotations

import os
import signal
import sysconfig
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from forge_functions.joining import package
from forge_schema.access.join_line import join_line
from support.workers.http_bed import http_bed
from support.workers.pasted import paste

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workers.http_bed import HttpBed

DAY = timedelta(days=1)


@pytest.fixture
def made(tmp_path: Path, database_url: str) -> Iterator[HttpBed]:
    with http_bed(tmp_path, database_url) as bed:
        yield bed


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """What the worker needs, as a package index would give it, but not Forge itself."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("forge_queue", "_forge_queue", "__editable__")):
            (folder / path.name).symlink_to(path)
    return folder


def test_a_pasted_line_makes_a_machine_a_worker(
    made: HttpBed, packages: Path, tmp_path: Path
) -> None:
    url, digest = made.servers[0].url, package().digest
    _, token = made.admin.invite("gpu-1", lasts=DAY)
    line, machine = join_line(url, token, digest), tmp_path / "machine"
    env = {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PYTHONPATH": str(packages)}
    env |= {"FORGE_ALLOW_PROCESSES": "true", "FORGE_API_KEY": "fgk_secret", "FORGE_CPUS": "2"}

    pasted = paste(line, machine, **env)
    assert pasted.returncode == 0, pasted.stderr
    assert "gpu-1 works in the background" in pasted.stdout
    pid = int((machine / "worker" / "state" / "lock").read_text())
    try:
        made.succeeds(made.submit(made.python, "-c", "print('here')"))
        settings = machine / "worker" / "worker.env"
        assert settings.stat().st_mode & 0o777 == 0o600
        assert "fgk_secret" not in settings.read_text()
        assert "FORGE_CPUS=2" in settings.read_text()
        # Neither token is in a command line; the line's own is nowhere any more.
        assert "fgj_" not in "".join(psutil.Process(pid).cmdline())
        assert "FORGE_JOIN" not in psutil.Process(pid).environ()

        again = paste(line, machine, **{**env, "FORGE_ALLOW_PROCESSES": ""})
        assert (again.returncode, f"process {pid}" in again.stdout) == (0, True), again.stderr
        elsewhere = paste(line, tmp_path / "elsewhere", **env)
        assert elsewhere.returncode == 1
        assert "used already" in elsewhere.stderr
        assert "forge worker add" in elsewhere.stderr

        upgrade = join_line(url, "", digest)
        none = paste(upgrade, tmp_path / "elsewhere", **env)
        assert (none.returncode, "there is none" in none.stderr) == (1, True), none.stderr
        # Of another version, as far as the machine knows.
        joined = machine / "worker" / "joined.json"
        joined.write_text(joined.read_text().replace(digest, "0" * 64))
        upgraded = paste(upgrade, machine, **env)
        assert (upgraded.returncode, "installing" in upgraded.stdout) == (0, True), upgraded.stderr
        old, pid = pid, int((machine / "worker" / "state" / "lock").read_text())
        assert pid != old

        # As the advice has it: a worker that is still stopping is not taken for one that works.
        os.kill(pid, signal.SIGTERM)
        anew = paste(line, machine, **env)
        assert anew.returncode == 0, anew.stderr
        old, pid = pid, int((machine / "worker" / "state" / "lock").read_text())
        assert (pid != old, f"as process {pid}" in anew.stdout) == (True, True), anew.stdout
        made.succeeds(made.submit(made.python, "-c", "print('here again')"))
    finally:
        os.kill(pid, signal.SIGTERM)
        psutil.Process(pid).wait(60)
