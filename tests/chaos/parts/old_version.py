"""The release before this version, whose workers and servers run beside those of this one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
CALL_S = 60
# Nothing before it was a release.
FIRST = (0, 2, 0)
# A version under development is none: 0.2.1.dev0.
RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+)")
MIGRATES = "import sys; from forge_schema.database.migrate import upgrade; upgrade(sys.argv[1])"
# The jobs that run while the tables change, submitted as that release did it.
SUBMITS = """
import json, sys
from forge_schema.database.pool import Database
from forge_schema.model.spec import JobSpec
from forge_schema.queue.queue import Queue
with Database(sys.argv[1]) as database:
    specs = [JobSpec(**spec) for spec in json.loads(sys.argv[2])]
    print(json.dumps(Queue(database, actor="user:chaos").submit(specs)))
"""


@dataclass(frozen=True)
class OldVersion:
    """That version's code, in its own folder."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which Python finds that code before ours."""
        parts = ("schema", "lambda", "worker", "client")
        return {"PYTHONPATH": os.pathsep.join(str(self.folder / part) for part in parts)}

    def migrate(self, database_url: str) -> None:
        """Migrate an empty database to that version."""
        self._call(MIGRATES, database_url)

    def submit(self, database_url: str, specs: list[dict[str, object]]) -> list[int]:
        """Submit jobs and return their ids."""
        ids: list[int] = json.loads(self._call(SUBMITS, database_url, json.dumps(specs)))
        return ids

    def _call(self, program: str, *words: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", program, *words],
            env={**os.environ, **self.environment},
            capture_output=True,
            timeout=CALL_S,
            check=True,
            text=True,
        ).stdout


def old_version(folder: Path, root: Path = ROOT) -> OldVersion | None:
    """Extract the release before this version; None if git's history has none."""
    commit = release_before(root)
    return None if commit is None else version_at(commit, folder, root)


def release_before(root: Path = ROOT) -> str | None:
    """Return the commit of the newest release before the version of a clone; None without one.

    It is the commit that set the release's number: a clone need not have tags, and a shallow one
    has no such commit.
    """
    own = _release((root / "pyproject.toml").read_text(encoding="utf-8"))
    asked = ("log", "--format=%H", "-G^version = ", "--", "pyproject.toml")
    for commit in (_git(root, *asked) or "").split():
        found = _release(_git(root, "show", f"{commit}:pyproject.toml") or "")
        if found is not None and FIRST <= found != own:
            return commit
    return None


def _release(project: str) -> tuple[int, ...] | None:
    """Return the number in a pyproject.toml; None if it is of no release."""
    version = tomllib.loads(project).get("project", {}).get("version", "")
    found = RELEASE.fullmatch(version)
    return tuple(map(int, found.groups())) if found else None


def version_at(commit: str, folder: Path, root: Path = ROOT) -> OldVersion | None:
    """Extract the version of a commit; None if it is not in git's history."""
    folder.mkdir()
    packed = folder / "code.tar"
    if _git(root, "archive", "-o", packed, commit) is None:
        return None
    subprocess.run(["tar", "-xf", packed.name], cwd=folder, check=True)
    packed.unlink()
    return OldVersion(folder)


def _git(root: Path, *words: object) -> str | None:
    asked = ["git", "-C", str(root), *map(str, words)]
    done = subprocess.run(asked, capture_output=True, check=False, text=True)
    return done.stdout.strip() if done.returncode == 0 else None
