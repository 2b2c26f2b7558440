"""Join a running `forge up` if the settings name no queue."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import psutil
from forge_schema.program import faults
from platformdirs import user_data_path, user_state_path
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from forge_worker.settings.settings import WorkerSettings
from forge_worker.worker_folder import holder

FILE = "connection.json"
OF_A_QUEUE = ("url", "database_url", "store_url", "token", "token_file")
NEEDED = {"dir", "database_url", "store_url"}
ACTS = ("status", "profile_machine", "recover", "reset_state")


def read() -> WorkerSettings:
    """Return the settings of the command line; without a queue, join this user's `forge up`."""
    settings: WorkerSettings = faults.of_command_line(BesideUpSettings)
    up = running()
    if up.get("database_url") == settings.database_url != "":
        _tell_others(Path(up["dir"]))
        # As in the workers of `forge up`: a job without an image finds this Python first.
        own = str(Path(sys.executable).parent)
        os.environ["PATH"] = os.pathsep.join([own, os.environ.get("PATH", os.defpath)])
    return settings


def _tell_others(chosen: Path) -> None:
    """Say which `forge up` was joined if several run and FORGE_DIR does not choose."""
    others = [] if os.environ.get("FORGE_DIR") else _others(chosen)
    if others:
        sys.stderr.write(
            f"forge-worker: using the forge up in {chosen}"
            f" ({'another runs' if len(others) == 1 else 'others run'} in {', '.join(others)};"
            " FORGE_DIR chooses)\n"
        )


def _others(chosen: Path) -> list[str]:
    folders = []
    for file in sorted((user_state_path("forge") / "ups").glob("*")):
        with suppress(OSError, ValueError, KeyError, TypeError, psutil.Error):
            folder = Path(json.loads(file.read_text(encoding="utf-8"))["dir"])
            pid = int(json.loads((folder / FILE).read_text(encoding="utf-8"))["pid"])
            if folder != chosen and psutil.pid_exists(pid):
                folders.append(str(folder))
    return folders


class BesideUpSettings(WorkerSettings):
    """Settings whose last source is a running `forge up`."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the usual sources, followed by the `forge up`."""
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, BesideUp(settings_cls)


class BesideUp(PydanticBaseSettingsSource):
    """Defaults for a worker that joins this user's `forge up`."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return nothing: `__call__` returns all fields together."""
        del field
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return the queue, a folder for this worker, and permission to run processes."""
        given = self.current_state
        acts = [name for name in ACTS if given.get(name)]
        if any(given.get(name) for name in OF_A_QUEUE) or (acts and given.get("worker_dir")):
            return {}
        up = running()
        if not up:
            return {}
        return {
            "database_url": up["database_url"],
            "store_url": up["store_url"],
            "exec_url": up.get("url", ""),
            "worker_dir": _folder_for(Path(up["dir"]) / "workers", acts),
            "local": True,
            # The same user has started both, and jobs run as processes in `forge up` too.
            "allow_processes": True,
        }


def running() -> Mapping[str, str]:
    """Return the state file of the `forge up` in FORGE_DIR or of this user; {} without one."""
    with suppress(OSError, ValueError, KeyError, TypeError, psutil.Error):
        file = _folder() / FILE
        # Whoever writes this file decides which code runs here as this user.
        if file.stat().st_uid != os.getuid():
            return {}
        state: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
        if psutil.pid_exists(int(state["pid"])) and state.keys() >= NEEDED:
            return state
    return {}


def _folder() -> Path:
    if named := os.environ.get("FORGE_DIR"):
        return Path(named)
    with suppress(OSError, ValueError, KeyError, TypeError):
        pointer = user_state_path("forge") / "up"
        return Path(json.loads(pointer.read_text(encoding="utf-8"))["dir"])
    return user_data_path("forge")


def _folder_for(workers: Path, acts: Sequence[str]) -> Path:
    """Return where a start goes; for `--status` the first one that runs, if any."""
    if "status" in acts and (begun := joined(workers)):
        return begun[0]
    folders = (workers / f"joined-{number}" for number in count(1))
    return next(folder for folder in folders if holder(folder) is None)


def joined(workers: Path) -> list[Path]:
    """Return the folders of the workers that have joined and run."""
    return [folder for folder in sorted(workers.glob("joined-*")) if holder(folder) is not None]
