"""What everyday commands load when they reach the database directly."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from forge_client.cli.commands import app
from forge_client.cli.options import session
from forge_client.connection import connect
from support.client.loaded import few
from typer.testing import CliRunner

if TYPE_CHECKING:
    from pathlib import Path

    from forge_client.backend import Backend
    from forge_client.settings import Settings
    from support.queue.rig import Rig

# Each is installed here, and takes as long to import as the rest of a command or longer.
EXPENSIVE = {
    *("alembic", "apscheduler", "boto3", "click", "httpx", "pydantic_settings", "pygments"),
    *("rich", "smtplib", "sqlalchemy", "sqlmodel", "stamina", "structlog", "yaml"),
}
RUN = """
import sys
from forge_client.cli.commands import app
for words in sys.argv[1:]:
    try:
        app(words.split())
    except SystemExit as ended:
        assert not ended.code, ended.code
print(*(name for name, module in sys.modules.items() if module), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("commands", "most"), [(("ps", "show 1", "logs 1"), 495), (("submit . -- true",), 586)]
)
def test_a_command_loads_only_what_it_needs(
    commands: tuple[str, ...], most: int, rig: Rig, tmp_path: Path
) -> None:
    """Each module takes a fifth of a millisecond or more."""
    rig.submit()
    done = subprocess.run(
        [sys.executable, "-c", RUN, *commands],
        env={"FORGE_DATABASE_URL": rig.url, "FORGE_STORE_URL": (tmp_path / "store").as_uri()},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = done.stderr.splitlines()[-1].split()
    assert not EXPENSIVE & {name.partition(".")[0] for name in loaded}
    assert few(loaded, most), len(loaded)


@pytest.mark.parametrize("job", ["@last", "nothing"])
def test_a_name_is_looked_up_on_the_connection_of_the_command(
    job: str, rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Settings] = []

    def counted(settings: Settings) -> Backend:
        made.append(settings)
        return connect(settings)

    monkeypatch.setattr(session, "connect", counted)
    rig.submit()
    env = {"FORGE_DATABASE_URL": rig.url, "FORGE_STORE_URL": tmp_path.as_uri()}
    done = CliRunner().invoke(app, ["show", job], env={**env, "FORGE_OWNER": "ann"})
    assert (done.exit_code == 0) is (job == "@last"), done.output
    assert len(made) == 1
