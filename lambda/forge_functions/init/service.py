"""How the server, the sweeper and the nightly backup run: as services, or in the background."""

import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from forge_schema.model.errors import ForgeError

from forge_functions.init.answers import Answers, read

UNITS = Path("/etc/systemd/system")
FILES = ("forge-server.service", "forge-sweeper.service")
BACKUP = ("forge-backup.service", "forge-backup.timer")
USER = "forge"
BACKUPS = Path("/var/backups/forge")
# As the units have it, for which another place is put in.
PREFIX = "/opt/forge"
PROGRAMS = ("forge-server", "forge-sweeper")
LOOPBACK, HEALTH_PORT = "127.0.0.1", "8901"
# Where each listens.
LISTENS = {
    "forge-server": ("FORGE_HOST", "FORGE_PORT"),
    "forge-sweeper": ("FORGE_HEALTH_HOST", "FORGE_HEALTH_PORT"),
}
START_S, LOOK_S = 30.0, 0.2


class NotUp(ForgeError):
    """What was started does not answer."""


def with_systemd(answers: Answers, *, changed: bool) -> list[str]:
    """Have systemd run all three, and restart what runs with older settings; say what was done."""
    for program in PROGRAMS:
        if not _is_up(answers, program):
            _require_free(answers, program)
    lines = []
    BACKUPS.mkdir(mode=0o700, parents=True, exist_ok=True)
    _give(BACKUPS, USER)
    units = [name for name in (*FILES, *BACKUP) if _write_unit(name)]
    if units:
        _systemctl("daemon-reload")
        lines.append(f"installed {', '.join(units)}")
    started = [*FILES, BACKUP[1]]
    _systemctl("enable", "--quiet", *started)
    _systemctl("restart" if changed or units else "start", *started)
    return lines


def let_read(*paths: Path) -> None:
    """Let the service's user read files that root has written."""
    for path in paths:
        _give(path, "root")


def make_user() -> None:
    """Make the service's user, unless there is one."""
    with suppress(KeyError):
        pwd.getpwnam(USER)
        return
    shell = "/usr/sbin/nologin"
    words = ["useradd", "--system", "--home-dir", "/nonexistent", "--shell", shell, USER]
    subprocess.run(words, check=True)  # noqa: S603 - fixed words


def in_background(answers: Answers, *, changed: bool) -> list[str]:
    """Start server and sweeper as processes of this user, unless they run with these settings."""
    lines = []
    logs = answers.state / "logs"
    logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    for program in PROGRAMS:
        file = answers.state / f"{program}.pid"
        pid = running(file, program)
        if pid and not changed:
            continue
        if pid:
            _end(pid)
        _require_free(answers, program)
        env = {**_plain(os.environ), **read(_settings_of(answers, program))}
        with (logs / f"{program}.log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own program
                [Path(sys.prefix) / "bin" / program],
                env=env,
                cwd=answers.state,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        file.write_text(str(process.pid), encoding="utf-8")
        lines.append(f"started {program}, process {process.pid}; its log is in {logs}")
    return lines


def running(file: Path, program: str) -> int | None:
    """Return the process that a file names, if it still is that program."""
    with suppress(OSError, ValueError):
        pid = int(file.read_text(encoding="utf-8"))
        if program.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    return None


def _lives(file: Path) -> bool:
    """Tell whether the process that a file names is there; while it loads, it has no name yet."""
    with suppress(OSError):
        pid = int(file.read_text(encoding="utf-8"))
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
        return state.split()[0] not in {"Z", "X"}
    return False


def await_answer(answers: Answers) -> None:
    """Wait until the server listens, with its sweeper beside it.

    Raises:
        NotUp: one of them ended, or the server does not listen within half a minute.
    """
    port = int(answers.settings["FORGE_PORT"])
    for _ in range(int(START_S / LOOK_S)):
        _require_both(answers)
        with suppress(OSError), socket.create_connection((LOOPBACK, port), 1):
            return
        time.sleep(LOOK_S)
    raise NotUp(f"the server does not listen on port {port}", hint=_log_of(answers, PROGRAMS[0]))


def _require_free(answers: Answers, program: str) -> None:
    """Check that a program that is to start can listen; another would answer in its place."""
    env = read(_settings_of(answers, program))
    host, port = (env.get(name) for name in LISTENS[program])
    host, port = host or LOOPBACK, port or HEALTH_PORT
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, int(port)), family=family).close()
    except OSError as error:
        raise NotUp(
            f"{program} cannot listen on port {port} of {host}: {error.strerror}",
            hint=f"change {LISTENS[program][1]} in {_settings_of(answers, program)}, and run this"
            " again",
        ) from error


def _settings_of(answers: Answers, program: str) -> Path:
    return answers.etc / f"{program.removeprefix('forge-')}.env"


def _require_both(answers: Answers) -> None:
    for program in PROGRAMS:
        if _is_up(answers, program):
            continue
        file = _settings_of(answers, program)
        where = f"; its settings are in {file}: correct them there, and run this again"
        raise NotUp(f"{program} ended at once", hint=_log_of(answers, program) + where)


def _is_up(answers: Answers, program: str) -> bool:
    if not answers.systemd:
        return _lives(answers.state / f"{program}.pid")
    words = ["systemctl", "is-active", "--quiet", f"{program}.service"]
    return subprocess.run(words, check=False).returncode == 0  # noqa: S603 - fixed words


def _log_of(answers: Answers, program: str) -> str:
    """Return the last line that a program logged, or where to find it."""
    if answers.systemd:
        return f"`journalctl -u {program}` has the reason"
    log = answers.state / "logs" / f"{program}.log"
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return f"{log} says: {next((line for line in reversed(lines) if line.strip()), 'nothing')}"


def _end(pid: int) -> None:
    """End a process, which has 45 seconds for what it has begun."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        os.kill(pid, signal.SIGTERM)
        select.select([descriptor], [], [], 45)
        os.close(descriptor)


def _plain(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: it for name, it in environment.items() if not name.startswith("FORGE_")}


def _give(path: Path, owner: str) -> None:
    shutil.chown(path, owner, USER)


def _write_unit(name: str) -> bool:
    text = (Path(__file__).parent / name).read_text(encoding="utf-8").replace(PREFIX, sys.prefix)
    path = UNITS / name
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.write_text(text, encoding="utf-8")
    return True


def _systemctl(*words: str) -> None:
    subprocess.run(["systemctl", *words], check=True)  # noqa: S603, S607 - fixed words
