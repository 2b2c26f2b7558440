-- The reasons for the ends of a job's attempts since it last got fresh budgets, except those that
-- are free of charge: failures that are blamed on the checkpoint that the attempt began with, and
-- failed starts, each the first on its worker, up to three. A run on several machines has the reason
-- of the member that failed first.
SELECT reason, count(*)::integer AS attempts
FROM (
    SELECT
        reason, finished_at,
        EXISTS (
            SELECT FROM beginning
            WHERE beginning.job_id = %(job_id)s AND beginning.attempt = ended.attempt
                AND beginning.blamed
        ) OR reason = 'start_failed'
            AND row_number() OVER (PARTITION BY reason ORDER BY attempt) <= 3
            AND row_number() OVER (PARTITION BY reason, worker_id ORDER BY attempt) = 1 AS free
    FROM forge_decisive_ends(%(job_id)s) AS ended
) AS ended
WHERE NOT free
    AND finished_at >= coalesce(
        (SELECT max(at) FROM event WHERE job_id = %(job_id)s AND action = 'retried'), '-infinity'
    )
GROUP BY reason
