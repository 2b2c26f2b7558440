"""Workers of the version before the newest migration, under which the database is migrated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from forge_schema.database.migrate import MIGRATIONS

ROOT = Path(__file__).parents[3]
CALL_S = 60
# That version may have its modules in other places.
FOUND = """
import json, sys
from importlib import import_module
def found(name, *modules):
    for module in modules:
        try:
            return getattr(import_module(f"forge_schema.{module}"), name)
        except (ImportError, AttributeError):
            pass
    sys.exit(f"{name} is in none of {modules}")
"""
MIGRATES = f"{FOUND}found('upgrade', 'database.migrate', 'migrate')(sys.argv[1])"
# The jobs that run while the tables change, submitted as that version did it.
SUBMITS = f"""{FOUND}
Database = found("Database", "database.pool", "database")
Queue = found("Queue", "queue.queue", "queue")
JobSpec = found("JobSpec", "model.spec", "spec")
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


def old_version(folder: Path) -> OldVersion | None:
    """Extract that version from git's history; None if there is no such history."""
    newest = max(MIGRATIONS.glob("versions/0*.py")).relative_to(ROOT)
    asked = ("log", "-1", "--follow", "--diff-filter=A", "--format=%H", "--", newest)
    if not (ROOT / ".git").exists() or not (added := _git(*asked)):
        return None
    return version_at(f"{added}~1", folder)


def version_at(commit: str, folder: Path) -> OldVersion | None:
    """Extract the version of a commit; None if it is not in git's history."""
    folder.mkdir()
    packed = folder / "code.tar"
    if _git("archive", "-o", packed, commit) is None:
        return None
    subprocess.run(["tar", "-xf", packed.name], cwd=folder, check=True)
    packed.unlink()
    return OldVersion(folder)


def _git(*words: object) -> str | None:
    asked = ["git", "-C", str(ROOT), *map(str, words)]
    done = subprocess.run(asked, capture_output=True, check=False, text=True)
    return done.stdout.strip() if done.returncode == 0 else None
