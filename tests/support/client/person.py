"""Somebody who reaches Forge through a server, from any machine."""

from __future__ import annotations

import os
import subprocess
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from forge_schema.access.api_keys import Keys
from forge_schema.model.states import Role
from support.client.command import FORGE
from support.warm.process import Warm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workers.worker import Bed

Popen: TypeAlias = "subprocess.Popen[bytes]"


class Person:
    """Somebody with a key, on any machine."""

    def __init__(self, made: Bed, url: str, owner: str, role: Role = Role.SUBMITTER) -> None:
        key = Keys(made.database, actor="user:root").create(owner, role)[1]
        kept = {name: it for name, it in os.environ.items() if not name.startswith("FORGE_")}
        self.env = {**kept, "FORGE_URL": url, "FORGE_API_KEY": key}

    def __call__(self, *words: str, typed: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run `forge exec` with pipes."""
        return self.run("exec", *words, typed=typed)

    def run(self, *words: str, typed: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run any command of `forge` with pipes."""
        with self._started(*words) as process:
            out, err = process.communicate(typed, timeout=120)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def started(self, *words: str, **streams: Any) -> AbstractContextManager[Popen]:  # noqa: ANN401  files of all kinds
        """Start `forge exec`, and kill it at the end of the block."""
        return self._started("exec", *words, **streams)

    @contextmanager
    def _started(self, *words: str, **streams: Any) -> Iterator[Popen]:  # noqa: ANN401  as above
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        given = [str(FORGE), *words]
        with Warm("forge_client.main", given, env=self.env, **{**pipes, **streams}) as process:
            try:
                yield process
            finally:
                process.kill()


def entries(made: Bed, job: int) -> list[tuple[str, dict[str, Any]]]:
    events = [event for event in made.jobs.events(job) if event["action"] == "entered"]
    return [(event["actor"].partition(":")[0], event["detail"]) for event in events]
