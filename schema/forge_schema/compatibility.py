"""What the release before needs, each naming the release that no longer does."""

from pydantic import BaseModel

# Nothing needs this from 0.4 on: workers of this version restore no packs of small files. While one
# of them may be granted a job, nobody packs: it would pass over the newest checkpoint.
WITHOUT_PACKS = "0.2.0"

# Nothing needs this from 0.4 on: what clients of 0.2 set of a queue at once. They know no other
# settings: those stay as they are, unless a client names them.
SET_AT_ONCE = {"paused", "max_jobs", "max_gpus"}

# Nothing needs this from 0.4 on: what 0.2 calls a report. People read the view `jobs` now; the
# other one has the queue's own states.
FORMER_REPORTS = {"job_status": "jobs"}


class CountsDead(BaseModel):
    """How 0.2 counts ends by the minute. Nothing needs this from 0.4 on.

    Jobs without retries left were not `failed` there, and its clients want their number.
    """

    dead: int = 0
