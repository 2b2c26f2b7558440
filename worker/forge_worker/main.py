"""`forge-worker`: the agent as a process."""

import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forge_schema.database import Database
from forge_schema.errors import ForgeError
from forge_schema.log import configure_log
from forge_schema.queue import Queue
from forge_schema.storage import open_store
from forge_schema.sweep import Sweep
from forge_schema.sweeper import Sweeper
from pydantic import ValidationError
from pydantic_settings import CliApp

from forge_worker import signals
from forge_worker.agent import Agent
from forge_worker.gateway import SqlGateway
from forge_worker.listener import Listener
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
    with held(settings.worker_dir), Database(settings.database_url, size=8) as database:
        store = open_store(settings.store_url)
        store.check()
        gateway = SqlGateway(database, name=settings.name(), ttl=settings.ttl)
        agent = Agent(settings, gateway, store, available(settings))
        signals.listen(drain=agent.drain, stop=agent.stop)
        with hints(settings, gateway, agent), sweeping(settings, database):
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


@contextmanager
def hints(settings: WorkerSettings, gateway: SqlGateway, agent: Agent) -> Iterator[None]:
    """Listen to the database while the block runs."""

    def work() -> None:
        gateway.new_work()
        agent.claimer.wake()

    def asked(worker_id: str) -> None:
        if worker_id == str(agent.worker_id):
            agent.keeper.wake()

    listener = Listener(settings.database_url, work=work, asked=asked)
    listener.start()
    try:
        yield
    finally:
        listener.end()


@contextmanager
def sweeping(settings: WorkerSettings, database: Database) -> Iterator[None]:
    """Sweep in the background while the block runs, where the settings want it."""
    if not settings.sweep:
        yield
        return
    queue = Queue(database, actor=f"worker:{settings.name()}", ttl=settings.ttl)
    sweeper = Sweeper(Sweep(queue), period_s=settings.sweep_s)
    sweeper.start()
    try:
        yield
    finally:
        sweeper.end()


if __name__ == "__main__":
    main()
