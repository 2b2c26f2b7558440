"""Make this machine a worker: what the line of `forge worker add` runs, straight from the wheel.

It uses the standard library only, since nothing is installed yet. Each step is skipped if an
earlier paste of the line has done it.
"""

import fcntl
import grp
import hashlib
import json
import os
import pwd
import secrets
import shutil
import signal
import ssl
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

# Settings of the pasting shell that the worker keeps, as FORGE_…; no other variable is kept but
# DOCKER_HOST.
KEPT = (
    "ALLOW_PROCESSES", "CPUS", "DEFAULT_IMAGE", "GPUS", "LABELS", "MEMORY_MB", "PRICE_PER_HOUR",
    "PROFILE", "RUNNER", "SPOT", "TAGS", "TLS_CA",
)  # fmt: skip
UNITS = Path("/etc/systemd/system")
PATIENCE_S = 90.0
NOTICED_S = 4.0
AGAIN = "then paste the line again"


class CannotJoin(Exception):
    """Something is missing; the message says what to do."""


@dataclass
class WorkerPlace:
    """Where the worker is on this machine, and what earlier pastes of the line have done."""

    root: Path
    settings: Path
    state: Path
    service: bool
    done: dict[str, Any] = field(default_factory=dict)

    @property
    def program(self) -> Path:
        return self.root / "bin" / "forge-worker"

    def note(self, **done: object) -> None:
        """Remember a step."""
        self.done.update(done)
        write(self.root / "joined.json", json.dumps(self.done))


def join(url: str, wheel: bytes, authority: str) -> None:
    """Install the worker, exchange the line's token for the machine's own, and start it.

    The authority is the certificate of the server's own, which the line vouches for, or empty.
    """
    sys.excepthook = sys.__excepthook__
    try:
        _join(url, wheel, os.environ.pop("FORGE_JOIN", ""), authority)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        sys.exit(f"forge: {where}{error.strerror or error}; mend that, {AGAIN}")
    except CannotJoin as error:
        sys.exit(f"forge: {error}")
    except KeyboardInterrupt:
        sys.exit("\nforge: interrupted; paste the line again to continue")


def _join(url: str, wheel: bytes, token: str, authority: str) -> None:
    os.umask(0o022)
    place = here()
    _check(place)
    # Before the token is used up.
    for folder in (place.root, place.settings.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with (place.root / "joining.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(OSError, ValueError):
            place.done = json.loads((place.root / "joined.json").read_text(encoding="utf-8"))
        fresh = _exchange(place, url, token, authority)
        fresh = _install(place, wheel) or fresh
        _keep_settings(place, url, authority)
        if place.service:
            _service(place, wheel, fresh=fresh)
        else:
            _background(place, fresh=fresh)
        if advice := image_advice(_read(place.settings), place.settings):
            say(advice)


def here() -> WorkerPlace:
    """Return where the worker belongs: FORGE_JOIN_DIR, else the machine as root, else the home."""
    if chosen := os.environ.get("FORGE_JOIN_DIR"):
        return _in(Path(chosen).absolute())
    if os.geteuid() == 0:
        service = Path("/run/systemd/system").is_dir()
        state = Path("/var/lib/forge-worker")
        return WorkerPlace(Path("/opt/forge"), Path("/etc/forge/worker.env"), state, service)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return _in(Path(data) / "forge-worker")


def _in(root: Path) -> WorkerPlace:
    return WorkerPlace(root, root / "worker.env", root / "state", service=False)


def _check(place: WorkerPlace) -> None:
    """Check what would stop the worker, before the token is used up."""
    if find_spec("ensurepip") is None:
        minor = f"python3.{sys.version_info.minor}"
        raise CannotJoin(
            f"this Python cannot make virtual environments; install its venv module (Debian:"
            f" apt install {minor}-venv), {AGAIN}"
        )
    allowed = _allows_processes({**_read(place.settings), **_given()})
    if not allowed and not _names_engine(place):
        raise CannotJoin(
            f"there is no container engine here. Install Docker, or name the engine that there is:"
            f" export DOCKER_HOST=unix:///run/podman/podman.sock, {AGAIN}; or, if every job is"
            f" trusted, let jobs run as plain processes: export FORGE_ALLOW_PROCESSES=true, {AGAIN}"
        )


def _names_engine(place: WorkerPlace) -> bool:
    """Tell whether the worker finds an engine: by DOCKER_HOST, its Docker context or its socket."""
    if os.environ.get("DOCKER_HOST") or _read(place.settings).get("DOCKER_HOST"):
        return True
    # A service is another user, whose home has no contexts.
    return Path("/var/run/docker.sock").exists() or (not place.service and _has_context())


def _has_context() -> bool:
    if name := os.environ.get("DOCKER_CONTEXT"):
        return name != "default"
    folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    with suppress(OSError, ValueError, AttributeError):
        return json.loads((folder / "config.json").read_text()).get("currentContext") is not None
    return False


def _allows_processes(settings: Mapping[str, str]) -> bool:
    return settings.get("FORGE_ALLOW_PROCESSES", "").lower() in {"1", "true", "yes", "on"}


def image_advice(settings: Mapping[str, str], place: Path) -> str:
    """Return what to do so that jobs which name no image run here; "" if they do."""
    # A profile may name an image.
    named = settings.get("FORGE_DEFAULT_IMAGE") or settings.get("FORGE_PROFILE")
    if named or _allows_processes(settings):
        return ""
    return (
        "only jobs that name an image (--image) run here; for all others, add"
        f" FORGE_DEFAULT_IMAGE=python:3.11-slim to {place}, stop the worker, {AGAIN}"
    )


def _exchange(place: WorkerPlace, url: str, token: str, authority: str) -> bool:
    """Get the machine's own token, unless this line's was exchanged here before."""
    line = hashlib.sha256(token.encode()).hexdigest()
    done = place.done
    # The line of an upgrade has no token: each machine has its own.
    if done.get("token") and (not token or done.get("line") == line):
        return False
    if not token:
        raise CannotJoin(
            "this line upgrades a worker that is on this machine already, and there is none; to add"
            " this machine, paste the line that `forge worker add NAME` prints"
        )
    worker = token.split("_")[1:2]
    if done.get("token") and [str(done["worker"])] != worker:
        raise CannotJoin(
            f"this machine is already the worker {done['name']}; to make it another one, stop that"
            f" worker, remove {place.root / 'joined.json'}, {AGAIN}"
        )
    if done.get("line") != line:
        # Kept first: if the answer is lost, the same secret gets the same answer.
        place.note(line=line, secret=secrets.token_hex(32), token="")
    answer = _asked(url, token, place.done["secret"], authority)
    name = answer["name"]
    place.note(worker=answer["worker_id"], name=name, token=answer["token"], secret="")
    say(f"this machine is the worker {name}")
    return True


def _asked(url: str, token: str, secret: str, authority: str) -> dict[str, Any]:
    headers = {"Content-Type": "application/json", "X-Join-Token": token}
    body = json.dumps({"secret": secret}).encode()
    request = Request(f"{url}/api/v1/workers/join", body, headers, method="POST")  # noqa: S310 - an admin's line names it
    try:
        trusted = ssl.create_default_context(cadata=authority) if authority else None
        with urlopen(request, timeout=60, context=trusted) as answer:  # noqa: S310 - as above
            document: dict[str, Any] = json.load(answer)
            return document
    except HTTPError as error:
        problem = {}
        with suppress(ValueError):
            problem = json.loads(error.read())
        message = problem.get("message", f"it answers {error.code}")
        raise CannotJoin(f"{url}: {message}\n  {problem.get('hint', 'try again later')}") from error
    except (URLError, OSError, ValueError) as error:
        raise CannotJoin(f"{url} does not answer: {error}; {AGAIN}") from error


def _install(place: WorkerPlace, wheel: bytes) -> bool:
    """Install the wheel, unless it is installed already."""
    digest = hashlib.sha256(wheel).hexdigest()
    if place.done.get("wheel") == digest and place.program.exists():
        return False
    with zipfile.ZipFile(BytesIO(wheel)) as packed:
        inside = next(name for name in packed.namelist() if ".dist-info/" in name)
    stem = inside.partition(".dist-info")[0]
    file = place.root / f"{stem}-py3-none-any.whl"
    say(f"installing {stem} in {place.root}; this takes a minute")
    file.write_bytes(wheel)
    # A version under development may have been built anew.
    pip: list[str | Path] = [
        place.root / "bin" / "python",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
    ]
    steps: tuple[list[str | Path], ...] = (
        [sys.executable, "-m", "venv", place.root],
        [*pip, "install", "--force-reinstall", f"{file}[worker]"],
    )
    for step in steps:
        if subprocess.run(step, stdin=subprocess.DEVNULL, check=False).returncode != 0:  # noqa: S603 - our arguments
            raise CannotJoin(
                "the installation failed, see above. pip needs a package index: behind a proxy,"
                f" export HTTPS_PROXY, or PIP_INDEX_URL for an index of your own, {AGAIN}"
            )
    place.note(wheel=digest)
    return True


def _keep_settings(place: WorkerPlace, url: str, authority: str) -> None:
    """Write the worker's settings; those that somebody has added to the file stay."""
    own = place.settings.with_name("authority-of-server.pem")
    if authority:
        write(own, authority)
        own.chmod(0o644)  # The service has a user of its own.
        os.environ.setdefault("FORGE_TLS_CA", str(own))
    given = {**_given(), "FORGE_URL": url, "FORGE_TOKEN": str(place.done["token"])}
    settings = {**_read(place.settings), **given}
    lines = "".join(f"{name}={value}\n" for name, value in settings.items())
    write(place.settings, f"# Settings of this machine's worker, and its token.\n{lines}")


def _given() -> dict[str, str]:
    names = ("DOCKER_HOST", *(f"FORGE_{kept}" for kept in KEPT))
    given = {name: os.environ.get(name, "") for name in names}
    if not given["FORGE_TLS_CA"] and "SSL_CERT_FILE" in os.environ:
        given["FORGE_TLS_CA"] = str(Path(os.environ["SSL_CERT_FILE"]).absolute())
    return {name: value for name, value in given.items() if value and "\n" not in value}


def _read(file: Path) -> dict[str, str]:
    with suppress(OSError):
        lines = file.read_text(encoding="utf-8").splitlines()
        pairs = [line.partition("=") for line in lines if not line.startswith("#")]
        return {name: value for name, sign, value in pairs if sign}
    return {}


def _service(place: WorkerPlace, wheel: bytes, *, fresh: bool) -> None:
    """Start the worker as a systemd service, which also starts it with the machine."""
    _make_user(place)
    with zipfile.ZipFile(BytesIO(wheel)) as packed:
        for name in ("forge-worker.service", "forge-metadata.service"):
            unit = packed.read(f"forge_worker/commands/{name}").decode()
            if not _group("docker"):
                unit = unit.replace("SupplementaryGroups=docker\n", "")
            (UNITS / name).write_text(unit, encoding="utf-8")
    _run("systemctl", "daemon-reload")
    if _group("docker") and shutil.which("iptables"):
        _run("systemctl", "enable", "--now", "--quiet", "forge-metadata")
    _run("systemctl", "enable", "--quiet", "forge-worker")
    _run("systemctl", "restart" if fresh else "start", "forge-worker")
    log = "journalctl -u forge-worker"
    pid = _awaited(place, lambda: False, log)
    say(f"{place.done['name']} works as the service forge-worker, process {pid}")
    say(f"  its log: {log}; its settings: {place.settings}")
    say("  stop it: systemctl stop forge-worker; restart it: systemctl restart forge-worker")


def _make_user(place: WorkerPlace) -> None:
    with suppress(KeyError):
        pwd.getpwnam("forge")
        return
    home = str(place.state)
    _run("useradd", "--system", "--home-dir", home, "--shell", "/usr/sbin/nologin", "forge")


def _group(name: str) -> bool:
    with suppress(KeyError):
        return bool(grp.getgrnam(name))
    return False


def _run(*command: str) -> None:
    if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode != 0:  # noqa: S603 - our arguments
        raise CannotJoin(f"`{' '.join(command)}` failed, see above; repair that, {AGAIN}")


def _background(place: WorkerPlace, *, fresh: bool) -> None:
    """Start the worker in the background; it outlives the session that started it."""
    log = place.state / "worker.log"
    running = _running(place)
    if running and fresh:
        # Its jobs go on, and the next worker adopts them.
        os.kill(running, signal.SIGUSR2)
        _until(lambda: not _running(place), f"the worker of before does not end; see {log}")
        running = 0
    elif running and _stops(place, running):
        say(f"the worker of before, process {running}, is stopping; waiting for its end")
        _until(
            lambda: not _running(place),
            f"the worker of before, process {running}, is stopping, but still has jobs; wait for"
            f" its end (`tail {log}`), {AGAIN}",
        )
        running = 0
    if not running:
        child = _started(place, log)
        running = _awaited(place, lambda: child.poll() is not None, f"tail {log}")
    say(f"{place.done['name']} works in the background, as process {running}")
    say(f"  its log: {log}; its settings: {place.settings}")
    say(f"  stop it: kill {running}; restart it: stop it, {AGAIN}")
    say(
        "  it does not start again with the machine; where systemd runs, a line pasted as root does"
    )


def _stops(place: WorkerPlace, running: int) -> bool:
    """Tell whether a worker is leaving; one that was just told to says so within a second or two.

    A pasted line may follow right after `kill`, as the advice has it.
    """
    late = time.monotonic() + NOTICED_S
    while time.monotonic() < late:
        if _running(place) != running:
            return True
        state = _state(place)
        if state.get("pid") == running and state.get("leaving"):
            return True
        time.sleep(0.2)
    return False


def _state(place: WorkerPlace) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        state = json.loads((place.state / "state.json").read_text(encoding="utf-8"))
        return state if isinstance(state, dict) else {}
    return {}


def _started(place: WorkerPlace, log: Path) -> "subprocess.Popen[bytes]":
    place.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FORGE_")}
    own = {**_read(place.settings), "FORGE_WORKER_DIR": str(place.state)}
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - our program
            [place.program],
            cwd=place.state,
            env={**kept, **own},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _running(place: WorkerPlace) -> int:
    """Return the process id of the worker in the folder, as `worker_folder.holder`; 0 for none."""
    with suppress(FileNotFoundError), (place.state / "lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(lock.read() or 0)
    return 0


def _awaited(place: WorkerPlace, ended: Callable[[], bool], log: str) -> int:
    """Wait until the started worker has registered, and return its process id."""

    def registered() -> bool:
        if ended():
            raise CannotJoin(f"the worker has ended again; its log says why: {log}")
        pid = _running(place)
        return bool(pid) and _state(place).get("pid") == pid

    _until(registered, f"the worker has not reached the queue yet; its log says why: {log}")
    return _running(place)


def _until(happened: Callable[[], bool], otherwise: str) -> None:
    late = time.monotonic() + PATIENCE_S
    while not happened():
        if time.monotonic() > late:
            raise CannotJoin(otherwise)
        time.sleep(0.2)


def write(file: Path, text: str) -> None:
    """Write a file atomically, readable only by this user."""
    beside = file.with_name(f".{file.name}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())
    beside.replace(file)


def say(text: str) -> None:
    """Print one line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
