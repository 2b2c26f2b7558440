-- For which reasons a job's attempts ended since it was last given fresh budgets, those left out
-- that cost nothing: starts that failed, each the first one on its worker, three at most.
SELECT reason, count(*)::integer AS attempts
FROM (
    SELECT
        reason, finished_at,
        reason = 'start_failed'
            AND row_number() OVER (PARTITION BY reason ORDER BY attempt) <= 3
            AND row_number() OVER (PARTITION BY reason, worker_id ORDER BY attempt) = 1 AS free
    FROM attempt
    WHERE job_id = %(job_id)s AND rank = 0
) AS ended
WHERE NOT free
    AND finished_at >= coalesce(
        (SELECT max(at) FROM event WHERE job_id = %(job_id)s AND action = 'retried'), '-infinity'
    )
GROUP BY reason
