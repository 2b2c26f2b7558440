"""What the commands for admins ask of a Forge installation, whichever way they reach it."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from forge_schema.model.admin import ApiKey, QueueInfo, Quota
from forge_schema.model.job import Event

LAST_DAY = timedelta(days=1)


class Secret(NamedTuple):
    """What was made, and its text, which nobody can read again."""

    id: str
    text: str


class Administration(Protocol):
    """Every method may raise `ClientError`, and every act is in the audit trail."""

    def api_keys(self) -> list[ApiKey]:
        """Return every API key."""

    def create_key(
        self,
        owner: str,
        role: str,
        *,
        name: str = "",
        lasts: timedelta | None = None,
        public_key: bytes | None = None,
    ) -> Secret:
        """Make an API key.

        Args:
            owner: whose jobs it is for.
            role: `admin`, `submitter` or `viewer`.
            name: what it is called in lists.
            lasts: after how long it expires; None is never.
            public_key: an Ed25519 key, 32 bytes; with it, every request has to be signed.
        """

    def rotate_key(self, key_id: str) -> str:
        """Give an API key a new text, which alone is valid from now on."""

    def revoke_key(self, key_id: str) -> None:
        """End an API key for good."""

    def create_worker(
        self,
        name: str,
        *,
        ephemeral: bool = False,
        labels: Mapping[str, str] | None = None,
        lasts: timedelta | None = None,
    ) -> Secret:
        """Make a worker that may connect, and its token.

        Args:
            name: its name, which no other worker has.
            ephemeral: whether it leaves after one job.
            labels: what it is labelled with, whatever it says of itself.
            lasts: after how long the token expires; None is never.
        """

    def rotate_worker(self, worker_id: int, *, lasts: timedelta | None = None) -> str:
        """Give a worker a new token, which alone is valid from now on."""

    def worker_named(self, name: str) -> int:
        """Return the id of the newest worker of a name, also of one that was removed."""

    def delete_worker(self, worker_id: int) -> None:
        """Remove an offline worker and its token."""

    def events(
        self,
        *,
        since: timedelta = LAST_DAY,
        after: datetime | None = None,
        job_id: int | None = None,
        worker_id: int | None = None,
        actor: str | None = None,
        count: int = 1000,
    ) -> list[Event]:
        """Return a page of the audit trail, oldest first.

        Args:
            since: how far back to begin.
            after: the time of the last event seen; then `since` does not count.
            job_id: only events of this job.
            worker_id: only events of this worker.
            actor: only acts of this actor, such as `user:ann`.
            count: how many at most.
        """

    def queues(self) -> list[QueueInfo]:
        """Return every queue that holds a job or was ever set up."""

    def pause(self, queue: str, *, paused: bool = True) -> None:
        """Have no more jobs taken from a queue, or have them taken again."""

    def limit_queue(self, queue: str, *, max_jobs: int | None, max_gpus: int | None) -> None:
        """Set how many jobs and GPUs of a queue run at once; None is no limit."""

    def quotas(self) -> list[Quota]:
        """Return every owner that limits were ever set for."""

    def limit_owner(
        self, owner: str, *, max_jobs: int | None, max_gpus: int | None, weight: float
    ) -> None:
        """Set how many jobs and GPUs of an owner run at once, and the owner's share."""
