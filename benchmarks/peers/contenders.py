"""The queues that are compared."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Contender:
    """A queue; `package` names it in its registry, and `module` is its program here."""

    name: str
    module: str
    package: str | None = None
    node: bool = False


FORGE = Contender("Forge", "on_forge")
PYTHONS = (
    Contender("pgmq", "on_pgmq", "pgmq"),
    Contender("pgqueuer", "on_pgqueuer", "pgqueuer"),
    Contender("procrastinate", "on_procrastinate", "procrastinate"),
)
NODES = (
    Contender("graphile-worker", "on_graphile_worker", "graphile-worker", node=True),
    Contender("pg-boss", "on_pg_boss", "pg-boss", node=True),
)
EVERY = (FORGE, *NODES, *PYTHONS)
