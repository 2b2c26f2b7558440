"""The queues that are compared, and how each tells where its one job is."""

from dataclasses import dataclass

# Seconds after which each queue takes a silent worker for lost; each queue's own setting.
LIMIT_S = 5


@dataclass(frozen=True)
class Contender:
    """A queue; `state` is SQL for where its one job is, `done` are the words for its end."""

    name: str
    module: str
    packages: tuple[str, ...]
    rescue: str
    state: str
    done: frozenset[str]

    @property
    def is_forge(self) -> bool:
        return not self.packages


FORGE = Contender(
    "Forge",
    "on_forge",
    (),
    "the lease's time to live, and the sweeper",
    "SELECT state FROM job_status",
    frozenset({"succeeded", "failed", "cancelled", "dead"}),
)
PROCRASTINATE = Contender(
    "procrastinate",
    "on_procrastinate",
    ("procrastinate",),
    "“Retry stalled jobs”: worker heartbeats, and the periodic task of that page",
    "SELECT status FROM procrastinate_jobs WHERE task_name = 'zombie'",
    frozenset({"succeeded", "failed", "cancelled", "aborted"}),
)
PGQUEUER = Contender(
    "pgqueuer",
    "on_pgqueuer",
    ("pgqueuer",),
    "“Heartbeat”: `heartbeat_timeout`, after which any worker picks the job again",
    """
    SELECT coalesce(
        (SELECT status FROM pgqueuer), (SELECT status FROM pgqueuer_log ORDER BY id DESC LIMIT 1)
    )
    """,
    frozenset({"successful", "exception", "canceled", "deleted", "failed"}),
)
CHANCY = Contender(
    "chancy",
    "on_chancy",
    ("chancy",),
    "the Recovery plugin, on by default: worker heartbeats",
    "SELECT state FROM chancy_jobs",
    frozenset({"succeeded", "failed"}),
)
PEERS = (PROCRASTINATE, PGQUEUER, CHANCY)
