"""A notification of the database, as servers and direct workers receive it."""

from dataclasses import dataclass
from typing import Self

ASKED = "asked"
BACK = "back"
SHELL = "shell"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The transactions that a statement saw; `running` had not ended yet."""

    xmin: int
    xmax: int
    running: frozenset[int] = frozenset()

    @classmethod
    def read(cls, text: str) -> Self:
        """Read the text of a `pg_snapshot`."""
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(map(int, filter(None, running.split(",")))))

    def shows(self, xid: int) -> bool:
        """Tell whether what a transaction wrote was visible."""
        return xid < self.xmin or (xid < self.xmax and xid not in self.running)


@dataclass(frozen=True, slots=True)
class Hint:
    """What may have happened: `asked` of a worker, or jobs became `ready` or came `back`.

    `workers` are those it names. Without a snapshot, a hint of jobs is for every worker. A `shell`
    has an id. Anybody who may connect to the database can send hints, so none is trusted.
    """

    kind: str
    workers: frozenset[int] = frozenset()
    snapshot: Snapshot | None = None
    shell: str = ""

    @classmethod
    def read(cls, payload: str) -> Self:
        """Read a notification.

        One that cannot be read, such as that of a later version, is for every worker.
        """
        kind, _, rest = payload.partition(":")
        workers, _, snapshot = rest.partition(":")
        try:
            named = frozenset(map(int, filter(None, workers.split(","))))
            if kind == SHELL:
                return cls(kind, named, shell=snapshot)
            return cls(kind, named, Snapshot.read(snapshot) if snapshot else None)
        except ValueError:
            return cls(kind)


# For every worker: nothing was listening for a while, so any hint may have been missed.
ANY = Hint("ready")
