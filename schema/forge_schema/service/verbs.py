"""What all verbs start from: a caller, and a database."""

from collections.abc import Callable

from forge_schema.database.pool import Database, Row
from forge_schema.model.job import job_unknown, possible_job
from forge_schema.read.jobs import Jobs
from forge_schema.service.caller import Caller


class Verbs:
    """The base of the service's classes.

    Args:
        caller: who acts.
        database: opens the database; called by each verb, and not before.
    """

    def __init__(self, caller: Caller, database: Callable[[], Database]) -> None:
        self.caller = caller
        self._open_database = database

    @property
    def _database(self) -> Database:
        return self._open_database()

    @property
    def _jobs(self) -> Jobs:
        return Jobs(self._database)

    def _visible(self, job_id: int) -> Row:
        """Return a job.

        Raises:
            JobUnknown: there is none, or it is another owner's: the caller cannot tell which.
        """
        row = self._jobs.job(possible_job(job_id))
        if self.caller.scope not in {None, row["owner"]}:
            raise job_unknown(job_id)
        return row
