-- Jobs by id as runs of their experiments, each with the metrics that have ended with NaN or an
-- infinity: charts and sums leave those out, and a run that diverged would look healthy.
SELECT runs.*, coalesce(diverged.values, '{}') AS diverged
FROM runs
LEFT JOIN LATERAL (
    SELECT jsonb_object_agg(last.key, last.value) AS values
    FROM forge_last_metrics(runs.job_id, runs.submitted_at) AS last
    WHERE jsonb_typeof(last.value) <> 'number'
) AS diverged ON true
WHERE runs.job_id = ANY(%(job_ids)s::bigint[])
