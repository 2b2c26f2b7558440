-- Every job as a run of an experiment: its parameters, what it measured and found, what it took, and
-- the git revision of its code. Metrics are those of rank 0, over all attempts; the last value of
-- one may be the text NaN, Infinity or -Infinity.
CREATE VIEW runs AS
SELECT
    job.experiment,
    job.sweep,
    job.owner,
    job.id AS job_id,
    job.name,
    forge_state_word(job_status.state) AS state,
    job_status.reason,
    job_status.attempt,
    coalesce(job.spec -> 'parameters', '{}') AS parameters,
    coalesce(measured.metrics, '{}') AS metrics,
    (
        SELECT result.values FROM result
        WHERE result.job_id = job.id AND result.token = job_status.token
    ) AS result,
    coalesce(spent.seconds, 0) + coalesce(
        extract(EPOCH FROM forge_now() - job_status.started_at)::double precision, 0
    ) AS seconds,
    spent.gpu_seconds,
    spent.cost,
    job.spec #>> '{git,revision}' AS revision,
    coalesce((job.spec #>> '{git,dirty}')::boolean, false) AS dirty,
    job.submitted_at,
    job_status.finished_at
FROM job
JOIN job_status ON job_status.job_id = job.id
LEFT JOIN LATERAL (
    SELECT
        sum(extract(EPOCH FROM attempt.finished_at - attempt.started_at))
            FILTER (WHERE attempt.rank = 0)::double precision AS seconds,
        sum(attempt.gpu_seconds) AS gpu_seconds,
        sum(attempt.cost) AS cost
    FROM attempt
    WHERE attempt.job_id = job.id
) AS spent ON true
LEFT JOIN LATERAL (
    SELECT
        jsonb_object_agg(
            key, jsonb_build_object('last', last, 'min', least, 'max', greatest)
        ) AS metrics
    FROM (
        SELECT
            entry.key, min((entry.value ->> 1)::double precision) AS least,
            max((entry.value ->> 2)::double precision) AS greatest,
            (array_agg(entry.value -> 4 ORDER BY metric_span.token DESC))[1] AS last
        FROM metric_span CROSS JOIN LATERAL jsonb_each(metric_span.values) AS entry
        WHERE metric_span.job_id = job.id AND metric_span.rank = 0 AND metric_span.span = -1
        GROUP BY entry.key
    ) AS by_key
) AS measured ON true;
