-- Those of a job and rank's newest attempts that have metrics or samples, in order, or the given one
-- in any case. A running attempt ends now. One that resumed begins at the first step that it
-- reported, if that is among its first lines: the steps from there on are no longer those of the
-- attempts before.
WITH tried AS (
    SELECT token, attempt, rank, claimed_at, finished_at AS ended_at
    FROM attempt
    WHERE job_id = %(job_id)s AND rank = %(rank)s::smallint
        AND (%(attempt)s::smallint IS NULL OR attempt = %(attempt)s)
    UNION ALL
    SELECT token, attempt, rank, claimed_at, NULL
    FROM lease
    WHERE job_id = %(job_id)s AND rank = %(rank)s::smallint
        AND (%(attempt)s::smallint IS NULL OR attempt = %(attempt)s)
    ORDER BY token DESC
    LIMIT %(count)s
),
seen AS MATERIALIZED (
    SELECT tried.*, begun.step AS first_step
    FROM tried
    LEFT JOIN LATERAL (
        SELECT step
        FROM (
            SELECT number, step FROM metric
            WHERE metric.job_id = %(job_id)s AND metric.token = tried.token
                AND metric.rank = tried.rank
            ORDER BY number
            LIMIT 20
        ) AS line
        WHERE step IS NOT NULL
        ORDER BY number
        LIMIT 1
    ) AS begun ON true
    WHERE %(attempt)s::smallint IS NOT NULL
        OR begun.step IS NOT NULL
        OR EXISTS (
            SELECT FROM metric
            WHERE metric.job_id = %(job_id)s AND metric.token = tried.token
                AND metric.rank = tried.rank
        )
        OR EXISTS (
            SELECT FROM sample
            WHERE sample.job_id = %(job_id)s AND sample.token = tried.token
                AND sample.rank = tried.rank
        )
)
SELECT
    token, attempt, claimed_at AS since, coalesce(ended_at, forge_now()) AS until,
    ended_at IS NULL AS running, first_step,
    min(first_step) OVER (
        ORDER BY token ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
    ) AS below
FROM seen
ORDER BY token
