-- The number of jobs ended in each minute since a time, by outcome, of some owners or of all. Minutes
-- without any are left out.
SELECT date_trunc('minute', outcome.finished_at) AS at, outcome.state, count(*)::integer AS jobs
FROM outcome
WHERE outcome.finished_at >= %(since)s
    AND (
        %(scope)s::text[] IS NULL
        OR (SELECT job.owner FROM job WHERE job.id = outcome.job_id) = ANY(%(scope)s::text[])
    )
GROUP BY 1, 2
ORDER BY 1, 2
