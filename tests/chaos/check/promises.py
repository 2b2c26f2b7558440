"""Check that acknowledgements to clients, from their own history, were honoured."""

from __future__ import annotations

from chaos.check.violation import by_sql

ENDS = by_sql(
    "every acknowledged submit ends terminal once faults stop",
    """
    SELECT told.job_id, format('submitted, and now %s', coalesce(state::text, 'unknown')) AS says
    FROM (SELECT DISTINCT job_id FROM told WHERE kind = 'submitted') AS told
    LEFT JOIN job_status USING (job_id)
    WHERE state IS NULL OR state IN ('scheduled', 'held', 'ready', 'running')
    """,
)

ONE_PER_KEY = by_sql(
    "there is one job per idempotency key, however often it was submitted",
    """
    SELECT
        max(job_id) AS job_id,
        format('the key %s was answered with the jobs %s', key, array_agg(DISTINCT job_id)) AS says
    FROM (SELECT job_id, "values" ->> 'key' AS key FROM told WHERE kind = 'submitted') AS answered
    WHERE key IS NOT NULL
    GROUP BY key HAVING count(DISTINCT job_id) > 1
    UNION ALL
    SELECT max(id), format('the key %s has the jobs %s', idempotency_key, array_agg(id))
    FROM job
    WHERE idempotency_key IS NOT NULL
    GROUP BY owner, idempotency_key HAVING count(*) > 1
    UNION ALL
    SELECT told.job_id, format('acknowledged for the key %s, has %s', "values" ->> 'key',
        coalesce(stored, 'none'))
    FROM told
    LEFT JOIN (SELECT id AS job_id, idempotency_key AS stored FROM job) AS kept USING (job_id)
    WHERE kind = 'submitted' AND "values" ->> 'key' <> coalesce(stored, 'none')
    """,
)

STAYS_ENDED = by_sql(
    "what a client was shown as ended stays so, unless it is retried",
    """
    SELECT
        told.job_id,
        format('shown as %s, and now %s', "values" ->> 'state', coalesce(state::text, 'unknown'))
            AS says
    FROM told
    LEFT JOIN job_status USING (job_id)
    WHERE kind IN ('seen', 'cancelled')
        AND "values" ->> 'state' IN ('succeeded', 'failed', 'cancelled', 'dead')
        AND state::text IS DISTINCT FROM "values" ->> 'state'
        AND NOT EXISTS (
            SELECT FROM event WHERE event.job_id = told.job_id AND action = 'retried'
        )
    """,
)

CANCELS = by_sql(
    "an acknowledged cancel of a running job ends it as cancelled, or it had succeeded",
    """
    SELECT told.job_id, format('cancelled while it ran, and now %s', state) AS says
    FROM told
    JOIN job_status USING (job_id)
    WHERE kind = 'cancelled' AND "values" ->> 'state' = 'running'
        AND state NOT IN ('cancelled', 'succeeded', 'running')
    """,
)

PROMISES = (ENDS, ONE_PER_KEY, STAYS_ENDED, CANCELS)
