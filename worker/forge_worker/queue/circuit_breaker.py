"""A database that is left alone for a while when it did not answer, longer each time."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from forge_schema.database.pool import Database, DatabaseUnreachable, Row

from forge_worker.queue.servers import NotAnswered, Servers

T = TypeVar("T")

# Of what a database says of itself: it goes, it comes, it has no room, or it takes no writes. All
# else is an answer.
AWAY = ("08", "53", "57P", "25006")


class RestedDatabase(Database):
    """All threads that ask it wait together, and one of them at a time tries it again.

    Args:
        url: as of Database.
        longest_pause_s: how long it is left alone at most.
        **options: as of Database.
    """

    def __init__(self, url: str, *, longest_pause_s: float, **options: Any) -> None:  # noqa: ANN401  Database has their types
        super().__init__(url, **options)
        self._servers = Servers(["the database"], longest_pause_s=longest_pause_s)
        self.awake = self._servers.awake

    def rows(self, name: str, /, *, again: bool = False, **params: object) -> list[Row]:
        """As of Database.

        Raises:
            ServersRest: it is left alone for a moment.
            DatabaseUnreachable: it does not answer.
        """
        ask = partial(super().rows, name, again=again, **params)
        return self._servers.ask(lambda _: _answer(ask))


def _answer(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except DatabaseUnreachable as error:
        state = getattr(error.__cause__, "sqlstate", None)
        if state is None or state.startswith(AWAY):
            raise NotAnswered(error.message, sent=True) from error
        raise
