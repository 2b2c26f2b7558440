"""Leases: their tokens, their intervals, and who renews and ends them."""

from __future__ import annotations

from chaos.check.violation import by_sql

RISES = by_sql(
    "tokens strictly rise, per job and over all",
    """
    SELECT
        job_id, token,
        format('token %s of attempt %s comes after token %s', token, attempt, before) AS says
    FROM (
        SELECT *, lag(token) OVER (PARTITION BY job_id, rank ORDER BY attempt, claimed_at) AS before
        FROM held
    ) AS ordered
    WHERE token <= before
    UNION ALL
    -- A lease granted after another one's end has the higher token.
    SELECT job_id, token, format('token %s was granted after token %s had ended', token, before)
    FROM (
        SELECT *, max(token) FILTER (WHERE ends) OVER (ORDER BY at, ends) AS before
        FROM (
            SELECT job_id, token, claimed_at AS at, false AS ends FROM held
            UNION ALL
            SELECT job_id, token, finished_at, true FROM held WHERE finished_at IS NOT NULL
        ) AS turns
    ) AS ordered
    WHERE NOT ends AND token <= before
    UNION ALL
    SELECT max(job_id), token, format('token %s was granted %s times', token, count(*))
    FROM held GROUP BY token, rank HAVING count(*) > 1
    """,
)

ONE_LIVE = by_sql(
    "there are never two live leases for one rank of a job",
    """
    SELECT
        job_id, token,
        format('token %s was granted at %s, token %s ended at %s', token, claimed_at, other, ended)
            AS says
    FROM (
        SELECT *,
            lag(token) OVER earlier AS other,
            lag(coalesce(finished_at, 'infinity')) OVER earlier AS ended
        FROM held
        WINDOW earlier AS (PARTITION BY job_id, rank ORDER BY claimed_at, token)
    ) AS ordered
    WHERE claimed_at < ended
    UNION ALL
    SELECT job_id, token, format('token %s was granted while token %s was live', token, other)
    FROM (
        SELECT *, lag(token) OVER earlier AS other, lag(verb) OVER earlier AS before
        FROM chaos.change
        WINDOW earlier AS (PARTITION BY job_id, rank ORDER BY number)
    ) AS ordered
    WHERE verb = 'granted' AND before NOT IN ('ended', 'settled')
    """,
)

ONE_PER_GPU = by_sql(
    "a GPU serves one job at a time",
    """
    SELECT
        job_id, token,
        format('on GPU %s from %s, while token %s had it until %s', gpu, started_at, other, ended)
            AS says
    FROM (
        SELECT *,
            lag(token) OVER earlier AS other,
            lag(coalesce(freed_at, 'infinity')) OVER earlier AS ended
        FROM held, unnest(devices) AS gpu
        WHERE started_at IS NOT NULL
        WINDOW earlier AS (PARTITION BY gpu ORDER BY started_at, token)
    ) AS ordered
    WHERE started_at < ended
    """,
)

EXPIRED_FIRST = by_sql(
    "no lease is taken from its holder before it ran out by the database's clock",
    """
    SELECT
        job_id, token, format('ended as run out at %s, renewed until %s', at, expires_at) AS says
    FROM chaos.change
    JOIN attempt USING (job_id, token, rank)
    WHERE verb = 'ended' AND reason = 'worker_lost' AND detail = 'the lease ran out'
        AND at <= expires_at
    """,
)

RENEWED_BY_HOLDER = by_sql(
    "only its holder renews a lease",
    """
    SELECT
        job_id, token, format('renewed until %s, not by worker %s', expires_at, worker_id) AS says
    FROM chaos.change
    WHERE verb = 'renewed' AND NOT by_holder
    """,
)

ENDED_BY_HOLDER = by_sql(
    "no worker touches another's job: a lease is ended by its holder or by a sweeper",
    """
    SELECT
        job_id, token,
        format('held by worker %s, ended as %s by worker %s', change.worker_id, reason, other.id)
            AS says
    FROM chaos.change
    JOIN attempt USING (job_id, token, rank)
    JOIN worker AS other ON other.name = change.connection AND other.id <> change.worker_id
    WHERE verb = 'ended'
        -- By a worker's own sweeper.
        AND coalesce(detail, '') NOT IN (
            'the lease ran out', 'its worker did not end it', 'its worker did not start it',
            'its worker did not fetch its lease'
        )
        -- It ran out, and the rank that could not be reached decided its run.
        AND NOT (reason = 'preflight_failed' AND at > expires_at)
    """,
)

ALL_KEPT = by_sql(
    "every lease that was granted has its attempt, and no attempt is without its lease",
    """
    SELECT job_id, token, format('granted to worker %s, and in no table', worker_id) AS says
    FROM chaos.change AS granted
    WHERE verb = 'granted' AND NOT EXISTS (
        SELECT FROM held
        WHERE held.job_id = granted.job_id AND held.token = granted.token
            AND held.rank = granted.rank AND held.worker_id = granted.worker_id
    )
    UNION ALL
    SELECT job_id, token, format('attempt %s of worker %s was never granted', attempt, worker_id)
    FROM held
    WHERE EXISTS (SELECT FROM chaos.change) AND NOT EXISTS (
        SELECT FROM chaos.change AS granted
        WHERE verb = 'granted' AND granted.job_id = held.job_id AND granted.token = held.token
    )
    UNION ALL
    SELECT NULL, NULL, 'the database had no witness; install it before the first lease'
    WHERE EXISTS (SELECT FROM held) AND NOT EXISTS (SELECT FROM chaos.change)
    """,
)

LEASES = (
    RISES,
    ONE_LIVE,
    ONE_PER_GPU,
    EXPIRED_FIRST,
    RENEWED_BY_HOLDER,
    ENDED_BY_HOLDER,
    ALL_KEPT,
)
