"""Limits: how many jobs run at once, what counts them, and which have to be approved."""

from __future__ import annotations

from chaos.check.violation import by_sql

WITHIN_LIMITS = by_sql(
    "no more jobs of a queue, an owner or a sweep run at once than its limit allows",
    """
    WITH limits AS (
        -- The highest one that was ever set.
        SELECT
            "values" ->> 'of' AS "of", "values" ->> 'name' AS name,
            max(("values" ->> 'max_jobs')::integer) AS max_jobs
        FROM told WHERE kind = 'limited' GROUP BY 1, 2
    ),
    limited AS MATERIALIZED (
        SELECT held.job_id, held.token, held.claimed_at, held.finished_at, limits.*
        FROM held
        JOIN job ON job.id = held.job_id
        JOIN lane ON lane.id = job.lane_id
        JOIN limits ON limits.name = CASE "of"
            WHEN 'queue' THEN lane.queue
            WHEN 'owner' THEN lane.owner
            ELSE lane.owner || '/' || job.sweep
        END
        WHERE held.rank = 0
    )
    SELECT
        job_id, token,
        format('the %s. of %s %s at %s, allowed are %s', running.jobs, "of", name, claimed_at,
            max_jobs) AS says
    FROM limited
    CROSS JOIN LATERAL (
        SELECT count(*) AS jobs FROM limited AS other
        WHERE (other.of, other.name) = (limited.of, limited.name)
            AND other.claimed_at <= limited.claimed_at
            AND coalesce(other.finished_at, 'infinity') > limited.claimed_at
    ) AS running
    WHERE running.jobs > max_jobs
    """,
)

SLOTS_GIVEN_BACK = by_sql(
    "at rest every slot of a limit is there and free, and no job has a turn in its sweep",
    """
    SELECT job_id, format('slot %s of %s %s is held', n, kind, name) AS says
    FROM slot WHERE job_id IS NOT NULL AND NOT EXISTS (
        SELECT FROM lease WHERE lease.job_id = slot.job_id
    )
    UNION ALL
    SELECT NULL, format('%s %s should have %s slots', kind, name, slots) FROM forge_uneven_limits()
    UNION ALL
    SELECT job_id, format('it has a turn in the sweep %s', line) FROM turn
    """,
)

APPROVED_FIRST = by_sql(
    "no job begins before the approval that it waits for",
    """
    SELECT held.job_id, held.token, 'it was claimed, and was not approved before' AS says
    FROM held
    JOIN event AS asked
        ON asked.job_id = held.job_id AND asked.at <= held.claimed_at
        AND asked.action = 'asked for approval'
    WHERE NOT EXISTS (
        SELECT FROM event AS given
        WHERE given.job_id = held.job_id AND given.action = 'approved'
            AND given.at BETWEEN asked.at AND held.claimed_at
    )
    """,
)

LIMITS = (WITHIN_LIMITS, SLOTS_GIVEN_BACK, APPROVED_FIRST)
