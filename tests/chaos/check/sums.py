"""Data recorded in several places must agree: places, events, reports."""

from __future__ import annotations

from chaos.check.violation import by_sql

ONE_PLACE = by_sql(
    "a job is in exactly one place: waiting, leased or ended",
    """
    SELECT id AS job_id, format('in %s', coalesce(string_agg(place, ' and '), 'no place')) AS says
    FROM job
    LEFT JOIN (
        SELECT job_id, 'ready' AS place FROM ready
        UNION ALL SELECT job_id, 'scheduled' FROM scheduled
        UNION ALL SELECT job_id, 'held' FROM public.held
        UNION ALL SELECT DISTINCT job_id, 'lease' FROM lease
        UNION ALL SELECT job_id, 'outcome' FROM outcome
    ) AS places ON places.job_id = job.id
    GROUP BY id HAVING count(place) <> 1
    """,
)

EVENTS = by_sql(
    "the events add up to the transitions",
    """
    SELECT job.id AS job_id, format('told of as submitted %s times', count(audit.at)) AS says
    FROM job LEFT JOIN audit ON audit.job_id = job.id AND action = 'submitted'
    GROUP BY job.id HAVING count(audit.at) <> 1
    UNION ALL
    SELECT
        outcome.job_id,
        format('cancelled while it waited, told of %s times', count(event.id)) AS says
    FROM outcome
    LEFT JOIN event ON event.job_id = outcome.job_id AND action = 'cancelled'
    WHERE reason = 'cancelled' AND outcome.token IS NULL
    GROUP BY outcome.job_id HAVING count(event.id) <> 1
    UNION ALL
    SELECT event.job_id, 'told of as cancelled while it waited, and is not' AS says
    FROM event LEFT JOIN outcome USING (job_id)
    WHERE action = 'cancelled' AND event.job_id IS NOT NULL
        AND (outcome.state IS DISTINCT FROM 'cancelled' OR outcome.token IS NOT NULL)
    UNION ALL
    SELECT event.job_id, 'told of as retried after an attempt that it did not have' AS says
    FROM event
    LEFT JOIN attempt ON attempt.job_id = event.job_id
        AND attempt.attempt = (event.detail ->> 'attempt')::integer
    WHERE action = 'retried' AND attempt.job_id IS NULL
    UNION ALL
    SELECT held.job_id, format('attempt %s was made ready before attempt %s had ended', attempt,
        attempt - 1)
    FROM (
        SELECT *, lag(finished_at) OVER (PARTITION BY job_id, rank ORDER BY attempt) AS before
        FROM held
    ) AS held
    WHERE ready_at < before
    """,
)

REPORTS = by_sql(
    "the reports add up to the tables",
    """
    SELECT format('%s: the report says %s, the tables %s', what, report, tables) AS says
    FROM (VALUES
        ('jobs', (SELECT count(*) FROM job_status), (SELECT count(*) FROM job)),
        (
            'ended jobs',
            (SELECT count(*) FROM job_status
                WHERE state IN ('succeeded', 'failed', 'cancelled', 'dead')),
            (SELECT count(*) FROM outcome)
        ),
        (
            'running jobs',
            (SELECT count(*) FROM job_status WHERE state = 'running'),
            (SELECT count(DISTINCT job_id) FROM lease)
        ),
        ('attempts', (SELECT count(*) FROM attempt_history), (SELECT count(*) FROM attempt)),
        (
            'milliseconds held',
            (SELECT sum(held_s * 1000)::bigint FROM attempt_history),
            (SELECT sum(extract(EPOCH FROM finished_at - claimed_at)::float8 * 1000)::bigint
                FROM attempt)
        ),
        (
            'accepted attempts',
            (SELECT count(*) FROM attempt_history WHERE accepted),
            (SELECT count(*) FROM outcome WHERE token IS NOT NULL)
        ),
        (
            'entries of the audit trail',
            (SELECT count(*) FROM audit),
            (SELECT count(*) FROM event) + (SELECT count(submitted_by) FROM job)
                + 2 * (SELECT count(*) FROM attempt)
                + (SELECT count(*) FROM lease)
        ),
        (
            'leases by shape',
            (SELECT coalesce(sum(running), 0) FROM queue_demand),
            (SELECT count(*) FROM lease)
        )
    ) AS sums (what, report, tables)
    WHERE report IS DISTINCT FROM tables
    """,
)

SUMS = (ONE_PLACE, EVENTS, REPORTS)
