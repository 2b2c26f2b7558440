"""Begin a `forge up`, and say where it is."""

from forge_client.cli.show import narration
from forge_client.running import Running, all_running
from forge_client.up.detached import UpOptions, await_up, detached


def begin(plan: UpOptions, *, detach: bool) -> None:
    """Run one until it is stopped, or return once it runs in the background.

    Raises:
        ClientError: one is already running there, or it does not start.
    """
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
