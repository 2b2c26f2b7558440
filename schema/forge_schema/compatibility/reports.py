"""What 0.2 calls a report. Nothing needs this from 0.4 on."""

# People read the view `jobs` now; the other one has the queue's own states.
FORMER = {"job_status": "jobs"}
