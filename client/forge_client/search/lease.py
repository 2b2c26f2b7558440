"""Which process runs a search: a note in its study, which that process keeps fresh."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from socket import gethostname
from typing import Any

import optuna

from forge_client.errors import ClientError

DRIVER = "forge_driver"
TOKEN = token_hex(8)
RENEWED_AFTER_S = 10.0
LAPSES_AFTER_S = 45.0


class StudyLease:
    """A search's lease: Optuna's storages have no lock that ends with its process."""

    def __init__(
        self,
        study: optuna.Study,
        process: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._study = study
        # A forked process has the token of its parent.
        self._process = process or f"{os.getpid()}-{TOKEN}"
        self._clock = clock

    def hold(self) -> None:
        """Take or renew it.

        Two that take it at the same moment both succeed; the next call tells one of them.

        Raises:
            ClientError: another process has it.
        """
        held, now = self._study.user_attrs.get(DRIVER), self._clock()
        if held and held["process"] != self._process:
            if abs(now - held["renewed"]) < LAPSES_AFTER_S and not _gone(held):
                raise _running(self._study.study_name, held)
            held = None
        if not held or abs(now - held["renewed"]) >= RENEWED_AFTER_S:
            since = held["since"] if held else now
            self._study.set_user_attr(DRIVER, self._note(since, now))

    def release(self) -> None:
        """Let another process have it at once."""
        held = self._study.user_attrs.get(DRIVER)
        if held and held["process"] == self._process:
            self._study.set_user_attr(DRIVER, None)

    def _note(self, since: float, now: float) -> dict[str, Any]:
        return {
            "process": self._process,
            "host": gethostname(),
            "pids": _pids(),
            "pid": os.getpid(),
            "since": since,
            "renewed": now,
        }


def _pids() -> str:
    """Return what tells containers of one host apart: a process has an id in each of them."""
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return ""


def _gone(held: dict[str, Any]) -> bool:
    """Whether the process was here, and has ended."""
    here = held["pids"] and (held["host"], held["pids"]) == (gethostname(), _pids())
    return bool(here) and not Path(f"/proc/{held['pid']}").exists()


def _running(name: str, held: dict[str, Any]) -> ClientError:
    since = datetime.fromtimestamp(held["since"], UTC).astimezone()
    return ClientError(
        f"process {held['pid']} on {held['host']} has been running the search {name!r}"
        f" since {since:%Y-%m-%d %H:%M:%S}",
        hint="stop that process first; if its machine is lost, try again in a minute",
        code="already_running",
    )
