"""The files in which a running `forge up` tells other commands how to reach it.

Of several, commands use the latest unless told otherwise. They say so while several run, and once
after the latest has stopped and another took its place.
"""

import hashlib
import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from forge_schema.model.quantities import names_text

from forge_client import default_paths
from forge_client.errors import ClientError

FILE = "connection.json"
SHOWN = 5
# How long a command waits for workers to load, and between two looks.
LOADING_S, LOOK_S = 30.0, 0.02


@dataclass(frozen=True)
class Running:
    """A `forge up`: its folder, its process, its addresses, and the token for its server.

    `loading` means that its workers are not there yet, and that its server lets callers wait.
    `trouble` is why one of them did not come.
    """

    dir: Path
    pid: int
    database_url: str
    store_url: str
    version: str
    url: str = ""
    token: str = field(default="", repr=False)
    loading: bool = False
    trouble: str = ""

    def announce(self) -> None:
        """Write the file, and make this the latest `forge up`."""
        self.write()
        default_paths.ups().mkdir(parents=True, exist_ok=True)
        document = {"dir": str(self.dir), "at": time.time_ns()}
        default_paths.write_privately(_listed(self.dir), json.dumps(document))
        default_paths.write_privately(default_paths.pointer(), json.dumps({"dir": str(self.dir)}))

    def loaded(self, trouble: str) -> None:
        """Say in the file that everything is there, or why a worker is not."""
        replace(self, loading=False, trouble=trouble).write()

    def write(self) -> None:
        """Write the file, readable only by this user."""
        document = {**asdict(self), "dir": str(self.dir)}
        default_paths.write_privately(self.dir / FILE, json.dumps(document, indent=2))

    def withdraw(self) -> None:
        """Remove the file; if this is the latest, the one that started before takes its place."""
        (self.dir / FILE).unlink(missing_ok=True)
        _listed(self.dir).unlink(missing_ok=True)
        if _dir_in(default_paths.pointer()) != self.dir:
            return
        if others := all_running():
            document = {"dir": str(others[0].dir), "before": str(self.dir)}
            default_paths.write_privately(default_paths.pointer(), json.dumps(document))
        else:
            default_paths.pointer().unlink(missing_ok=True)


def find(folder: Path | None = None) -> Running:
    """Return the `forge up` of a folder; without a folder, this user's latest.

    Raises:
        ClientError: none is running there.
    """
    folder = latest_dir() if folder is None else folder.absolute()
    try:
        return read(folder)
    except (OSError, ValueError) as error:
        raise ClientError(
            f"no `forge up` is running in {folder}, and no server or database is named",
            hint=_what_to_name(),
            code="not_running",
        ) from error


def is_there() -> bool:
    """Tell whether `find` finds one."""
    with suppress(OSError, ValueError):
        read(latest_dir())
        return True
    return False


def _what_to_name() -> str:
    # Only where nothing is found.
    from forge_client.http import logins  # noqa: PLC0415

    if servers := logins.servers():
        return f"set FORGE_URL to a server that you are logged in to: {' or '.join(servers)}"
    return (
        "start `forge up` in another terminal, or set FORGE_URL and FORGE_API_KEY, or"
        " FORGE_DATABASE_URL and FORGE_STORE_URL"
    )


def find_loaded(folder: Path | None = None) -> Running:
    """Return what `find` does, once the workers are there if it has only begun.

    Raises:
        ClientError: none is running there.
    """
    deadline = time.monotonic() + LOADING_S
    up = find(folder)
    while up.loading and _lives(up) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
        up = find(folder)
    return up


def read(folder: Path) -> Running:
    """Return what the file of a folder says.

    Raises:
        OSError: it cannot be read.
        ValueError: it says something else.
    """
    document = json.loads((folder / FILE).read_text(encoding="utf-8"))
    try:
        known = {
            each.name: document[each.name] for each in fields(Running) if each.name in document
        }
        return Running(**{**known, "dir": Path(known["dir"]), "pid": int(known["pid"])})
    except (KeyError, TypeError) as error:
        raise ValueError(f"{FILE} of {folder} is something else") from error


def latest_dir() -> Path:
    """Return the folder of this user's latest running `forge up`, or the default folder."""
    return _dir_in(default_paths.pointer()) or default_paths.default_dir()


def all_running() -> list[Running]:
    """Return this user's running `forge up`s, the latest first."""
    with suppress(OSError):
        files = sorted(default_paths.ups().iterdir(), key=_begun, reverse=True)
        folders = [folder for file in files if (folder := _dir_in(file))]
        return [up for folder in folders if (up := _alive(folder))]
    return []


def _begun(file: Path) -> int:
    at = _told_in(file).get("at")
    return at if isinstance(at, int) else 0


def note() -> str:
    """Return which one commands use if several run, or if that has changed lately; else ""."""
    used = latest_dir()
    if others := [str(other.dir) for other in all_running() if other.dir != used]:
        also = "another runs" if len(others) == 1 else "others run"
        return (
            f"using the forge up in {used} ({also} in {names_text(others, SHOWN)};"
            " --dir or FORGE_DIR chooses)"
        )
    before = _dir_in(default_paths.pointer(), "before")
    if before and _is_news(default_paths.pointer()):
        return f"using the forge up in {used} (the one in {before} has stopped)"
    return ""


def _alive(folder: Path) -> Running | None:
    with suppress(OSError, ValueError):
        running = read(folder)
        return running if _lives(running) else None
    return None


def _lives(running: Running) -> bool:
    try:
        os.kill(running.pid, 0)
    except PermissionError:  # It runs, as somebody else.
        return True
    except OSError:
        return False
    return True


def _listed(folder: Path) -> Path:
    return default_paths.ups() / hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]


def _is_news(file: Path) -> bool:
    """Tell whether nobody has been told of what a file says now."""
    shown = file.with_name(f"{file.name}.shown")
    with suppress(OSError):
        change = str(file.stat().st_mtime_ns)
        if shown.exists() and shown.read_text(encoding="utf-8") == change:
            return False
        default_paths.write_privately(shown, change)
    return True


def _dir_in(file: Path, name: str = "dir") -> Path | None:
    path = _told_in(file).get(name)
    return Path(path) if isinstance(path, str) else None


def _told_in(file: Path) -> dict[str, object]:
    with suppress(OSError, ValueError):
        document = json.loads(file.read_text(encoding="utf-8"))
        return document if isinstance(document, dict) else {}
    return {}
