"""What `forge up` refuses before it changes anything, and which signals stop it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from forge_client.errors import ClientError
from forge_client.tunnel import LOOPBACK, forwarded
from forge_client.up.child_process import StopSignals
from forge_client.up.children import UpServer
from forge_client.up.detached import HOST, UpOptions, await_up, detached, holder, locked, stop
from forge_client.up.folder_access import STORE
from forge_client.up.up import up

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BEGIN = """
import os, sys
from pathlib import Path
from forge_client.up.detached import holder, locked
folder = Path(sys.argv[1])
"""
HOLD = "with locked(folder): print('held', flush=True); sys.stdin.read()"
LEAVE_A_CHILD = """
with locked(folder):
    if os.fork():
        os._exit(0)
    print("held", flush=True)
    sys.stdin.read()
"""
LOOK = """
print("looks", flush=True)
while True:
    holder(folder)
"""


@contextmanager
def process(code: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run code about a folder in another process until the block ends."""
    command = [sys.executable, "-c", BEGIN + code, str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as running:
        assert running.stdout
        assert running.stdout.readline()
        yield running
        running.kill()


def test_a_port_that_somebody_answers_on_is_not_taken_for_its_own(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ClientError, match=f"port {port}") as caught:
            UpServer(tmp_path, port=port, say=print)
    assert "--port" in caught.value.hint
    assert UpServer(tmp_path, port=port, say=print).url.endswith(str(port))


def test_one_that_runs_keeps_its_log(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "up.log"
    log.parent.mkdir()
    log.write_text("all is well")
    (tmp_path / STORE).mkdir()
    # As Postgres's user was let in.
    tmp_path.chmod(0o710)
    with process(HOLD, tmp_path) as other:
        assert holder(tmp_path) == other.pid
        with pytest.raises(ClientError, match="already running"):
            up(UpOptions(tmp_path), print, print)
        assert tmp_path.stat().st_mode & 0o777 == 0o710
        with pytest.raises(
            ClientError, match=f"already running in .*, process {other.pid}"
        ) as caught:
            detached(UpOptions(tmp_path))
        with (
            pytest.raises(ClientError, match=f"already running in .*, process {other.pid}"),
            locked(tmp_path),
        ):
            pass
    assert "forge down" in caught.value.hint
    assert log.read_text() == "all is well"
    assert holder(tmp_path) is None


def test_looking_for_a_running_one_keeps_no_other_from_starting(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    with process(LOOK, tmp_path):
        for _ in range(500):
            with locked(tmp_path):
                pass


def test_a_child_that_outlives_it_does_not_hold_the_folder(tmp_path: Path) -> None:
    with process(LEAVE_A_CHILD, tmp_path) as parent:
        parent.wait(60)
        assert holder(tmp_path) is None


def test_where_none_runs_there_is_nothing_to_stop(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="no `forge up` is running"):
        stop(tmp_path, drain=False)
    assert list(tmp_path.iterdir()) == []


def test_a_ctrl_c_before_it_is_up_stops_what_nobody_was_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", Mock(side_effect=KeyboardInterrupt))
    with process(LOOK, tmp_path) as begun:
        with pytest.raises(KeyboardInterrupt):
            await_up(UpOptions(tmp_path), begun.pid)
        assert begun.wait() == -signal.SIGTERM


@pytest.mark.parametrize("character", ["$", '"', "`", "\\"])
def test_a_folder_that_postgres_cannot_run_in_is_refused(tmp_path: Path, character: str) -> None:
    folder = tmp_path / f"a{character}b"
    with pytest.raises(ClientError, match="Postgres cannot run") as caught:
        detached(UpOptions(folder))
    assert character in caught.value.message
    assert "--dir" in caught.value.hint
    assert not folder.exists()


def test_a_user_without_a_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that is started with any id."""
    monkeypatch.setattr("pwd.getpwuid", Mock(side_effect=KeyError))
    with pytest.raises(ClientError, match="/etc/passwd has none for"):
        detached(UpOptions(tmp_path / "up"))


@pytest.mark.parametrize(("before", "urgency"), [(signal.SIG_IGN, 0), (signal.SIG_DFL, 2)])
def test_a_hang_up_stops_it_unless_it_runs_under_nohup(
    before: signal.Handlers, urgency: int
) -> None:
    restored = signal.signal(signal.SIGHUP, before)
    try:
        with StopSignals() as asked:
            os.kill(os.getpid(), signal.SIGHUP)
            assert asked.urgency == urgency
    finally:
        signal.signal(signal.SIGHUP, restored)


def test_a_port_that_is_the_jobs_own_is_told() -> None:
    with socket.create_server((LOOPBACK, 0)) as job:
        port = job.getsockname()[1]
        with pytest.raises(ClientError) as refused, forwarded(Mock(), 1, {port: port}):
            pass
    assert f"{LOOPBACK}:{port} is the job" in refused.value.hint
