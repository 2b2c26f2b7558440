"""Shells inside running jobs: where a job runs, how its worker is called, one-time tickets."""

import time

from psycopg.types.json import Jsonb

from forge_schema.database.pool import DatabaseActor, DatabaseUser
from forge_schema.model.errors import ForgeError
from forge_schema.model.states import Phase
from forge_schema.shell import ShellWanted

# Of the command, in the audit trail.
SHOWN = 1000

# Whoever made it has checked its age: the clocks of the server and the database may differ.
ANY_AGE_S = 2**30


class NotRunning(ForgeError):
    """Nothing of this job or rank runs now."""

    code = "not_running_job"


class Shells(DatabaseActor):
    """Opens shells, as an actor."""

    def enter(self, job_id: int, wanted: ShellWanted) -> tuple[int, str]:
        """Record that somebody enters a job; return the id and the name of its worker.

        Raises:
            NotRunning: the program of this rank does not run now.
        """
        shown = {"ports": wanted.ports} if wanted.ports else {"command": wanted.text[:SHOWN]}
        detail = {"program": wanted.program, **({} if wanted.ssh else shown)}
        row = self._database.row(
            "enter",
            again=True,
            actor=self._actor,
            job_id=job_id,
            rank=wanted.rank,
            detail=Jsonb({**detail, "rank": wanted.rank, "through": "server"}),
        )
        if row is None or row["phase"] != Phase.RUNNING:
            doing = f"is {row['phase']} on worker {row['worker']}" if row else "is on no worker"
            raise NotRunning(
                f"rank {wanted.rank} of job {job_id} {doing}, so nothing can run inside it",
                hint=f"`forge show {job_id}` says where it is",
            )
        return row["worker_id"], row["worker"]

    def call(self, worker_id: int, shell: str) -> None:
        """Ask a worker to connect for a shell."""
        self._database.rows("call_in", again=True, worker_id=worker_id, shell=shell)


class Nonces(DatabaseUser):
    """Remembers what was used, for a quarter of an hour."""

    def use(self, holder: str, nonce: str) -> bool:
        """Use something of a holder up; False if that was done before."""
        row = self._database.row(
            "use_nonce", key_id=holder, nonce=nonce, sent=int(time.time()), window=ANY_AGE_S
        )
        return row is not None and bool(row["taken"])
