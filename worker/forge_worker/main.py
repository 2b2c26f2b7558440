"""`forge-worker`: the agent as a process."""

import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forge_schema.errors import ForgeError
from forge_schema.log import configure_log
from pydantic import ValidationError
from pydantic_settings import CliApp

from forge_worker import direct, over_http, signals
from forge_worker.agent import Agent
from forge_worker.runner_choice import available
from forge_worker.settings import WorkerSettings

EXIT_USAGE = 2


class FolderTaken(ForgeError):
    """Another agent works in this folder."""

    code = "folder_taken"


def main() -> None:
    """Run a worker until it is told to leave."""
    configure_log()
    try:
        settings = CliApp.run(WorkerSettings)
    except ValidationError as error:
        for fault in error.errors():
            flags = [f"--{part}: ".replace("_", "-") for part in fault["loc"]]
            sys.stderr.write(f"forge-worker: {''.join(flags)}{fault['msg']}\n")
        sys.exit(EXIT_USAGE)
    try:
        serve(settings)
    except ForgeError as error:
        hint = f"\n  {error.hint}" if error.hint else ""
        sys.exit(f"forge-worker: {error.message}{hint}")
    except OSError as error:
        sys.exit(f"forge-worker: {error}")


def serve(settings: WorkerSettings) -> None:
    """Open what the agent needs, run it, and close everything again."""
    # It holds everybody's code and checkpoints.
    settings.worker_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    transport = over_http.transport if settings.url else direct.transport
    with held(settings.worker_dir), transport(settings) as linked:
        agent = Agent(settings, linked.gateway, linked.objects, available(settings))
        signals.listen(drain=agent.drain, stop=agent.stop)
        with linked.loops(agent):
            agent.run()


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep a second agent out of the folder.

    Raises:
        FolderTaken: there is one.
    """
    with (folder / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FolderTaken(
                f"another worker uses {folder}", hint="give each worker its own FORGE_WORKER_DIR"
            ) from error
        yield


if __name__ == "__main__":
    main()
