"""What programs find, and what they hear of a stop; they say so in their own logs.

`said` has these lines: see `chaos.clients.programs`.
"""

from __future__ import annotations

from chaos.check.violation import by_sql
from chaos.clients.programs import HALF, NOT_REMOVED, NOT_WHOLE

NEVER_BACK = by_sql(
    "a program continues from no earlier step than was stored, or than it continued from before",
    """
    WITH began AS (
        SELECT * FROM said
        -- A checkpoint that is blamed for a failure is passed over, and the one before continued.
        WHERE word = 'from' AND step IS NOT NULL
            AND job_id NOT IN (SELECT beginning.job_id FROM beginning WHERE blamed)
    )
    SELECT job_id, token, format('attempt %s continued from step %s, attempt %s from step %s',
        attempt, step, before_it, before) AS says
    FROM (
        SELECT *, lag(step) OVER earlier AS before, lag(attempt) OVER earlier AS before_it
        FROM began WINDOW earlier AS (PARTITION BY job_id ORDER BY attempt)
    ) AS ordered
    WHERE step < before
    UNION ALL
    SELECT job_id, token, format('attempt %s continued from step %s, and step %s was stored',
        attempt, step, stored)
    FROM began
    CROSS JOIN LATERAL (
        SELECT max(kept.step) AS stored FROM chaos.stored AS kept
        WHERE kept.job_id = began.job_id AND kept.attempt < began.attempt
    ) AS known
    WHERE step < stored
    """,
)

STOP_HEARD = by_sql(
    "a stop reaches the programs below a shell or in a pipeline, before they are killed",
    """
    SELECT job_id, token, format('attempt %s was preempted, and its program did not hear of it',
        attempt) AS says
    FROM attempt
    WHERE reason = 'preempted'
        AND EXISTS (SELECT FROM said WHERE said.token = attempt.token AND word = 'ready to stop')
        AND NOT EXISTS (
            SELECT FROM said
            WHERE said.token = attempt.token AND word IN ('stopped', 'all is done')
        )
    """,
)

# The only checkpoint is tried until the retries are used up; then the job begins without any.
TORN = by_sql(
    "half a file is not what a job ends with",
    f"""
    SELECT outcome.job_id, outcome.token, 'its last attempt found half a file' AS says
    FROM outcome JOIN attempt USING (job_id, token)
    WHERE outcome.state IN ('failed', 'dead')
        AND attempt.reason = 'exit_code' AND attempt.exit_code = {HALF}
    """,
)

REMOVED = by_sql(
    "a program may remove its checkpoint folder",
    f"""
    SELECT job_id, token, format('attempt %s could not', attempt) AS says
    FROM attempt WHERE reason = 'exit_code' AND exit_code = {NOT_REMOVED}
    """,
)

WHOLE = by_sql(
    "a job begins only with whole inputs",
    f"""
    SELECT job_id, token, format('attempt %s found something else', attempt) AS says
    FROM attempt WHERE reason = 'exit_code' AND exit_code = {NOT_WHOLE}
    """,
)

PROGRAMS = (NEVER_BACK, STOP_HEARD, TORN, REMOVED, WHOLE)
