"""Urgency, suspicion and budgets: who makes room, how many workers rest, and who is held back."""

from __future__ import annotations

from chaos.check.violation import by_sql

HIGHER_ONLY = by_sql(
    "a job makes room only for one of a higher priority, and never back for one that it displaced,"
    " unless that one's GPUs are guaranteed",
    """
    SELECT
        left_for.job_id,
        format('priority %s made room for job %s of priority %s', detail ->> 'own', detail ->> 'by',
            detail ->> 'priority') AS says
    FROM event AS left_for
    WHERE action = 'displaced' AND NOT detail ? 'guaranteed_to' AND (
        (detail ->> 'own')::integer >= (detail ->> 'priority')::integer
        OR EXISTS (
            SELECT FROM event AS back
            WHERE back.action = 'displaced' AND back.job_id = (left_for.detail ->> 'by')::bigint
                AND (back.detail ->> 'by')::bigint = left_for.job_id
                AND NOT back.detail ? 'guaranteed_to'
        )
    )
    """,
)

ONCE_PER_ATTEMPT = by_sql(
    "an attempt makes room once",
    """
    SELECT
        job_id,
        format('attempt %s was displaced %s times', detail ->> 'attempt', count(*)) AS says
    FROM event WHERE action = 'displaced'
    GROUP BY job_id, detail ->> 'attempt' HAVING count(*) > 1
    """,
)

COSTS_NO_RETRY = by_sql(
    # If it fails before its worker hears of it, that is its own doing.
    "a job that makes room does not fail of it",
    """
    SELECT job_id, token, format('attempt %s made room, and ended as %s', attempt, reason) AS says
    FROM tried
    WHERE budget = 'failures' AND EXISTS (
        SELECT FROM event
        WHERE event.job_id = tried.job_id AND action = 'displaced'
            AND event.detail ->> 'attempt' = tried.attempt::text
            AND event.at < tried.finished_at - interval '15 seconds'
    )
    """,
)

HALF_A_FLEET = by_sql(
    "at most half of the workers that are there rest",
    """
    SELECT format('%s of %s workers rested at %s', resting, there, at) AS says
    FROM chaos.suspicion WHERE resting > there / 2
    """,
)

BUDGET_HOLDS = by_sql(
    "an owner whose budget is spent starts nothing new, unless that only warns",
    """
    WITH settings AS (
        SELECT
            at, detail ->> 'owner' AS owner, detail ->> 'gpu_hours_per_month' = '0' AS spent,
            detail ->> 'when_spent' <> 'warn' AS holds,
            lead(at, 1, 'infinity') OVER (PARTITION BY detail ->> 'owner' ORDER BY id) AS until
        FROM event WHERE action = 'owner quota set'
    )
    SELECT job_id, token, format('claimed at %s, held back from %s to %s', claimed_at, at, until)
        AS says
    FROM held
    JOIN job ON job.id = held.job_id
    JOIN lane ON lane.id = job.lane_id
    JOIN settings ON settings.owner = lane.owner AND spent AND holds
        -- What was under way then, maybe waiting for a standby.
        AND claimed_at > at + interval '15 seconds' AND claimed_at < until
    """,
)

URGENCY = (BUDGET_HOLDS, HIGHER_ONLY, ONCE_PER_ATTEMPT, COSTS_NO_RETRY, HALF_A_FLEET)
