"""The tables, made in a process of its own: what that loads would stay in this one for good."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection

from forge_client.errors import ClientError

# It loads Alembic and SQLAlchemy.
MIGRATE = "forge_schema.database.migrate"


@contextmanager
def upgrading() -> Iterator[Callable[[str], None]]:
    """Have a process load what an upgrade needs, and yield the function that upgrades a database.

    The process ends with the block, and soon after this one if that is killed.
    """
    context = get_context("fork")
    gate, theirs = context.Pipe()
    child = context.Process(target=_run, args=(gate, theirs))
    child.start()
    theirs.close()

    def upgrade(url: str) -> None:
        try:
            gate.send(url)
            error = gate.recv()
        except (EOFError, OSError):
            raise ClientError(
                "the process that upgrades the database has died",
                hint="run `forge up` again: the upgrade continues where it ended",
            ) from None
        if error is not None:
            raise error

    try:
        yield upgrade
    finally:
        gate.close()
        child.join()


def _run(theirs: Connection, gate: Connection) -> None:
    theirs.close()
    migrate = import_module(MIGRATE)
    try:
        url = gate.recv()
    except EOFError:
        return
    try:
        migrate.upgrade(url)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is raised there
        gate.send(error)
    else:
        gate.send(None)
