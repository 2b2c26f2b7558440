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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from forge_schema.model.errors import ForgeError

from forge_functions.init.answers import Answers, read
from forge_functions.init.authority import CHAIN, KEY, OF_AUTHORITY, write

UNITS = Path("/etc/systemd/system")
FILES = ("forge-server.service", "forge-sweeper.service")
BACKUP = ("forge-backup.service", "forge-backup.timer")
USER = "forge"
BACKUPS = Path("/var/backups/forge")
# As the units have it, for which another place is put in.
PREFIX = "/opt/forge"
PROGRAMS = SERVER, SWEEPER = ("forge-server", "forge-sweeper")
# The file of settings of each.
OF = {SERVER: "server.env", SWEEPER: "sweeper.env"}
LOOPBACK, HEALTH_PORT = "127.0.0.1", "8901"
# Where each listens.
LISTENS = {
    SERVER: ("FORGE_HOST", "FORGE_PORT"),
    SWEEPER: ("FORGE_HEALTH_HOST", "FORGE_HEALTH_PORT"),
}
# What listens everywhere is reached here.
EVERYWHERE = {"0.0.0.0": LOOPBACK, "::": "::1"}  # noqa: S104 - to compare
START_S, LOOK_S = 30.0, 0.2
# Which of the words of `_status` is when a process began.
BEGUN = 19


class NotUp(ForgeError):
    """What was started does not answer."""


def with_systemd(*, changed: bool) -> list[str]:
    """Have systemd run all three, and restart what runs with older settings; say what was done."""
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
    for program in PROGRAMS:
        pid = running(answers.state / f"{program}.pid", program)
        if pid and not changed:
            continue
        if pid:
            _end(pid)
        pid = _start(answers, program)
        lines.append(f"started {program}, process {pid}; its log is in {answers.state / 'logs'}")
    return lines


def stop(answers: Answers) -> list[str]:
    """Stop what runs, the sweeper last, and return the names of those that ran.

    Raises:
        NotUp: one has not ended when it had to.
    """
    ran = [name for name in PROGRAMS if process_of(answers, name)]
    for program in ran:
        if answers.systemd:
            _systemctl("stop", f"{program}.service")
        elif pid := process_of(answers, program):
            _end(pid)
        if pid := process_of(answers, program):
            raise NotUp(f"{program} has not ended", hint=f"`kill -9 {pid}` ends it")
    return ran


def _start(answers: Answers, program: str) -> int:
    env = {**plain(os.environ), **read(_settings_of(answers, program))}
    logs = answers.state / "logs"
    logs.mkdir(mode=0o700, parents=True, exist_ok=True)
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
    recorded = f"{process.pid} {_status(process.pid)[BEGUN]}\n"
    (answers.state / f"{program}.pid").write_text(recorded, encoding="utf-8")
    return process.pid


def running(file: Path, program: str) -> int | None:
    """Return the process that a file names, if it still is that program."""
    pid = _living(file)
    with suppress(OSError):
        if pid and program.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    return None


def _living(file: Path) -> int | None:
    """Return the process that a file names if it is there; while it loads, it has no name yet."""
    with suppress(OSError, ValueError):
        pid, begun = file.read_text(encoding="utf-8").split()
        status = _status(int(pid))
        # After a reboot, another program may have its number, even another lab's server.
        if status[BEGUN] == begun and status[0] not in {"Z", "X"}:
            return int(pid)
    return None


def _status(pid: int) -> list[str]:
    """Return the words of `/proc/PID/stat` after the name; `OSError` without a process."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def await_answer(answers: Answers) -> None:
    """Wait until the server and its sweeper listen.

    Raises:
        NotUp: one of them ended, or does not listen within half a minute.
    """
    for _ in range(int(START_S / LOOK_S)):
        _require_both(answers)
        silent = next((name for name in PROGRAMS if not _listens(answers, name)), None)
        if silent is None:
            return
        time.sleep(LOOK_S)
    raise NotUp(f"{silent} does not listen", hint=_log_of(answers, silent or SERVER))


def _listens(answers: Answers, program: str) -> bool:
    host, port = _place(read(_settings_of(answers, program)), program)
    with suppress(OSError):
        # Port 0 is any: nobody can tell which.
        if port:
            socket.create_connection((EVERYWHERE.get(host, host), port), 1).close()
        return True
    return False


def _place(env: Mapping[str, str], program: str) -> tuple[str, int]:
    host, port = (env.get(name) for name in LISTENS[program])
    return host or LOOPBACK, int(port or HEALTH_PORT)


def with_a_port(
    answers: Answers, sweeper: dict[str, str], server: Mapping[str, str]
) -> dict[str, str]:
    """Return the sweeper's settings with a port of its own, if another one has the usual one."""
    name = LISTENS[SWEEPER][1]
    if name in sweeper:
        return sweeper
    if server["FORGE_PORT"] != HEALTH_PORT and (
        _is_up(answers, SWEEPER) or not _refusal(*_place(sweeper, SWEEPER))
    ):
        return sweeper
    with socket.create_server((LOOPBACK, 0)) as free:
        return {**sweeper, name: str(free.getsockname()[1])}


def require_free(answers: Answers, settings: Mapping[str, Mapping[str, str]]) -> None:
    """Check that each can listen where it is to, and does not yet.

    Raises:
        NotUp: another program would answer in the place of one.
    """
    places = {name: _place(settings[name], name) for name in PROGRAMS}
    for program, (host, port) in places.items():
        now = _place(read(_settings_of(answers, program)), program)[1]
        # Where it listens itself, only whether the address is this machine's can be tried.
        its_own = _is_up(answers, program) and now == port
        same = program == SWEEPER and port and port == places[SERVER][1]
        if why := "the server is to have it" if same else _refusal(host, 0 if its_own else port):
            raise NotUp(
                f"{program} cannot listen on port {port} of {host}: {why}",
                hint=f"choose another with {_choice(answers, program)}, and run this again",
            )


def _choice(answers: Answers, program: str) -> str:
    if program == SERVER:
        return "--port or --host"
    return f"{LISTENS[program][1]} in {_settings_of(answers, program)}"


def _refusal(host: str, port: int) -> str:
    """Return why nobody can listen there, or ""."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        # Python adds the address in brackets.
        return str(error.strerror or error).partition(" (")[0]
    return ""


@contextmanager
def undone(answers: Answers, say: Callable[[str], None]) -> Iterator[None]:
    """Have all files as they were, and what ran running again, if what is done within fails."""
    files = [answers.etc / name for name in (*OF.values(), CHAIN, KEY, *OF_AUTHORITY)]
    former = [(file, file.read_bytes(), file.stat()) for file in files if file.exists()]
    ran = {name: process_of(answers, name) for name in PROGRAMS}
    try:
        yield
    except BaseException:
        for file in files:
            file.unlink(missing_ok=True)
        for file, data, status in former:
            write(file, data, status.st_mode & 0o777)
            os.chown(file, status.st_uid, status.st_gid)
        for name, process in ran.items():
            _put_back(answers, name, process)
        again = " and ".join(name for name in PROGRAMS if ran[name])
        say("put back what was there" + (f": {again} run as before" if again else ""))
        raise


def _put_back(answers: Answers, program: str, former: int | None) -> None:
    """Have a program that ran run with the settings that it had, and no other."""
    now = process_of(answers, program)
    if now == former:
        return
    if answers.systemd:
        _systemctl("restart" if former else "stop", f"{program}.service")
        return
    if now:
        _end(now)
    if former:
        _start(answers, program)


def process_of(answers: Answers, program: str) -> int | None:
    """Return the process of a program that runs."""
    if not answers.systemd:
        return running(answers.state / f"{program}.pid", program)
    words = ["systemctl", "show", "--property", "MainPID", "--value", f"{program}.service"]
    shown = subprocess.run(words, check=False, capture_output=True, text=True)  # noqa: S603
    return int(shown.stdout) if shown.stdout.strip().isdecimal() and int(shown.stdout) else None


def _settings_of(answers: Answers, program: str) -> Path:
    return answers.etc / OF[program]


def _require_both(answers: Answers) -> None:
    for program in PROGRAMS:
        if _is_up(answers, program):
            continue
        file = _settings_of(answers, program)
        where = f"; its settings are those of this line and {file}: correct them, and run it again"
        raise NotUp(f"{program} ended at once", hint=_log_of(answers, program) + where)


def _is_up(answers: Answers, program: str) -> bool:
    if not answers.systemd:
        return _living(answers.state / f"{program}.pid") is not None
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


def plain(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables of Forge's own programs."""
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
