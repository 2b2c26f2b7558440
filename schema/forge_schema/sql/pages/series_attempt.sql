-- The attempt of a job and rank whose metrics or samples are to be shown: the given one, or the
-- newest that has any. A running attempt ends now.
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
)
SELECT
    token, attempt, rank, claimed_at AS since, coalesce(ended_at, forge_now()) AS until,
    ended_at IS NULL AS running
FROM tried
WHERE %(attempt)s::smallint IS NOT NULL
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
ORDER BY token DESC
LIMIT 1
