"""The `forge` command as a person runs it: in its own process and environment."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from support.warm.process import Warm

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S = 120
FORGE = Path(sys.executable).with_name("forge")


@dataclass(frozen=True)
class Command:
    """Runs `forge` in a folder, for a user whose home starts out empty."""

    home: Path
    cwd: Path
    env: dict[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        """Run the command until it exits."""
        with Warm(
            "forge_client.main",
            [str(FORGE), *map(str, arguments)],
            cwd=self.cwd,
            env={**self.environment(), **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
        ) as process:
            try:
                out, err = process.communicate(timeout=TIMEOUT_S)
            finally:
                process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    @contextmanager
    def started(
        self, *arguments: str | Path, stdin: int = subprocess.DEVNULL, **env: str
    ) -> Iterator[subprocess.Popen[str]]:
        """Start the command with pipes for its output; kill it at the end of the block."""
        with Warm(
            "forge_client.main",
            [str(FORGE), *map(str, arguments)],
            cwd=self.cwd,
            env={**self.environment(), **env},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def environment(self) -> dict[str, str]:
        """Return the user's variables; a shell finds `forge` on its PATH."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FORGE_")}
        path = f"{FORGE.parent}:{os.environ['PATH']}"
        xdg = {f"XDG_{kind}_HOME": str(self.home / kind.lower()) for kind in ("STATE", "DATA")}
        return {**kept, **xdg, "HOME": str(self.home), "LOGNAME": "ann", "PATH": path, **self.env}


def command(folder: Path, **env: str) -> Command:
    """Return the command, with its home and working folder below `folder`."""
    home, cwd = folder / "home", folder / "cwd"
    home.mkdir()
    cwd.mkdir()
    return Command(home, cwd, env)
