-- Every job as a run of an experiment: its parameters, what it measured and found, what it took, and
-- the git revision of its code. Metrics are those of rank 0, over all attempts; the last value of
-- one may be the text NaN, Infinity or -Infinity. A job that made many tasks is a row for each.
CREATE VIEW runs AS
SELECT
    job.experiment,
    job.sweep,
    job.owner,
    job.id AS job_id,
    coalesce(task.name, job.name) AS name,
    coalesce(task.state, forge_state_word(job_status.state)) AS state,
    CASE WHEN task.state = 'succeeded' THEN 'succeeded' ELSE job_status.reason END AS reason,
    job_status.attempt,
    coalesce(task.parameters, job.spec -> 'parameters', '{}') AS parameters,
    CASE
        WHEN task.task IS NULL THEN coalesce(measured.metrics, '{}') ELSE coalesce(task.metrics, '{}')
    END AS metrics,
    CASE WHEN task.task IS NULL THEN result.values ELSE task.result END AS result,
    CASE
        WHEN task.task IS NOT NULL THEN coalesce(task.seconds, 0)
        ELSE coalesce(spent.seconds, 0) + coalesce(CASE
            WHEN job_status.finished_at IS NULL
                THEN extract(EPOCH FROM forge_now() - job_status.started_at)::double precision
        END, 0)
    END AS seconds,
    spent.gpu_seconds * task.share AS gpu_seconds,
    spent.cost * task.share AS cost,
    job.spec #>> '{git,revision}' AS revision,
    coalesce((job.spec #>> '{git,dirty}')::boolean, false) AS dirty,
    job.submitted_at,
    job_status.finished_at,
    task.task,
    job_status.tags
FROM job
JOIN job_status ON job_status.job_id = job.id
LEFT JOIN result ON result.job_id = job.id AND result.token = job_status.token
CROSS JOIN LATERAL forge_tasks(result.values) AS task
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
