"""A `forge up` with a job, and the ways to reach it."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.commands.measure import FORGE, Checkout

# Nobody has such a GPU, so the jobs wait.
TOML = """
command = "python train.py"
timeout = "1h"
checkpoint = ["*.pt"]

[resources]
gpus = 1
gpu_model = "none"
memory = "2GiB"

[env]
SEED = "1"
"""


@dataclass(frozen=True)
class Bed:
    """A project, a running queue, and by the name of each way to it the variables for it."""

    folder: Path
    project: Path
    ways: Mapping[str, Mapping[str, str]]

    def submitted(self) -> str:
        """Submit a job that stays queued, and return its id."""
        words = ("submit", str(self.project), "--delay", "1d", "--", "true")
        return forge(*words, env=self.ways["a forge up"])


def clean(folder: Path) -> dict[str, str]:
    """Return an environment with a `forge up` in a folder, and nothing else of Forge."""
    kept = {n: value for n, value in os.environ.items() if not n.startswith("FORGE_")}
    return {
        **kept,
        "XDG_STATE_HOME": str(folder),
        "FORGE_DIR": str(folder / "up"),
        "PYTHONDONTWRITEBYTECODE": "",
    }


@contextmanager
def running(
    folder: Path, checkout: Checkout, variables: Mapping[str, str] | None = None
) -> Iterator[Bed]:
    """Start a `forge up` of a checkout, with more variables, and one job that has ended."""
    project = folder / "project"
    project.mkdir()
    (project / "train.py").write_text("print('hello')\n")
    described = folder / "described"
    described.mkdir()
    (described / "train.py").write_text("print('hello')\n")
    (described / "forge.toml").write_text(TOML)
    env = {**clean(folder), **checkout.variables, **(variables or {})}
    forge("up", "-d", env=env)
    try:
        key = forge("key", "create", "--owner", "ann", "--role", "admin", env=env)
        forge("submit", "--wait", str(project), "--", "python3", "train.py", env=env)
        up = json.loads((folder / "up" / "connection.json").read_text())
        direct = {"FORGE_DATABASE_URL": up["database_url"], "FORGE_STORE_URL": up["store_url"]}
        server = {"FORGE_URL": up["url"], "FORGE_API_KEY": key}
        ways = {"a forge up": env, "a server": {**env, **server}, "direct": {**env, **direct}}
        yield Bed(folder, project, ways)
    finally:
        forge("down", env=env)


def forge(*words: str, env: Mapping[str, str]) -> str:
    """Run a command and return its output."""
    done = subprocess.run(
        [*FORGE, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    )
    return done.stdout.decode().strip()
