"""Attempts and jobs end once, by the last lease, within their budgets."""

from __future__ import annotations

from chaos.check.violation import by_sql

ONE_ACCEPTED = by_sql(
    "a job has at most one accepted completion",
    """
    SELECT job_id, max(token) AS token, format('%s attempts succeeded', count(*)) AS says
    FROM attempt
    WHERE reason = 'succeeded' AND rank = 0 AND job_id NOT IN (SELECT gang.job_id FROM gang)
    GROUP BY job_id HAVING count(*) > 1
    UNION ALL
    SELECT job_id, attempt.token, format('attempt %s succeeded, the job is %s', attempt.attempt,
        coalesce(outcome.state::text, 'not ended'))
    FROM attempt LEFT JOIN outcome USING (job_id)
    WHERE attempt.reason = 'succeeded' AND job_id NOT IN (SELECT gang.job_id FROM gang)
        AND (outcome.state, outcome.token) IS DISTINCT FROM ('succeeded'::state, attempt.token)
    """,
)

NOT_BLAMED = by_sql(
    "a job that runs as a process is never blamed for a signal from elsewhere",
    """
    SELECT
        job_id, token, format('attempt %s failed with %s', attempt, exit_code) AS says
    FROM attempt
    JOIN job ON job.id = job_id
    JOIN lane ON lane.id = job.lane_id
    JOIN shape ON shape.id = lane.shape_id
    WHERE attempt.reason = 'exit_code' AND exit_code > 128
        AND coalesce(shape.labels ->> 'place', 'process') = 'process'
    """,
)

LAST_GRANTED = by_sql(
    "the accepted token is the last one granted",
    """
    SELECT
        job_id, outcome.token,
        format('token %s was accepted, token %s was granted last', outcome.token, last.token)
            AS says
    FROM outcome
    LEFT JOIN LATERAL (
        SELECT token, nonce FROM held WHERE held.job_id = outcome.job_id
        ORDER BY claimed_at DESC, token DESC LIMIT 1
    ) AS last ON true
    WHERE outcome.token IS NOT NULL AND job_id NOT IN (SELECT gang.job_id FROM gang)
        AND (outcome.token, outcome.nonce) IS DISTINCT FROM (last.token, last.nonce)
    """,
)

NO_REOPENING = by_sql(
    "a job that has ended runs again only if it is retried",
    """
    SELECT
        ended.job_id, later.token,
        format('attempt %s ended it as %s, then came attempt %s', ended.attempt, ended.reason,
            later.attempt) AS says
    FROM tried AS ended
    JOIN tried AS later
        ON later.job_id = ended.job_id AND later.era = ended.era AND later.attempt > ended.attempt
    WHERE ended.budget IN ('success', 'final', 'cancel')
    """,
)

WITHIN_BUDGET = by_sql(
    "no attempt is granted once a budget is spent",
    """
    SELECT
        job_id, token,
        format('attempt %s came after %s failures, %s losses, %s preemptions; allowed are %s/%s/%s',
            attempt, failures, losses, preemptions, max_failures, max_losses, max_preemptions)
            AS says
    FROM (
        SELECT *,
            count(*) FILTER (WHERE budget = 'failures') OVER earlier AS failures,
            count(*) FILTER (WHERE budget = 'losses') OVER earlier AS losses,
            count(*) FILTER (WHERE budget = 'preemptions') OVER earlier AS preemptions
        FROM tried
        WINDOW earlier AS (
            PARTITION BY job_id, era, rank ORDER BY attempt
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        )
    ) AS spent
    JOIN job ON job.id = spent.job_id
    WHERE failures > max_failures OR losses > max_losses OR preemptions > max_preemptions
    """,
)

DEAD_BEYOND = by_sql(
    "a job is `dead` only beyond one of its budgets",
    """
    SELECT job_id, outcome.token, 'dead with its budgets not spent' AS says
    FROM outcome JOIN job ON job.id = outcome.job_id
    WHERE state = 'dead' AND NOT EXISTS (
        SELECT FROM tried
        WHERE tried.job_id = outcome.job_id AND rank = 0
            AND era = (SELECT max(era) FROM tried AS any_ WHERE any_.job_id = outcome.job_id)
        GROUP BY era
        HAVING count(*) FILTER (WHERE budget = 'failures') > max_failures
            OR count(*) FILTER (WHERE budget = 'losses') > max_losses
            OR count(*) FILTER (WHERE budget = 'preemptions') > max_preemptions
    )
    """,
)

CHARGED = by_sql(
    "each attempt is charged to the budget of its reason, and a run that ended to grow to none",
    """
    SELECT
        job_id, token,
        format('attempt %s began with %s failures, losses and preemptions, charged were %s',
            attempt, granted.spent, charged) AS says
    FROM (
        SELECT *,
            ARRAY[
                count(*) FILTER (WHERE budget = 'failures') OVER earlier,
                count(*) FILTER (WHERE budget = 'losses') OVER earlier,
                count(*) FILTER (WHERE budget = 'preemptions') OVER earlier
            ] AS charged
        FROM tried
        WINDOW earlier AS (
            PARTITION BY job_id, era, rank ORDER BY attempt
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        )
    ) AS one
    JOIN (
        SELECT job_id, attempt, change.spent
        FROM held JOIN chaos.change USING (job_id, rank, token)
        WHERE rank = 0 AND verb = 'granted'
    ) AS granted USING (job_id, attempt)
    WHERE granted.spent <> charged
    """,
)

CANCELLED_RESTS = by_sql(
    "a cancelled job never runs again",
    """
    SELECT job_id, token, format('granted at %s, %s at %s', claimed_at, action, at) AS says
    FROM held
    JOIN (
        SELECT job_id, action, at FROM event WHERE action IN ('cancelled', 'asked to cancel')
        UNION ALL
        SELECT job_id, 'ended as cancelled', finished_at FROM outcome WHERE state = 'cancelled'
    ) AS told USING (job_id)
    WHERE claimed_at > at
    """,
)

ASKED_ENDS = by_sql(
    "a job that was asked to end ends",
    """
    SELECT job_id, token, format('asked to end (%s), and its lease is still held', asked) AS says
    FROM lease WHERE asked IS NOT NULL
    """,
)

NUMBERED = by_sql(
    "the attempts of a job are numbered from 1 without gaps",
    """
    SELECT job_id, token, format('attempt %s is the %s. of its job', attempt, place) AS says
    FROM (
        -- A run need not have all ranks of the one before.
        SELECT *, dense_rank() OVER (PARTITION BY job_id ORDER BY attempt) AS place
        FROM held
    ) AS ordered
    WHERE attempt <> place
    UNION ALL
    SELECT job_id, max(token), format('rank %s has attempt %s %s times', rank, attempt, count(*))
    FROM held GROUP BY job_id, attempt, rank HAVING count(*) > 1
    """,
)

ENDS_OF_JOBS = (
    ONE_ACCEPTED,
    NOT_BLAMED,
    LAST_GRANTED,
    NO_REOPENING,
    WITHIN_BUDGET,
    DEAD_BEYOND,
    CHARGED,
    CANCELLED_RESTS,
    ASKED_ENDS,
    NUMBERED,
)
