-- Every ended job of a sweep: its parameters, its result, and what it took in all attempts, as in
-- `runs`. `last_seconds` is the running time of the last one, which `worker` and `devices` are of. The
-- energy is null if that of an attempt is not known.
CREATE VIEW benchmark_results AS
SELECT
    job.sweep,
    job.owner,
    job.id AS job_id,
    job.name,
    forge_state_word(outcome.state) AS state,
    outcome.reason,
    coalesce(job.spec -> 'parameters', '{}') AS parameters,
    result.values AS result,
    coalesce(worker.name, former_worker.name) AS worker,
    attempt.devices,
    coalesce(spent.seconds, 0) AS seconds,
    extract(EPOCH FROM attempt.finished_at - attempt.started_at)::double precision AS last_seconds,
    spent.gpu_seconds,
    spent.energy_j,
    spent.cost,
    job.submitted_at,
    outcome.finished_at
FROM job
JOIN outcome ON outcome.job_id = job.id
LEFT JOIN result ON result.job_id = job.id AND result.token = outcome.token
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
