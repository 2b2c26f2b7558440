-- Jobs by id as runs of their experiments, each with the metrics that have ended with NaN or an
-- infinity: charts and sums leave those out, and a run that diverged would look healthy.
SELECT runs.*, coalesce(diverged.values, '{}') AS diverged
FROM runs
LEFT JOIN LATERAL (
    SELECT jsonb_object_agg(newest.key, newest.value) AS values
    FROM (
        SELECT DISTINCT ON (pair.key) pair.key, pair.value
        FROM (
            SELECT metric.token, metric.number, metric.values
            FROM metric
            WHERE metric.job_id = runs.job_id AND metric.rank = 0
                AND metric.at >= runs.submitted_at
            ORDER BY metric.token DESC, metric.number DESC
            LIMIT 3
        ) AS line
        CROSS JOIN LATERAL jsonb_each(line.values) AS pair
        ORDER BY pair.key, line.token DESC, line.number DESC
    ) AS newest
    WHERE newest.value IN ('"NaN"', '"Infinity"', '"-Infinity"')
) AS diverged ON true
WHERE runs.job_id = ANY(%(job_ids)s::bigint[])
