"""The file in which a running `forge up` tells other commands how to reach it."""

import json
import os
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from forge_client import default_paths
from forge_client.errors import ClientError

FILE = "connection.json"


class Running(BaseModel):
    """A `forge up`: its folder, its process, and its addresses."""

    model_config = ConfigDict(frozen=True)

    dir: Path
    pid: int
    database_url: str
    store_url: str
    url: str = ""
    version: str

    def announce(self) -> None:
        """Write the file, readable only by this user, and make this the latest `forge up`."""
        _write(self.dir / FILE, self.model_dump_json(indent=2))
        pointer = default_paths.pointer()
        pointer.parent.mkdir(parents=True, exist_ok=True)
        _write(pointer, json.dumps({"dir": str(self.dir)}))

    def withdraw(self) -> None:
        """Remove the file, and the pointer to it unless it now points elsewhere."""
        (self.dir / FILE).unlink(missing_ok=True)
        if _pointed() == self.dir:
            default_paths.pointer().unlink(missing_ok=True)


def find(folder: Path | None = None) -> Running:
    """Return the `forge up` of a folder; without a folder, this user's latest.

    Raises:
        ClientError: none is running there.
    """
    folder = latest_dir() if folder is None else folder.absolute()
    try:
        return Running.model_validate_json((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValidationError) as error:
        raise ClientError(
            f"no `forge up` is running in {folder}, and no server or database is named",
            hint="start `forge up` in another terminal, or set FORGE_URL and FORGE_API_KEY, or"
            " FORGE_DATABASE_URL and FORGE_STORE_URL",
            code="not_running",
        ) from error


def latest_dir() -> Path:
    """Return the folder of this user's latest running `forge up`, or the default folder."""
    return _pointed() or default_paths.default_dir()


def _pointed() -> Path | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        return Path(json.loads(default_paths.pointer().read_text(encoding="utf-8"))["dir"])
    return None


def _write(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    beside.replace(path)
