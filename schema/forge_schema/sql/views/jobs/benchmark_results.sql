-- Every ended job of a sweep: its parameters, its result, and what it took in all attempts, as in
-- `runs`. `last_seconds` is the running time of the last one, which `worker` and `devices` are of. The
-- energy is null if that of an attempt is not known. A job that made many tasks is a row for each.
CREATE VIEW benchmark_results AS
SELECT
    job.sweep,
    job.owner,
    job.id AS job_id,
    coalesce(task.name, job.name) AS name,
    coalesce(task.state, forge_state_word(outcome.state)) AS state,
    CASE WHEN task.state = 'succeeded' THEN 'succeeded' ELSE outcome.reason END AS reason,
    coalesce(task.parameters, job.spec -> 'parameters', '{}') AS parameters,
    CASE WHEN task.task IS NULL THEN result.values ELSE task.result END AS result,
    coalesce(worker.name, former_worker.name) AS worker,
    attempt.devices,
    coalesce(task.seconds, spent.seconds, 0) AS seconds,
    coalesce(
        task.seconds,
        extract(EPOCH FROM attempt.finished_at - attempt.started_at)::double precision
    ) AS last_seconds,
    spent.gpu_seconds * task.share AS gpu_seconds,
    spent.energy_j * task.share AS energy_j,
    spent.cost * task.share AS cost,
    job.submitted_at,
    outcome.finished_at,
    task.task
FROM job
JOIN outcome ON outcome.job_id = job.id
LEFT JOIN result ON result.job_id = job.id AND result.token = outcome.token
CROSS JOIN LATERAL forge_tasks(result.values) AS task
-- The bounds skip the months before submission; a clock may have been set back a little.
LEFT JOIN LATERAL (
    SELECT
        sum(extract(EPOCH FROM each.finished_at - each.started_at))
            FILTER (WHERE each.rank = 0)::double precision AS seconds,
        sum(each.gpu_seconds) AS gpu_seconds,
        CASE
            WHEN bool_and(each.energy_j IS NOT NULL OR each.gpu_seconds = 0) THEN sum(each.energy_j)
        END AS energy_j,
        sum(each.cost) AS cost
    FROM attempt AS each
    WHERE each.job_id = job.id AND each.finished_at > job.submitted_at - interval '1 day'
) AS spent ON true
LEFT JOIN LATERAL (
    SELECT * FROM attempt AS last
    WHERE last.job_id = job.id AND last.attempt = outcome.attempt AND last.rank = 0
        AND last.finished_at > job.submitted_at - interval '1 day'
    LIMIT 1
) AS attempt ON true
LEFT JOIN worker ON worker.id = attempt.worker_id
LEFT JOIN former_worker ON former_worker.id = attempt.worker_id
WHERE job.sweep IS NOT NULL;
